//! Progress of long operations on standard error: done, rate, time left. Silent if that is not a terminal.

use std::io::{self, Write};
use std::time::Duration;

use cenote_runtime::Runtime;
use indicatif::{
    HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, TermLike,
};

use crate::render::{counted, escape_terminal, nice_bytes};
use crate::streams::streams;

/// How often progress is polled.
const TICK: Duration = Duration::from_millis(250);

/// Awaits `work` and periodically passes the elapsed seconds to `show`.
pub async fn watch<T>(runtime: &Runtime, work: impl Future<Output = T>, show: impl Fn(f64)) -> T {
    let start = runtime.now();
    let mut work = std::pin::pin!(work);
    loop {
        match runtime.timeout(TICK, work.as_mut()).await {
            Ok(done) => return done,
            Err(_) => show((runtime.now() - start).as_secs_f64()),
        }
    }
}

/// A rate in whole numbers, `2,880/s`.
fn per_second(rate: f64) -> String {
    format!("{}/s", HumanCount(rate as u64))
}

/// Progress of work over bytes, and the time left once the rate is known: `5G of 17G (29%), 102M/s, 2 minutes
/// left`.
fn describe_bytes(done: u64, total: Option<u64>, rate: f64) -> String {
    let (mut of, mut left) = (String::new(), String::new());
    if let Some(total) = total.filter(|total| *total > 0) {
        // Files may have grown since they were counted, and holes are not copied.
        let done = done.min(total);
        of = format!(" of {} ({}%)", nice_bytes(total), (done as f64 * 100.0 / total as f64) as u64);
        if rate >= 1.0 {
            let seconds = Duration::from_secs(((total - done) as f64 / rate) as u64);
            left = format!(", {} left", HumanDuration(seconds));
        }
    }
    format!("{}{of}, {}/s{left}", nice_bytes(done), nice_bytes(rate as u64))
}

/// A line that is redrawn in place and removed at the end.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Progress over `total` bytes.
    pub fn bytes(total: u64, force: bool) -> Progress {
        let style = ProgressStyle::with_template("{msg} {bytes}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .with_key("bytes", |state: &ProgressState, w: &mut dyn std::fmt::Write| {
                let _ = w.write_str(&describe_bytes(state.pos(), state.len(), state.per_sec()));
            });
        Progress::new(Some(total), style, force)
    }

    /// Progress over a number of files that is not known in advance.
    pub fn files() -> Progress {
        let style = ProgressStyle::with_template("{msg} {files}, {rate}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .with_key("files", |state: &ProgressState, w: &mut dyn std::fmt::Write| {
                let _ = w.write_str(&counted(state.pos(), "file"));
            })
            .with_key("rate", |state: &ProgressState, w: &mut dyn std::fmt::Write| {
                let _ = w.write_str(&per_second(state.per_sec()));
            });
        Progress::new(None, style, false)
    }

    /// Progress with a free text.
    pub fn text() -> Progress {
        let style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        Progress::new(None, style, false)
    }

    fn new(total: Option<u64>, style: ProgressStyle, force: bool) -> Progress {
        let has_screen = || streams().stderr_screen().is_some();
        let shown = force || streams().progress.get().copied().unwrap_or_else(has_screen);
        let target = match shown {
            // Code that draws on standard error itself draws only on a terminal.
            true if !has_screen() => ProgressDrawTarget::term_like_with_hz(Box::new(Drawn), 5),
            true => ProgressDrawTarget::stderr_with_hz(5),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(total, target).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress { bar }
    }

    /// Sets the total, once it is known.
    pub fn total(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// Sets the text, which may contain names from disks.
    pub fn message(&self, text: impl AsRef<str>) {
        self.bar.set_message(escape_terminal(text.as_ref().as_bytes()));
    }

    /// Sets the amount done.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// Prints something while the line is out of the way.
    pub fn hide(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_told_when_it_can_be() {
        assert_eq!(describe_bytes(0, Some(0), 0.0), "0B, 0B/s");
        assert_eq!(describe_bytes(0, Some(5 << 20), 0.0), "0B of 5M (0%), 0B/s");
        assert_eq!(describe_bytes(1 << 20, Some(5 << 20), 1024.0), "1M of 5M (20%), 1K/s, 68 minutes left");
    }

    #[test]
    fn rates_are_whole_numbers() {
        let rates = [(0.04, "0/s"), (2_880.439_2, "2,880/s"), (1_643_210.7, "1,643,210/s")];
        for (rate, text) in rates {
            assert_eq!(per_second(rate), text);
        }
    }
}

/// Standard error, drawn on whether or not it is a terminal.
#[derive(Debug)]
struct Drawn;

impl Drawn {
    fn put(&self, text: &str) -> io::Result<()> {
        (&*streams().stderr).write_all(text.as_bytes())
    }

    /// A control sequence with a count; none for 0.
    fn control(&self, count: usize, letter: char) -> io::Result<()> {
        if count == 0 { Ok(()) } else { self.put(&format!("\x1b[{count}{letter}")) }
    }
}

impl TermLike for Drawn {
    fn width(&self) -> u16 {
        streams().stderr_screen().map_or(80, |(columns, _)| columns.max(1))
    }
    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.control(n, 'A')
    }
    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.control(n, 'B')
    }
    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.control(n, 'C')
    }
    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.control(n, 'D')
    }
    fn write_line(&self, text: &str) -> io::Result<()> {
        self.put(&format!("{text}\n"))
    }
    fn write_str(&self, text: &str) -> io::Result<()> {
        self.put(text)
    }
    fn clear_line(&self) -> io::Result<()> {
        self.put("\r\x1b[2K")
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

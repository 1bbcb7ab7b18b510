//! Progress of long operations on standard error: done, rate, time left, on a redrawn line.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use cenote_control::text::{counted, escape_terminal, nice_bytes};
use indicatif::{
    HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, TermLike,
};

/// Where a line is drawn.
#[derive(Debug, Clone)]
pub enum Place {
    /// Nowhere.
    Hidden,
    /// On standard error, a terminal.
    Terminal,
    /// In this file, a standard error that is no terminal.
    File(Arc<File>),
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

/// A line redrawn in place and removed at the end.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Progress over `total` bytes.
    pub fn bytes(total: u64, place: Place) -> Progress {
        let style = ProgressStyle::with_template("{msg} {bytes}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .with_key("bytes", |state: &ProgressState, w: &mut dyn std::fmt::Write| {
                let _ = w.write_str(&describe_bytes(state.pos(), state.len(), state.per_sec()));
            });
        Progress::new(Some(total), style, place)
    }

    /// Progress over an unknown number of files.
    pub fn files(place: Place) -> Progress {
        let style = ProgressStyle::with_template("{msg} {files}, {rate}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .with_key("files", |state: &ProgressState, w: &mut dyn std::fmt::Write| {
                let _ = w.write_str(&counted(state.pos(), "file"));
            })
            .with_key("rate", |state: &ProgressState, w: &mut dyn std::fmt::Write| {
                let _ = w.write_str(&per_second(state.per_sec()));
            });
        Progress::new(None, style, place)
    }

    /// Progress with a free text.
    pub fn text(place: Place) -> Progress {
        let style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        Progress::new(None, style, place)
    }

    fn new(total: Option<u64>, style: ProgressStyle, place: Place) -> Progress {
        let target = match place {
            // Code that draws on standard error itself draws only on a terminal.
            Place::File(file) => ProgressDrawTarget::term_like_with_hz(Box::new(Drawn(file)), 5),
            Place::Terminal => ProgressDrawTarget::stderr_with_hz(5),
            Place::Hidden => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(total, target).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress { bar }
    }

    /// Sets the total, once known.
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

/// A file drawn on as if it were a terminal.
#[derive(Debug)]
struct Drawn(Arc<File>);

impl Drawn {
    fn put(&self, text: &str) -> io::Result<()> {
        (&*self.0).write_all(text.as_bytes())
    }

    /// A control sequence with a count; none for 0.
    fn control(&self, count: usize, letter: char) -> io::Result<()> {
        if count == 0 { Ok(()) } else { self.put(&format!("\x1b[{count}{letter}")) }
    }
}

impl TermLike for Drawn {
    fn width(&self) -> u16 {
        80
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

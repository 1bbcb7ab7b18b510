//! Progress of long work on standard error: done, rate, time left. Silent if standard error is no terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use cenote_runtime::Runtime;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::render::nice_bytes;

/// Time between two looks at how far the work is.
const TICK: Duration = Duration::from_millis(250);

/// Waits for `work`; tells `show` now and then how many seconds it has taken.
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

/// A line that is redrawn, and gone when the work is done.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Work on `total` bytes.
    pub fn bytes(total: u64, force: bool) -> Progress {
        let style = ProgressStyle::with_template("{msg} {done} of {all} ({percent}%), {rate}/s, {left} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .with_key("done", |state: &ProgressState, w: &mut dyn std::fmt::Write| {
                let _ = w.write_str(&nice_bytes(state.pos()));
            })
            .with_key("all", |state: &ProgressState, w: &mut dyn std::fmt::Write| {
                let _ = w.write_str(&nice_bytes(state.len().unwrap_or(0)));
            })
            .with_key("rate", |state: &ProgressState, w: &mut dyn std::fmt::Write| {
                let _ = w.write_str(&nice_bytes(state.per_sec() as u64));
            })
            .with_key("left", |state: &ProgressState, w: &mut dyn std::fmt::Write| {
                let _ = write!(w, "{}", HumanDuration(state.eta()));
            });
        Progress::new(Some(total), style, force)
    }

    /// Work on a number of files that nobody knows beforehand.
    pub fn files(force: bool) -> Progress {
        let style = ProgressStyle::with_template("{msg} {human_pos} files, {per_sec:.0}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        Progress::new(None, style, force)
    }

    /// No line at all.
    pub fn hidden() -> Progress {
        Progress { bar: ProgressBar::hidden() }
    }

    fn new(total: Option<u64>, style: ProgressStyle, force: bool) -> Progress {
        let shown = force || io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr_with_hz(5) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total, target).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress { bar }
    }

    /// So much there is to do, now that it is known.
    pub fn total(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// What is being worked on.
    pub fn message(&self, text: impl Into<String>) {
        self.bar.set_message(text.into());
    }

    /// So much is done.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// So much more is done.
    pub fn add(&self, more: u64) {
        self.bar.inc(more);
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

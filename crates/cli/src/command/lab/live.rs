//! The display of a run: a line for each finished test and, on a terminal, a moving one for the current test.
//!
//! A run takes hours and keeps its results on disk, so a line that can't be written does not end it.
//!
//! Locking: the estimated end is behind a mutex, held to set it (`tell`) or copy it (the drawing thread).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cenote_lab::control::{Control, Seen};
use cenote_lab::run::Event;
use cenote_shown::lab::live::{done, failed, left, now};
use indicatif::{ProgressBar, ProgressStyle};

use crate::message::say_bare;
use crate::session::print;

/// How often the moving line is redrawn.
const TICK: Duration = Duration::from_millis(500);

type Ends = Arc<Mutex<Option<Instant>>>;

/// The view; clones share the same lines.
#[derive(Clone)]
pub struct Live {
    now: ProgressBar,
    /// The estimated end of the whole run, if known.
    ends: Ends,
    /// Standard output is reserved for JSON: print no lines.
    quiet: bool,
}

impl Live {
    /// A view of the run behind `control`; it redraws itself until it is finished.
    pub fn new(control: Arc<Control>, quiet: bool) -> Live {
        let now = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{spinner} {pos}/{len}  {elapsed_precise}  {msg}");
        now.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        now.enable_steady_tick(TICK);
        let (watched, ends) = (now.clone(), Ends::default());
        let until = Arc::clone(&ends);
        // The thread ends with the view: it stops when the bar is finished.
        // Without a thread the view is not redrawn between events.
        std::thread::Builder::new().spawn(move || watch(&watched, &control, &until)).ok();
        Live { now, ends, quiet }
    }

    /// Shows an event.
    pub fn tell(&self, event: &Event<'_>) {
        match event {
            Event::Begins { number, of, left, .. } => {
                let ends = left.and_then(|left| Instant::now().checked_add(left));
                *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = ends;
                self.now.set_length(*of as u64);
                self.now.set_position(*number as u64);
            }
            Event::Done(measurement) => self.line(&done(measurement)),
            Event::Failed(failure) => self.line(&failed(failure)),
        }
    }

    /// Prints a message about the run itself, outside its results.
    pub fn say(&self, text: &str) {
        self.now.suspend(|| say_bare(text));
    }

    fn line(&self, text: &str) {
        if !self.quiet {
            // The final report goes to the same stream, and reports if it can't be written.
            let _ = self.now.suspend(|| print(text.to_owned() + "\n"));
        }
    }

    /// Removes the moving line.
    pub fn finish(&self) {
        self.now.finish_and_clear();
    }
}

fn watch(bar: &ProgressBar, control: &Control, ends: &Ends) {
    let mut before: Option<(Instant, Seen)> = None;
    while !bar.is_finished() {
        let (at, seen) = (Instant::now(), control.seen());
        if let Some((since, old)) = &before {
            let ends = *ends.lock().unwrap_or_else(PoisonError::into_inner);
            let left = ends.map_or_else(String::new, |ends| left(ends.saturating_duration_since(at)));
            bar.set_message(left + &now(&seen, old, (at - *since).as_secs_f64()));
        }
        before = Some((at, seen));
        std::thread::sleep(TICK);
    }
}

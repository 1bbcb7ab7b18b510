//! What a run shows as it goes on: a line for each test that is done, and below it, on a terminal, what is going on now.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_lab::control::{Control, Seen};
use cenote_lab::measurement::{Figure, Measurement};
use cenote_lab::run::Event;
use cenote_lab::unit::Unit;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// How often what is going on now is drawn.
const TICK: Duration = Duration::from_millis(500);

/// The view; clones show on the same lines.
#[derive(Clone)]
pub struct Live {
    lines: MultiProgress,
    now: ProgressBar,
    /// Standard output is for programs: lines go nowhere.
    quiet: bool,
}

impl Live {
    /// A view of what `control` sees; it draws itself until it is finished.
    pub fn new(control: Arc<Control>, quiet: bool) -> Live {
        let lines = MultiProgress::new();
        let now = lines.add(ProgressBar::new(0));
        let style = ProgressStyle::with_template("{spinner} {pos}/{len}  {elapsed_precise}  {msg}");
        now.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        now.enable_steady_tick(TICK);
        let watched = now.clone();
        // It ends with the view: a finished bar is looked at no more.
        std::thread::spawn(move || watch(&watched, &control));
        Live { lines, now, quiet }
    }

    /// Shows an event.
    pub fn tell(&self, event: &Event<'_>) {
        match event {
            Event::Begins { number, of, .. } => {
                self.now.set_length(*of as u64);
                self.now.set_position(*number as u64);
            }
            Event::Done(measurement) => self.line(&done(measurement)),
            Event::Failed(failure) => self.line(&format!(
                "{:<16} {:<16} #{}  failed: {}",
                failure.target, failure.test, failure.repeat, failure.error
            )),
        }
    }

    /// Says something about the run itself, not among its results.
    pub fn say(&self, text: &str) {
        self.lines.suspend(|| eprintln!("{text}"));
    }

    fn line(&self, text: &str) {
        if !self.quiet {
            self.lines.suspend(|| println!("{text}"));
        }
    }

    /// Takes the moving line away.
    pub fn finish(&self) {
        self.now.finish_and_clear();
    }
}

fn watch(bar: &ProgressBar, control: &Control) {
    let mut before: Option<(Instant, Seen)> = None;
    while !bar.is_finished() {
        let (at, seen) = (Instant::now(), control.seen());
        if let Some((since, old)) = &before {
            bar.set_message(now(&seen, old, (at - *since).as_secs_f64()));
        }
        before = Some((at, seen));
        std::thread::sleep(TICK);
    }
}

/// `nvme rand-read-4k  41 %  21.5 k/s  84.0 MiB/s`
fn now(seen: &Seen, old: &Seen, seconds: f64) -> String {
    let rate = |new: u64, old: u64| new.saturating_sub(old) as f64 / seconds;
    let mut text = seen.doing.clone();
    if seen.done_permille > 0 {
        text += &format!("  {} %", seen.done_permille / 10);
    }
    text += &format!("  {}", Unit::PerSecond.show(rate(seen.operations, old.operations)));
    let bytes = rate(seen.bytes, old.bytes);
    if bytes > 0.0 {
        text += &format!("  {}", Unit::BytesPerSecond.show(bytes));
    }
    text
}

/// One line of what came of a test: throughput and the 99th percentile of each stream, or the other figures.
fn done(measurement: &Measurement) -> String {
    let figures = measurement.outcome.figures();
    let find = |name: String| figures.iter().find(|figure| figure.name == name);
    let show = |figure: &Figure| figure.unit.show(figure.value);
    let mut text = format!("{:<16} {:<16} #{}", measurement.target, measurement.test, measurement.repeat);
    for stream in &measurement.outcome.streams {
        let of = |what: &str| find(format!("{}.{what}", stream.operation)).map(show);
        text += &format!("  {}", stream.operation);
        for part in
            [of("iops"), of("bandwidth"), of("p99").map(|p99| format!("p99 {p99}"))].into_iter().flatten()
        {
            text += &format!(" {part}");
        }
    }
    for figure in &measurement.outcome.others {
        text += &format!("  {} {}", figure.name, show(figure));
    }
    text
}

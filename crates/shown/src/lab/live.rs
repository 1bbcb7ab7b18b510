//! A run of the lab in progress: the current test, the time left, and a line for each finished test.

use std::time::Duration;

use cenote_lab::control::Seen;
use cenote_lab::measurement::{Figure, Measurement};
use cenote_lab::result::Failure;
use cenote_lab::unit::Unit;

/// `about 3 min left  `, no more precise than the estimate.
pub fn left(left: Duration) -> String {
    match left.as_secs() {
        0 => "nearly done  ".into(),
        seconds @ 1..90 => format!("about {} s left  ", seconds.div_ceil(10) * 10),
        seconds @ 90..5400 => format!("about {} min left  ", seconds.div_ceil(60)),
        seconds => format!("about {:.1} h left  ", seconds as f64 / 3600.0),
    }
}

/// `nvme rand-read-4k  41 %  21.5 k/s  84.0 MiB/s`
pub fn now(seen: &Seen, old: &Seen, seconds: f64) -> String {
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

/// One line for a finished test: throughput and the 99th percentile of each stream, or the other figures.
pub fn done(measurement: &Measurement) -> String {
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

/// One line for a test that failed.
pub fn failed(failure: &Failure) -> String {
    format!("{:<16} {:<16} #{}  failed: {}", failure.target, failure.test, failure.repeat, failure.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_as_people_say_it() {
        let told = |seconds| left(Duration::from_secs(seconds));
        assert_eq!(told(0), "nearly done  ");
        assert_eq!(told(41), "about 50 s left  ");
        assert_eq!(told(200), "about 4 min left  ");
        assert_eq!(told(9000), "about 2.5 h left  ");
    }
}

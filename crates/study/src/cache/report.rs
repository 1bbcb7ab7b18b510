//! Report: a table, and the effect of the device on each load.

use std::fmt::Write as _;

use cenote_control::text::{nice_bytes, time_span};

use super::{Answer, Case, Run};
use crate::report::Report;

/// Least notable change of the rate.
const NOTABLE: f64 = 0.1;

impl crate::Answer for Answer {
    fn report(&self) -> Report {
        let mut report = Report::default();
        report.text(format!(
            "# Cache and log devices: memory {}, cache device {}\n\n\
             Cenote's engine on one modelled disk (7200 turns, one operation at a time), virtual time. Reads \
             begin after an import, when memory is empty. \
             `hits`: look-ups of data that memory answered; `L2 hits`: of the others, those that the cache \
             device answered. `disk r`, `disk w`: operations of the disk.\n\n",
            nice_bytes(self.memory_bytes),
            nice_bytes(self.cache_device_bytes)
        ));
        let heads = ["load", "device", "/s", "p50", "p99", "hits", "L2 hits", "disk r", "disk w"];
        report.table(2, heads, self.runs.iter().map(row));
        let mut text = "\n".to_owned();
        for group in self.runs.chunk_by(|a, b| a.load == b.load) {
            if let [without, with @ ..] = group {
                with.iter().for_each(|run| _ = writeln!(text, "- {}", self.verdict(without, run)));
            }
        }
        report.text(text);
        report
    }
}

impl Run {
    pub(super) fn in_short(&self) -> String {
        let [p50, p99] = [self.p50_ns, self.p99_ns].map(time_span);
        format!("{:.0} /s, half within {p50}, 99 % within {p99}", self.per_second())
    }
}

fn row(run: &Run) -> [String; 9] {
    let is_read = matches!(run.case, Case::Reads { .. });
    [
        run.load.clone(),
        run.device.to_owned(),
        format!("{:.0}", run.per_second()),
        time_span(run.p50_ns),
        time_span(run.p99_ns),
        if is_read { percent(run.data_hits, run.data_misses) } else { "-".into() },
        percent(run.l2_hits, run.l2_misses),
        run.disk_reads.to_string(),
        run.disk_writes.to_string(),
    ]
}

fn percent(hits: u64, misses: u64) -> String {
    match hits + misses {
        0 => "-".into(),
        all => format!("{:.0} %", hits as f64 * 100.0 / all as f64),
    }
}

impl Answer {
    fn verdict(&self, without: &Run, with: &Run) -> String {
        let gain = with.per_second() / without.per_second().max(1e-9);
        let is_same = (gain - 1.0).abs() < NOTABLE;
        let change = match gain - 1.0 {
            _ if is_same => "changes nothing that counts".to_owned(),
            change if change < 0.0 => format!("makes it slower: {gain:.2} times the rate"),
            _ => format!("{gain:.1} times the rate"),
        };
        let why = match with.case {
            Case::Reads { working_set_bytes, .. } if working_set_bytes <= self.memory_bytes && is_same => {
                "the working set fits into memory".to_owned()
            }
            Case::Reads { .. } => format!(
                "it answered {} of what memory lacked; the disk read {} times instead of {}",
                percent(with.l2_hits, with.l2_misses),
                with.disk_reads,
                without.disk_reads
            ),
            Case::Durable { .. } => format!(
                "half of the writes are durable within {} instead of {}, 99 % within {} instead of {}",
                time_span(with.p50_ns),
                time_span(without.p50_ns),
                time_span(with.p99_ns),
                time_span(without.p99_ns)
            ),
        };
        format!("**{}, {}**: {change}: {why}.", with.load, with.device)
    }
}

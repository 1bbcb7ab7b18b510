//! What the runs showed: a table, and for each load what the device changes.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::pool::Run;
use super::work::{Case, MEMORY_BYTES, SECOND_BYTES};
use crate::render::{Align, Table, nice_bytes, time_span};

/// A change of the rate that counts.
const NOTABLE: f64 = 0.1;

/// All runs of a study; of each load, that without the device comes first.
#[derive(Default)]
pub struct Study {
    runs: Vec<Run>,
}

impl Run {
    /// Operations in a second.
    fn rate(&self) -> f64 {
        self.operations as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// Figures in short.
    pub fn line(&self) -> String {
        let [p50, p99] = [self.p50, self.p99].map(|time| time_span(time.as_nanos() as u64));
        format!("{:.0} /s, half within {p50}, 99 % within {p99}", self.rate())
    }
}

impl Study {
    pub fn add(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// The report, in Markdown.
    pub fn text(&self) -> String {
        let mut out = format!(
            "# Cache and log devices: memory {}, cache device {}\n\n\
             Cenote's engine on one modelled disk (7200 turns, one operation at a time), virtual time. Reads \
             begin after an import, when memory is empty. \
             `hits`: look-ups of data that memory answered; `L2 hits`: of the others, those that the cache \
             device answered. `disk r`, `disk w`: operations of the disk.\n\n```\n",
            nice_bytes(MEMORY_BYTES),
            nice_bytes(SECOND_BYTES as u64)
        );
        out += &self.table();
        out += "```\n\n";
        for group in self.runs.chunk_by(|a, b| a.case.load() == b.case.load()) {
            if let [without, with @ ..] = group {
                with.iter().for_each(|run| _ = writeln!(out, "- {}", verdict(without, run)));
            }
        }
        out
    }

    fn table(&self) -> String {
        let heads = ["load", "device", "/s", "p50", "p99", "hits", "L2 hits", "disk r", "disk w"];
        let align = |(at, head)| (head, if at < 2 { Align::Left } else { Align::Right });
        let mut table = Table::new(heads.into_iter().enumerate().map(align));
        for run in &self.runs {
            let (data, second) = (&run.stats.data, &run.second);
            let is_read = matches!(run.case, Case::Reads { .. });
            table.row([
                run.case.load(),
                run.case.device().to_owned(),
                format!("{:.0}", run.rate()),
                time_span(run.p50.as_nanos() as u64),
                time_span(run.p99.as_nanos() as u64),
                if is_read { percent(data.hits, data.misses) } else { "-".into() },
                percent(second.hits, second.misses),
                run.disk_reads.to_string(),
                run.disk_writes.to_string(),
            ]);
        }
        table.aligned()
    }

    /// All figures.
    pub fn json(&self) -> Value {
        let of = |run: &Run| {
            json!({
                "load": run.case.load(),
                "device": run.case.device(),
                "operations": run.operations,
                "seconds": run.took.as_secs_f64(),
                "p50_ns": run.p50.as_nanos() as u64,
                "p99_ns": run.p99.as_nanos() as u64,
                "data_hits": run.stats.data.hits,
                "data_misses": run.stats.data.misses,
                "l2_hits": run.second.hits,
                "l2_misses": run.second.misses,
                "disk_reads": run.disk_reads,
                "disk_writes": run.disk_writes,
            })
        };
        json!({
            "memory_bytes": MEMORY_BYTES,
            "cache_device_bytes": SECOND_BYTES,
            "runs": self.runs.iter().map(of).collect::<Vec<_>>(),
        })
    }
}

fn percent(hits: u64, misses: u64) -> String {
    match hits + misses {
        0 => "-".into(),
        all => format!("{:.0} %", hits as f64 * 100.0 / all as f64),
    }
}

/// What the device changed, and why.
fn verdict(without: &Run, with: &Run) -> String {
    let gain = with.rate() / without.rate().max(1e-9);
    let (load, device) = (with.case.load(), with.case.device());
    let is_same = (gain - 1.0).abs() < NOTABLE;
    let change = match gain - 1.0 {
        _ if is_same => "changes nothing that counts".to_owned(),
        change if change < 0.0 => format!("makes it slower: {gain:.2} times the rate"),
        _ => format!("{gain:.1} times the rate"),
    };
    let why = match with.case {
        Case::Reads { working_set_bytes, .. } if working_set_bytes <= MEMORY_BYTES && is_same => {
            "the working set fits into memory".to_owned()
        }
        Case::Reads { .. } => format!(
            "it answered {} of what memory lacked; the disk read {} times instead of {}",
            percent(with.second.hits, with.second.misses),
            with.disk_reads,
            without.disk_reads
        ),
        Case::Durable { .. } => format!(
            "half of the writes are durable within {} instead of {}, 99 % within {} instead of {}",
            time_span(with.p50.as_nanos() as u64),
            time_span(without.p50.as_nanos() as u64),
            time_span(with.p99.as_nanos() as u64),
            time_span(without.p99.as_nanos() as u64)
        ),
    };
    format!("**{load}, {device}**: {change}: {why}.")
}

//! bonnie++ output, format 1.98: one line of 50 fields.
//!
//! ```text
//!  0 format   1 version  2 name   3 concurrency  4 seed    5 size     6 (empty)  7 seeks   8 seekers
//!  9 putc  11 write  13 rewrite  15 getc  17 read  19 seek      each: KiB/s (seeks/s), then % of a processor
//! 21 files in 1024   22 largest   23 smallest   24 folders   25 block
//! 26 sequential-create  28 -stat  30 -delete  32 random-create  34 -stat  36 -delete   each: files/s, then %
//! 38 the longest latency of each of these twelve, with its unit
//! ```
//!
//! A field is empty if not measured, and `+++++` if the phase took less than half a second, for which
//! bonnie++ gives no number.

use crate::load::measurement::{Figure, Latency, Stream};
use crate::unit::Unit;
use crate::{LabError, Result};

const FIELDS: usize = 50;
const FORMAT: &str = "1.98";
const SIZE: usize = 5;
const SEEKS: usize = 7;
const FILES: usize = 21;
const LATENCIES: usize = 38;

#[derive(Clone, Copy, PartialEq)]
enum Moves {
    Blocks,
    Seeks,
    Files,
}

/// (name, field of its rate, unit), in the order of their latencies; the per-character phases have no name
/// here.
const PHASES: [(Option<&str>, usize, Moves); 12] = [
    (None, 9, Moves::Blocks),
    (Some("write"), 11, Moves::Blocks),
    (Some("rewrite"), 13, Moves::Blocks),
    (None, 15, Moves::Blocks),
    (Some("read"), 17, Moves::Blocks),
    (Some("seek"), 19, Moves::Seeks),
    (Some("sequential-create"), 26, Moves::Files),
    (Some("sequential-stat"), 28, Moves::Files),
    (Some("sequential-delete"), 30, Moves::Files),
    (Some("random-create"), 32, Moves::Files),
    (Some("random-stat"), 34, Moves::Files),
    (Some("random-delete"), 36, Moves::Files),
];

#[derive(Debug, PartialEq)]
pub struct Told {
    pub version: String,
    /// One stream per phase, without latencies.
    pub streams: Vec<Stream>,
    /// Processor use and the longest latency of each phase.
    pub others: Vec<Figure>,
    /// Phases without a measurement.
    pub notes: Vec<String>,
}

/// Parses the line, which does not contain the block size.
///
/// # Errors
/// Not of this format.
pub fn parse(text: &str, block_bytes: u64) -> Result<Told> {
    let wrong = |what: String| LabError::Program { program: "bonnie++".into(), what };
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let fields: Vec<&str> = line.split(',').collect();
    if fields.len() != FIELDS || fields[0] != FORMAT {
        let what = format!("printed {line:?}; expected {FIELDS} fields of format {FORMAT} (bonnie++ 2.00)");
        return Err(wrong(what));
    }
    let block_bytes = block_bytes.max(1);
    let size_bytes = size(fields[SIZE]).unwrap_or(0);
    let mut told =
        Told { version: fields[1].into(), streams: Vec::new(), others: Vec::new(), notes: Vec::new() };
    for (index, &(name, field, moves)) in PHASES.iter().enumerate() {
        let (Some(name), rate) = (name, fields[field]) else { continue };
        match rate {
            "" => continue,
            _ if rate.starts_with('+') => {
                told.notes.push(format!(
                    "{name}: took less than half a second, for which bonnie++ gives no number"
                ));
            }
            _ => {
                let rate: f64 = rate.parse().map_err(|_| wrong(format!("{name}: {rate:?} is not a rate")))?;
                let operations = match moves {
                    Moves::Blocks => size_bytes / block_bytes,
                    Moves::Seeks => fields[SEEKS].parse().unwrap_or(0),
                    Moves::Files => fields[FILES].parse::<u64>().unwrap_or(0).saturating_mul(1024),
                };
                told.streams.push(stream(name, operations, block_bytes, rate, moves));
                let percent = fields[field + 1].parse().ok();
                let cpu = |percent| Figure::lower(format!("{name}.cpu"), percent, Unit::Percent);
                told.others.extend(percent.map(cpu));
            }
        }
        let longest = latency_ns(fields[LATENCIES + index]);
        let max = |ns| Figure::lower(format!("{name}.max"), ns, Unit::Nanoseconds);
        told.others.extend(longest.map(max));
    }
    Ok(told)
}

fn stream(name: &str, operations: u64, block_bytes: u64, rate: f64, moves: Moves) -> Stream {
    let bytes = if moves == Moves::Files { 0 } else { operations.saturating_mul(block_bytes) };
    let seconds = match moves {
        Moves::Blocks => bytes as f64 / (rate * 1024.0),
        Moves::Seeks | Moves::Files => operations as f64 / rate,
    };
    Stream {
        operation: name.into(),
        operations,
        bytes,
        runtime_ns: (seconds * 1e9) as u64,
        errors: 0,
        latency: Latency::default(),
        seconds: Vec::new(),
    }
}

/// `64M`, `6G`, `64k`, `8192`, in bytes.
fn size(text: &str) -> Option<u64> {
    let unit = match text.chars().last()? {
        'k' | 'K' => 1 << 10,
        'm' | 'M' => 1 << 20,
        'g' | 'G' => 1 << 30,
        _ => 1,
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// `1788us`, `420ms`, `3s`, in nanoseconds.
fn latency_ns(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    Some(digits.parse::<f64>().ok()? * unit)
}

#[cfg(test)]
#[path = "csv_tests.rs"]
mod tests;

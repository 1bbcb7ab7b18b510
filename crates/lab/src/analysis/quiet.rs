//! Whether the machine was quiet: activity of other processes, other users of the disks and a virtual
//! machine's host.
//!
//! Other work has effects of unknown size, so no figure is corrected; the report states the disturbance
//! first.

use serde::{Deserialize, Serialize};

use super::observed::Observed;
use super::{Finding, Severity};
use crate::stats::median;
use crate::unit::Unit;

/// Other users above this share of a disk's bytes make a machine not quiet.
const DISK_OTHERS: f64 = 0.10;

/// Other activity during one run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Noise {
    /// Processor share of other processes; None if unknown.
    pub others: Option<f64>,
    /// Processor share taken by the host.
    pub stolen: f64,
    /// Share of the time in which some task waited for a processor.
    pub pressure: Option<f64>,
    /// Share of the busiest disk's bytes caused by others.
    pub disk: Option<f64>,
    /// Whether all are small; None if too little is known.
    pub is_quiet: Option<bool>,
}

impl Noise {
    /// Derives the noise from a run.
    pub fn of(observed: &Observed) -> Noise {
        let cpu = observed.cpu;
        let busiest = observed.disks.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
        let disk = busiest.and_then(|disk| disk.others);
        let is_quiet = match disk {
            Some(others) if others > DISK_OTHERS => Some(false),
            _ => cpu.and_then(|cpu| cpu.is_quiet()),
        };
        Noise {
            others: cpu.and_then(|cpu| cpu.others()),
            stolen: cpu.map_or(0.0, |cpu| cpu.stolen),
            pressure: cpu.and_then(|cpu| cpu.pressure),
            disk,
            is_quiet,
        }
    }
}

/// Other activity during all runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Quiet {
    /// Number of runs.
    pub runs: usize,
    /// Runs during which the machine was known not to be quiet.
    pub disturbed: usize,
    /// Runs without enough samples.
    pub unknown: usize,
    /// Processor share of other processes in disturbed runs: minimum, median, maximum.
    pub others: Option<(f64, f64, f64)>,
    /// Largest share taken by the host.
    pub stolen: f64,
    /// Median share of the time in which some task waited for a processor, in disturbed runs.
    pub pressure: Option<f64>,
    /// Largest share of a disk's bytes caused by others.
    pub disk: f64,
}

impl Quiet {
    /// Sums up all runs.
    pub fn of(all: &[Noise]) -> Quiet {
        let disturbed: Vec<&Noise> = all.iter().filter(|noise| noise.is_quiet == Some(false)).collect();
        let most = |of: fn(&Noise) -> f64| all.iter().map(of).fold(0.0, f64::max);
        let others: Vec<f64> = disturbed.iter().filter_map(|noise| noise.others).collect();
        let pressure: Vec<f64> = disturbed.iter().filter_map(|noise| noise.pressure).collect();
        let range = |values: &[f64]| {
            let least = values.iter().copied().reduce(f64::min)?;
            Some((least, median(values), values.iter().copied().fold(least, f64::max)))
        };
        Quiet {
            runs: all.len(),
            disturbed: disturbed.len(),
            unknown: all.iter().filter(|noise| noise.is_quiet.is_none()).count(),
            others: range(&others),
            stolen: most(|noise| noise.stolen),
            pressure: range(&pressure).map(|range| range.1),
            disk: most(|noise| noise.disk.unwrap_or(0.0)),
        }
    }

    /// Finding; None without runs.
    pub fn finding(&self) -> Option<Finding> {
        if self.runs == 0 {
            return None;
        }
        if self.disturbed == 0 {
            let (id, sentence) = match self.unknown {
                0 => (
                    "machine.quiet",
                    "The machine was quiet during all runs: other processes used little processor time.",
                ),
                unknown if unknown == self.runs => (
                    "machine.unknown",
                    "Whether the machine was quiet is unknown: other processes were not sampled.",
                ),
                _ => ("machine.unknown", "Whether the machine was quiet is unknown for some of the runs."),
            };
            return Some(Finding::new(id, Severity::Info, sentence));
        }
        let percent = |part: f64| format!("{:.0} %", part * 100.0);
        let runs = if self.runs == 1 { "run" } else { "runs" };
        let mut why = Vec::new();
        if let Some((least, middle, most)) = self.others {
            why.push(match percent(least) == percent(most) {
                true => format!("other processes used {} of the processors", percent(middle)),
                false => format!(
                    "other processes used {} to {} of the processors (median {})",
                    percent(least),
                    percent(most),
                    percent(middle)
                ),
            });
        }
        if self.stolen >= 0.01 {
            why.push(format!("the host of this virtual machine took up to {} (steal)", percent(self.stolen)));
        }
        if self.disk > DISK_OTHERS {
            why.push(format!("up to {} of a disk's traffic came from other work", percent(self.disk)));
        }
        if let Some(pressure) = self.pressure {
            why.push(format!(
                "some task waited for a processor {} of the time (pressure)",
                percent(pressure)
            ));
        }
        let sentence = format!(
            "The machine was not quiet in {} of {} {runs}: {}. Other work distorts these figures: measure \
             again on a quiet machine before you rely on them.",
            self.disturbed,
            self.runs,
            why.join("; ")
        );
        let mut finding = Finding::new("machine.busy", Severity::Warning, sentence)
            .with("disturbed runs", self.disturbed as f64, Unit::Count)
            .with("steal", self.stolen * 100.0, Unit::Percent)
            .with("disk traffic of other work", self.disk * 100.0, Unit::Percent);
        if let Some((_, middle, most)) = self.others {
            finding = finding
                .with("processors used by other processes, median", middle * 100.0, Unit::Percent)
                .with("processors used by other processes, maximum", most * 100.0, Unit::Percent);
        }
        Some(finding)
    }
}

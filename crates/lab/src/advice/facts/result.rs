//! Facts from a result: the machine's description, sampled cache counters and measured workers.

use std::borrow::Borrow;

use super::{Facts, workers};
use crate::load::machine::Machine;
use crate::load::machine::zpool::Counters;
use crate::load::result::{ResultFolder, Run};
use crate::load::samples::{Kind, Missing, Samples};
use crate::{LabError, Result};

impl Facts {
    /// Facts in a result about its machine. Counters are summed over its runs.
    ///
    /// # Errors
    /// A run cannot be read, or the machine's description has another version.
    pub fn of_result(result: &ResultFolder) -> Result<Facts> {
        Facts::of_runs(result, result.runs())
    }

    /// As [`of_result`](Self::of_result), from runs in memory or not.
    ///
    /// # Errors
    /// As [`of_result`](Self::of_result).
    pub fn of_runs<R: Borrow<Run>>(
        result: &ResultFolder,
        runs: impl IntoIterator<Item = Result<R>>,
    ) -> Result<Facts> {
        let machine: Machine = serde_json::from_value(result.machine().clone()).map_err(|error| {
            LabError::Result { path: result.path().join("machine.json"), what: error.to_string() }
        })?;
        let mut facts = Facts::of_machine(&machine);
        facts.unix_s = Some(result.created_unix_ns() / 1_000_000_000);
        let (mut arc, mut counted_ns) = (Counters::default(), 0);
        for run in runs {
            let run = run?;
            let Run { measurement, samples } = run.borrow();
            workers::add(&mut facts.workers, result.plan(), measurement);
            add_arc(&mut arc, samples);
            counted_ns += measurement.elapsed_ns;
        }
        facts.counted_s = Some(counted_ns as f64 / 1e9);
        match arc.0.is_empty() {
            true => facts
                .missing
                .push(Missing { source: "arcstats".into(), why: "not sampled beside this result".into() }),
            false => facts.arc = Some(arc),
        }
        Ok(facts)
    }
}

/// Adds a run's growth to counters; sets states to the last value.
fn add_arc(arc: &mut Counters, samples: &Samples) {
    for series in samples.series.iter().filter(|series| series.source == "arcstats") {
        let value = arc.0.entry(series.name.clone()).or_default();
        match series.kind {
            Kind::Counter => *value += series.growth().max(0.0) as u64,
            Kind::Gauge => *value = series.points.last().map_or(*value, |point| point.1.max(0.0) as u64),
        }
    }
}

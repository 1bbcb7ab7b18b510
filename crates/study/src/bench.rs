//! Runs and measures loads, each on its own pool and simulator.
//!
//! Idea: all runs of a study have the same seed, so only its parameters differ. A pool is created on memory
//! devices, then opened on modelled devices ([`Bench`]). Clients work in virtual time while a [`Meter`]
//! counts operations of the disk and the cache. A run uses no real disk, and one thread.

mod clients;
mod files;
mod meter;
mod pool;
mod spinning;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cenote_runtime::{Runtime, SimConfig};

pub(crate) use clients::{Clients, Took};
pub(crate) use meter::{Meter, Seen};
pub(crate) use pool::{Bench, DISK, open};
pub(crate) use spinning::Spinning;

use crate::error::Result;

const TICK: Duration = Duration::from_millis(250);

/// Progress of a study.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress<'a> {
    /// A run is under way.
    Running {
        /// Number of the run, from 1.
        run: usize,
        /// Number of all runs.
        runs: usize,
        /// Name of the load.
        load: &'a str,
        /// Completed share of the study, from 0 to 1, if known.
        part: Option<f64>,
    },
    /// A run has ended.
    Ended {
        /// Name of the load.
        load: &'a str,
        /// Short result.
        result: &'a str,
    },
}

pub(crate) trait Load: Clone + Send + 'static {
    type Run: Send + 'static;

    const SEED: u64;

    fn name(&self) -> String;

    /// Total steps; 0 if not counted.
    fn steps(&self) -> u64;

    fn run(self, rt: Runtime, steps: Steps) -> impl Future<Output = Result<Self::Run>>;

    /// Short result.
    fn result(run: &Self::Run) -> String;
}

/// Steps of a run so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps(Arc<AtomicU64>);

impl Steps {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn made(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub(crate) async fn run_each<L: Load>(
    rt: &Runtime,
    loads: &[L],
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<L::Run>> {
    let total: u64 = loads.iter().map(L::steps).sum();
    let (mut ended, mut done) = (Vec::with_capacity(loads.len()), 0);
    for load in loads {
        let (name, steps) = (load.name(), Steps::default());
        let mut running = pin!(rt.blocking({
            let (load, steps) = (load.clone(), steps.clone());
            move || simulate(load, steps)
        }));
        let run = loop {
            let Ok(run) = rt.timeout(TICK, running.as_mut()).await else {
                let part = ((done + steps.made()) as f64 / total.max(1) as f64).min(1.0);
                progress(Progress::Running {
                    run: ended.len() + 1,
                    runs: loads.len(),
                    load: &name,
                    part: (total > 0).then_some(part),
                });
                continue;
            };
            break run?;
        };
        progress(Progress::Ended { load: &name, result: &L::result(&run) });
        done += load.steps();
        ended.push(run);
    }
    Ok(ended)
}

fn simulate<L: Load>(load: L, steps: Steps) -> Result<L::Run> {
    // One simulator step is one poll of a task; loads need arbitrarily many.
    let config = SimConfig { step_limit: u64::MAX, ..SimConfig::seed(L::SEED) };
    Runtime::simulate(config, |rt| load.run(rt, steps)).0
}

//! How a load is run and measured: on a pool of its own, in a simulator of its own.
//!
//! Idea: all runs of a study begin with the same seed, so what differs between two runs is what the study
//! changed. A pool is made on memory, which takes no time; then it is opened on modelled devices ([`Bench`])
//! and its clients work in virtual time while a [`Meter`] counts what the disk and the cache do. A run takes
//! no disk of the machine, and a thread from beginning to end.

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

/// How often it is told how far a run is.
const TICK: Duration = Duration::from_millis(250);

/// How far a study is.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress<'a> {
    /// A run goes on.
    Running {
        /// Its number, from 1.
        run: usize,
        /// How many there are.
        runs: usize,
        /// What runs.
        load: &'a str,
        /// How much of the study is done, from 0 to 1, if that can be told.
        part: Option<f64>,
    },
    /// A run is over.
    Ended {
        /// What ran.
        load: &'a str,
        /// What came of it, in short.
        result: &'a str,
    },
}

/// A load that a study runs.
pub(crate) trait Load: Clone + Send + 'static {
    /// What comes of it.
    type Run: Send + 'static;

    /// The seed of its simulator.
    const SEED: u64;

    /// What it is called.
    fn name(&self) -> String;

    /// How many steps it takes; 0: it does not count them.
    fn steps(&self) -> u64;

    /// Runs it.
    fn run(self, rt: Runtime, steps: Steps) -> impl Future<Output = Result<Self::Run>>;

    /// What came of it, in short.
    fn result(run: &Self::Run) -> String;
}

/// How many steps a run has made so far.
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

/// Runs one load after the other.
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
    // A step of the simulator is a task that is polled once.
    let config = SimConfig { step_limit: u64::MAX, ..SimConfig::seed(L::SEED) };
    Runtime::simulate(config, |rt| load.run(rt, steps)).0
}

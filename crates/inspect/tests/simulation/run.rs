//! The record of a run, and the data that must survive a power cut.
//!
//! ```text
//!   txg found on disk  --history-->  the pool at its end       all datasets and snapshots
//!   an acknowledged commit           one file system, volume or file, from its log if no txg has it
//!   an unfinished commit             may be there in part: that dataset only has to be intact
//! ```

use std::sync::Arc;

use cenote_dataset::Mos;
use cenote_device::Device;
use cenote_engine::{Engine, Host};
use cenote_format::label::PoolState;
use cenote_format::units::{ObjectId, Txg};
use cenote_fs::replay_logs;
use cenote_runtime::Runtime;
use cenote_testkit::image::Image;

use crate::check::{Known, Unsure, check_blameless, check_sound, compare};
use crate::journal::{Journal, Moment};
use crate::model::{Content, History, World};
use crate::pools::{now, open};

/// A commit of a file system or volume, or of one file.
#[derive(Debug, Clone)]
pub struct Commit {
    pub head: String,
    pub file: Option<ObjectId>,
    pub state: usize,
    pub asked: Moment,
    pub done: Option<Moment>,
}

/// The record of a run.
pub struct Run {
    pub before: Vec<Image>,
    pub journal: Journal,
    pub history: History,
    /// When each state was known to be on disk.
    pub acks: Vec<(Moment, usize)>,
    pub commits: Vec<Commit>,
}

/// The expected content of a pool.
#[derive(Debug, Clone)]
pub struct Expected {
    pub world: World,
    pub unsure: Unsure,
}

/// A pool opened after a power cut, intact, with its logs replayed, and claimed as an import does.
pub struct Recovered {
    pub engine: Engine,
    /// The found txg.
    pub found: Txg,
    /// Datasets whose logs were replayed.
    pub replayed: Vec<String>,
}

/// Opens the pool after a cut. No disk may be blamed.
pub async fn recover(rt: &Runtime, devices: Vec<Arc<dyn Device>>) -> Result<Recovered, String> {
    let recovered = recover_with_faults(rt, devices).await?;
    check_blameless(&recovered.engine.pool())?;
    Ok(recovered)
}

/// The same after one disk has failed to write: it may be blamed for that.
pub async fn recover_with_faults(rt: &Runtime, devices: Vec<Arc<dyn Device>>) -> Result<Recovered, String> {
    let mos = open(rt, devices).await?;
    check_sound(&mos).await?;
    let recovered = replay(rt, mos).await?;
    if !recovered.replayed.is_empty() {
        let mos = recovered.engine.mos().await.map_err(|error| error.to_string())?;
        check_sound(&mos).await.map_err(|why| format!("after replay: {why}"))?;
    }
    Ok(recovered)
}

/// The same for a pool with rubbish on one disk.
pub async fn recover_damaged(rt: &Runtime, devices: Vec<Arc<dyn Device>>) -> Result<Recovered, String> {
    replay(rt, open(rt, devices).await?).await
}

async fn replay(rt: &Runtime, mos: Mos) -> Result<Recovered, String> {
    let found = mos.uberblock().txg;
    let engine = Engine::start(&mos).await.map_err(|error| error.to_string())?;
    drop(mos);
    let mut replayed = Vec::new();
    for (name, report) in replay_logs(&engine, now(rt)).await.map_err(|error| error.to_string())? {
        if report.set_aside > 0 {
            return Err(format!("replay of {name}: {report:?}"));
        }
        replayed.push(name);
    }
    // If the power failed between uberblocks, only the next txg brings the newest state to every disk; and
    // labels may describe a vdev tree never committed.
    let host = Host { id: 1, name: "here".into() };
    engine.ownership().set_state(PoolState::Active, host).await.map_err(|error| error.to_string())?;
    Ok(Recovered { engine, found, replayed })
}

impl Expected {
    /// Checks that the pool has this content.
    pub async fn compare(&self, engine: &Engine) -> Result<(), String> {
        let mos = engine.mos().await.map_err(|error| error.to_string())?;
        compare(&mos, &self.world, &self.unsure).await
    }
}

impl Run {
    /// The expected content after a cut: it must equal the history as of the txg found and the commits since.
    pub async fn expect(&self, pool: &Recovered, moment: Moment) -> Result<Expected, String> {
        let (txg, replayed) = (pool.found, &pool.replayed);
        let mut why = format!("acknowledged changes are lost: the pool is as of txg {txg}");
        for state in self.history.at(txg, self.acknowledged(moment)) {
            let expected = self.expected(state, moment);
            match expected.compare(&pool.engine).await {
                Ok(()) => return Ok(expected),
                Err(differs) => why = format!("txg {txg}, logs of {replayed:?}: {differs}"),
            }
        }
        Err(why)
    }

    /// The state of the history known to be on disk.
    fn acknowledged(&self, moment: Moment) -> usize {
        let known = self.acks.iter().take_while(|(at, _)| *at <= moment);
        known.map(|(_, state)| *state).max().unwrap_or(0)
    }

    /// The pool in a state, plus the later commits.
    fn expected(&self, state: usize, moment: Moment) -> Expected {
        let (mut world, mut unsure) = (self.history.world(state).clone(), Unsure::new());
        for commit in self.commits.iter().filter(|commit| commit.asked < moment && commit.state > state) {
            let Some(content) = world.heads.get_mut(&commit.head) else { continue };
            let is_done = commit.done.is_some_and(|done| done <= moment);
            let (head, then) = (commit.head.clone(), &self.history.world(commit.state).heads[&commit.head]);
            match commit.file {
                _ if !is_done => _ = unsure.insert(head, Known::Nothing),
                Some(file) if !has_file(then, file) => _ = unsure.insert(head, Known::Nothing),
                Some(file) => _ = unsure.insert(head, Known::File(file)),
                None => _ = unsure.remove(&head),
            }
            content.clone_from(then);
        }
        Expected { world, unsure }
    }
}

fn has_file(content: &Content, file: ObjectId) -> bool {
    matches!(content, Content::Files(files) if files.contains_key(&file))
}

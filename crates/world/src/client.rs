//! Clients: random programs from a seed.
//!
//! Idea: swarm testing. Each world draws weights for all kinds of calls, many of them zero, so that it does
//! some things often rather than all rarely.
//!
//! A client's own directory, `cN`, changes in the order of its calls. In `common`, calls of all clients
//! meet, and reads and writes stay within a page, since longer ones are not atomic in Linux either.
//!
//! Source: Groce and others, "Swarm testing" (2012).

pub mod admin;
pub mod agent;
pub mod devices;
pub mod intruder;
pub mod perform;
pub mod posix;
pub mod program;
pub mod trouble;
pub mod volume;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_runtime::{Rng, Runtime};
use perform::Performer;

use crate::less::{Group, Kind, Less};
use crate::machine::POOL;
use crate::machine::daemon::Daemon;
use crate::machine::faults::{Bay, Trouble};
use crate::machine::volume::Protocol;
use crate::model::verb::verb_of;
use crate::model::{Action, ClientId};
use crate::pairs::Aim;
use crate::scene::Scene;

/// The share of choices that follow an aim, and the draws to find one.
const AIMED: f64 = 0.7;
const DRAWS: usize = 40;

/// Between two looks of the agent, at least: they take more of the processor than calls.
const SHORTEST_LOOK: Duration = Duration::from_millis(5);

/// Tunables with which txgs close often, also in the middle of a replay.
pub(crate) const SMALL_TXGS: &[(&str, &str)] =
    &[("zfs_dirty_data_max", "16777216"), ("zfs_dirty_data_sync_percent", "1"), ("zfs_txg_timeout", "1")];

/// The surroundings of a client.
#[derive(Clone)]
#[allow(missing_docs)] // as their types say
pub struct Stage {
    pub runtime: Runtime,
    pub daemon: Arc<Daemon>,
    pub bay: Arc<Bay>,
    pub scene: Arc<Scene>,
    pub swarm: Arc<Swarm>,
}

/// Weights of kinds of calls.
#[derive(Debug, Clone)]
pub struct Swarm {
    /// Of [`posix`].
    pub posix: Vec<u64>,
    /// Of [`admin`].
    pub admin: Vec<u64>,
    /// Of [`volume`].
    pub volume: Vec<u64>,
    /// Of [`Protocol::ALL`].
    pub protocols: Vec<u64>,
    /// Of [`Trouble::ALL`]; none in many worlds.
    pub faults: Vec<u64>,
    /// The longest pause between two calls of a client.
    pub pause: Duration,
    /// The same of an administrator.
    pub admin_pause: Duration,
    /// The same between two troubles with disks.
    pub fault_pause: Duration,
    /// Between two looks of the agent, if there is one.
    pub agent: Option<Duration>,
    /// Tunables of the daemon.
    pub tunables: &'static [(&'static str, &'static str)],
    /// Two verbs chosen most of the time.
    pub aim: Option<Aim>,
}

impl Swarm {
    /// Draws weights.
    pub fn draw(rng: &mut Rng) -> Swarm {
        let mut weights = |count: usize| -> Vec<u64> {
            let mut drawn: Vec<u64> =
                (0..count).map(|_| if rng.chance(0.35) { 0 } else { 1 + rng.below(8) }).collect();
            // The first kind makes the others possible.
            drawn[0] = drawn[0].max(2);
            drawn
        };
        let (posix, admin, volume) = (weights(posix::KINDS), weights(admin::KINDS), weights(volume::KINDS));
        let mut faults = weights(Trouble::ALL.len());
        if rng.chance(0.4) {
            faults.fill(0);
        }
        // The daemon looks after its disks every second.
        let longest = if faults.iter().any(|weight| *weight > 0) { 14 } else { 8 };
        let pause = Duration::from_micros(200 << rng.below(longest));
        let admin_pause = Duration::from_millis(5 << rng.below(9));
        let fault_pause = Duration::from_millis(5 << rng.below(11));
        let protocols = Protocol::ALL.map(|_| rng.below(4)).to_vec();
        // It looks less often than clients call.
        let agent = (pause * (2 << rng.below(4)) as u32).max(SHORTEST_LOOK);
        let agent = rng.chance(0.4).then_some(agent);
        let tunables = if rng.chance(0.3) { SMALL_TXGS } else { &[] };
        let aim = None;
        Swarm {
            posix,
            admin,
            volume,
            protocols,
            faults,
            pause,
            admin_pause,
            fault_pause,
            agent,
            tunables,
            aim,
        }
    }

    /// Aims at two verbs: all kinds are possible then, and pauses short.
    pub fn aim(&mut self, aim: Aim) {
        for weights in [&mut self.posix, &mut self.admin, &mut self.volume] {
            weights.iter_mut().for_each(|weight| *weight = (*weight).max(1));
        }
        if aim.count_of_administrators().1 > 0 {
            self.admin[admin::DEVICES] = self.admin.iter().sum();
        }
        (self.pause, self.admin_pause) = (Duration::from_millis(2), Duration::from_millis(10));
        self.aim = Some(aim);
    }

    /// A choice; most of the time one of the verbs that the world aims at.
    fn choose(&self, rng: &mut Rng, mut draw: impl FnMut(&mut Rng) -> Option<Action>) -> Option<Action> {
        if let Some(aim) = self.aim.filter(|_| rng.chance(AIMED)) {
            let is_aimed = |action: &Action| aim.has(verb_of(action));
            if let Some(aimed) = (0..DRAWS).find_map(|_| draw(rng).filter(is_aimed)) {
                return Some(aimed);
            }
        }
        draw(rng)
    }

    /// Leaves kinds of calls out.
    pub fn thin(&mut self, less: &Less) {
        for kind in &less.kinds {
            let weights = match kind.of {
                Group::Posix => &mut self.posix,
                Group::Volume => &mut self.volume,
                Group::Admin => &mut self.admin,
                Group::Fault => &mut self.faults,
            };
            weights.get_mut(kind.number as usize).into_iter().for_each(|weight| *weight = 0);
        }
    }

    /// Kinds of calls made.
    pub fn kinds(&self) -> Vec<Kind> {
        let groups = [
            (Group::Posix, &self.posix),
            (Group::Volume, &self.volume),
            (Group::Admin, &self.admin),
            (Group::Fault, &self.faults),
        ];
        let used = groups.into_iter().flat_map(|(of, weights)| {
            let used = (0..).zip(weights).filter(|(_, weight)| **weight > 0);
            used.map(move |(number, _)| Kind { of, number })
        });
        used.collect()
    }

    /// Disks do not fail.
    pub fn without_faults(mut self) -> Swarm {
        self.faults.fill(0);
        self
    }

    /// Whether disks fail.
    pub fn has_faults(&self) -> bool {
        self.faults.iter().any(|weight| *weight > 0)
    }

    /// Whether disks lie.
    pub fn has_lies(&self) -> bool {
        let mut kinds = Trouble::ALL.iter().zip(&self.faults);
        kinds.any(|(trouble, weight)| *weight > 0 && trouble.is_lie())
    }
}

impl Stage {
    /// Notes the written txgs.
    pub fn note_txgs(&self) {
        if let Some(pool) = self.daemon.pools.get(POOL) {
            self.scene.take_txgs(&pool.engine.load().kstats().txgs());
        }
    }

    fn note(&self, what: &str) {
        self.scene.note(&self.runtime, what);
    }

    /// Whether clients stop.
    fn is_over(&self) -> bool {
        self.scene.is_over()
    }

    async fn think(&self, rng: &mut Rng, most: Duration) {
        let most_ns = most.as_nanos() as u64;
        // Often none: calls of one client follow each other closely.
        let pause = if rng.chance(0.3) { 0 } else { rng.below(most_ns.max(1)) };
        self.runtime.sleep(Duration::from_nanos(pause)).await;
    }
}

/// Runs a client of files, or of volumes, until the world ends.
pub async fn run(stage: Stage, client: ClientId, of: Of) {
    let mut rng = stage.runtime.rng();
    let mut performer = Performer::new(stage.clone(), client);
    while !stage.is_over() {
        stage.think(&mut rng, stage.swarm.pause).await;
        let next = stage.swarm.choose(&mut rng, |rng| match of {
            Of::Files => {
                let (stage, performer) = (&stage, &performer);
                posix::Chooser { stage, client, rng, performer }.choose()
            }
            Of::Volumes => volume::next(&stage, client, rng),
        });
        if let Some(action) = next.filter(|_| stage.scene.takes(client)) {
            performer.perform(None, action).await;
        }
    }
}

/// The objects that a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// File systems.
    Files,
    /// Volumes.
    Volumes,
}

/// An index by weight.
fn choose(rng: &mut Rng, weights: &[u64]) -> usize {
    let mut at = rng.below(weights.iter().sum::<u64>().max(1));
    for (index, weight) in weights.iter().enumerate() {
        match at.checked_sub(*weight) {
            Some(rest) => at = rest,
            None => return index,
        }
    }
    0
}

/// One of them, at random.
pub(crate) fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> Option<&'a T> {
    let count = from.len() as u64;
    (count > 0).then(|| &from[rng.below(count) as usize])
}

/// Data that tells its writer; half of it is not compressible.
fn data(rng: &mut Rng, client: ClientId, number: u64, len: usize) -> Bytes {
    let mut data = format!("client {client} call {number} ").into_bytes().repeat(len / 12 + 1);
    data.truncate(len);
    if rng.chance(0.5) {
        let at = len / 4;
        rng.fill(&mut data[at..]);
    }
    data.into()
}

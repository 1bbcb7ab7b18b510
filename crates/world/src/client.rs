//! Clients: random programs from a seed.
//!
//! Idea: swarm testing. Each world draws weights for all kinds of calls, and many are zero, so that each
//! world does some things often rather than all things rarely.
//!
//! A client's own directory, `cN`, changes in the order of its calls. In `common`, calls of all clients
//! meet, and reads and writes stay within a page, since longer ones are not atomic in Linux either.
//!
//! Source: Groce and others, "Swarm testing" (2012).

pub mod admin;
pub mod perform;
pub mod posix;
pub mod volume;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_runtime::{Rng, Runtime};
use perform::Performer;

use crate::machine::daemon::Daemon;
use crate::model::ClientId;
use crate::scene::Scene;

/// The surroundings of a client.
#[derive(Clone)]
#[allow(missing_docs)] // as their types say
pub struct Stage {
    pub runtime: Runtime,
    pub daemon: Arc<Daemon>,
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
    /// The longest pause between two calls of a client.
    pub pause: Duration,
    /// The same of an administrator.
    pub admin_pause: Duration,
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
        let pause = Duration::from_micros(200 << rng.below(8));
        let admin_pause = Duration::from_millis(5 << rng.below(9));
        Swarm { posix, admin, volume, pause, admin_pause }
    }
}

impl Stage {
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
        let next = match of {
            Of::Files => {
                let (stage, rng, performer) = (&stage, &mut rng, &performer);
                posix::Chooser { stage, client, rng, performer }.choose()
            }
            Of::Volumes => volume::next(&stage, client, &mut rng),
        };
        if let Some(action) = next {
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

/// One of these.
fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> Option<&'a T> {
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

//! Hosts that share disks: one of them has the pool at a time.
//!
//! ```text
//!   life 1: host A creates the pool, with multihost=on; B tries to import it; A dies
//!   life 2: B finds it in use by A, takes it over (`zpool import -f`); A tries to import it ...
//! ```
//!
//! A host that dies has the pool in its record still. When it starts again after the other took the pool
//! over, it must leave that alone.

use cenote_engine::Host;
use cenote_runtime::Rng;

/// Hosts that share the disks.
const HOSTS: u64 = 2;
/// The share of worlds with several hosts.
const SHARED: f64 = 0.2;

/// Chooses the host of each life.
pub struct Hosts {
    rng: Rng,
    is_shared: bool,
}

impl Hosts {
    /// Those of a world.
    pub fn draw(seed: u64) -> Hosts {
        let mut rng = Rng::stream(seed, 8);
        Hosts { is_shared: rng.chance(SHARED), rng }
    }

    /// Whether there are several.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The host of the next life.
    pub fn of_next_life(&mut self) -> u64 {
        if self.is_shared { self.rng.below(HOSTS) } else { 0 }
    }
}

/// A host, as recorded in pools.
pub fn host(number: u64) -> Host {
    Host { id: 1 + number, name: format!("host{number}") }
}

/// The host that does not have the pool while this one has it.
pub fn other(host: u64) -> u64 {
    (host + 1) % HOSTS
}

//! Facts about a machine and its pools, as plain values, with a list of the missing ones.
//!
//! Facts come from `zpool`, `zfs`, kstats and SMART records: read from this machine ([`Facts::gather`]), from
//! Cenote's daemon on it ([`Facts::of_daemon`]), from recorded output ([`Facts::recorded`]) or from a result
//! ([`Facts::of_result`]). The rules judge them.
//!
//! Counters start at boot, at pool import or at mount; [`Facts::since`] gives their growth between two sets
//! of facts.

mod gather;
mod result;
mod workers;

use std::collections::BTreeMap;

pub use gather::Look;
pub use workers::{Bears, Workers, WorkersPoint, sweeps};

use crate::load::machine::Disk;
use crate::load::machine::zpool::{Class, Counters, Pool, Vdev};
use crate::load::sample::smart::{Smart, Trend};
use crate::load::samples::Missing;

/// Facts about a machine and its pools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// Seconds since 1970, UTC.
    pub unix_s: Option<u64>,
    /// Period that the counters cover, in seconds: since boot, or since earlier facts.
    pub counted_s: Option<f64>,
    /// Physical memory.
    pub memory_bytes: Option<u64>,
    /// Pools by name.
    pub pools: Vec<Pool>,
    /// The pools are open in Cenote's daemon, not the kernel: some remedies differ.
    pub is_of_daemon: bool,
    /// ARC counters (`arcstats`).
    pub arc: Option<Counters>,
    /// Disks of the machine.
    pub disks: Vec<Disk>,
    /// Disks under the leaves of pools, by leaf path.
    pub under: BTreeMap<String, Vec<String>>,
    /// SMART state of the disks.
    pub health: Vec<Health>,
    /// Measurements with different numbers of workers.
    pub workers: Vec<Workers>,
    /// Facts that could not be determined, with the reason.
    pub missing: Vec<Missing>,
}

/// SMART state of one disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// Disk name in `/dev`.
    pub disk: String,
    /// Current values.
    pub now: Smart,
    /// Trends, where earlier records exist.
    pub trends: Vec<Trend>,
}

impl Facts {
    /// Disks under a leaf vdev: several if it lies on an array.
    pub fn disks(&self, leaf: &Vdev) -> Vec<&Disk> {
        let names = leaf.path.as_ref().and_then(|path| self.under.get(path));
        names
            .into_iter()
            .flatten()
            .filter_map(|name| self.disks.iter().find(|disk| disk.name == *name))
            .collect()
    }

    /// Whether a pool's data lie on spinning disks: true if any disk spins, false if none does, None if
    /// unknown.
    pub fn rotational(&self, pool: &Pool) -> Option<bool> {
        let leaves = pool.class(Class::Normal).flat_map(Vdev::leaves);
        // A loop device always reports itself as non-rotational, so ask the last disk under it.
        let known: Vec<Option<bool>> = leaves.map(|leaf| self.disks(leaf).last()?.rotational).collect();
        if known.contains(&Some(true)) {
            Some(true)
        } else {
            known.iter().all(Option::is_some).then_some(false)
        }
    }

    /// Command that copies a snapshot of a pool to another pool.
    pub fn send_command(pool: &Pool, snapshot: &str) -> String {
        format!("zfs send -R {}@{snapshot} | zfs receive -d NEWPOOL", pool.name)
    }

    /// These facts with counters reduced to their growth since `earlier`. Counters that restarted in between
    /// (a pool imported again) count from 0.
    pub fn since(&self, earlier: &Facts) -> Facts {
        let mut facts = self.clone();
        facts.counted_s = self.counted_s.zip(earlier.counted_s).map(|(now, then)| (now - then).max(0.0));
        if let (Some(arc), Some(then)) = (&mut facts.arc, &earlier.arc) {
            // The other arcstats are states.
            subtract(arc, then, |name| name.ends_with("hits") || name.ends_with("misses"));
        }
        let datasets = |facts: &'_ Facts| -> BTreeMap<String, Counters> {
            let all = facts.pools.iter().flat_map(|pool| &pool.datasets);
            all.filter_map(|dataset| Some((dataset.name.clone(), dataset.counters.clone()?))).collect()
        };
        let then = datasets(earlier);
        for dataset in facts.pools.iter_mut().flat_map(|pool| &mut pool.datasets) {
            if let (Some(counters), Some(then)) = (&mut dataset.counters, then.get(&dataset.name)) {
                subtract(counters, then, |_| true);
            }
        }
        facts
    }
}

fn subtract(counters: &mut Counters, earlier: &Counters, counts: impl Fn(&str) -> bool) {
    for (name, value) in &mut counters.0 {
        if counts(name) {
            *value = value.checked_sub(earlier.or_zero(name)).unwrap_or(*value);
        }
    }
}

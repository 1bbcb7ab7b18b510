//! What is known of a machine and its pools, as plain values; and what could not be had.
//!
//! Facts come from the programs `zpool` and `zfs`, the kernel's kstats, SMART records: of this machine ([`Facts::gather`]), as somebody
//! recorded them ([`Facts::recorded`]), or from a result ([`Facts::of_result`]). Nothing here judges: that is for the rules.
//!
//! Counters count since the system started, the pool was imported or the file system mounted; [`Facts::since`] gives those of the
//! time between two looks.

mod gather;
mod result;
mod workers;

use std::collections::BTreeMap;

pub use gather::Look;
pub use workers::{Workers, WorkersPoint};

use crate::machine::Disk;
use crate::machine::zpool::{Class, Counters, Pool, Vdev};
use crate::sample::smart::{Smart, Trend};
use crate::samples::Missing;

/// What is known of a machine and its pools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// When: seconds since 1970, UTC.
    pub unix_s: Option<u64>,
    /// For how long the counters have counted, in seconds: since the system started, or since earlier facts.
    pub counted_s: Option<f64>,
    /// Memory of the machine, in bytes.
    pub memory_bytes: Option<u64>,
    /// The pools, by name.
    pub pools: Vec<Pool>,
    /// The ARC's counters (`arcstats`).
    pub arc: Option<Counters>,
    /// Disks of the machine.
    pub disks: Vec<Disk>,
    /// The disks under the leaves of pools, by the leaves' paths.
    pub under: BTreeMap<String, Vec<String>>,
    /// What disks say of themselves, and how that went.
    pub health: Vec<Health>,
    /// What was measured with different numbers of workers.
    pub workers: Vec<Workers>,
    /// What could not be had, and why.
    pub missing: Vec<Missing>,
}

/// What a disk says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// The disk's name in `/dev`.
    pub disk: String,
    /// What it says now.
    pub now: Smart,
    /// How its values went, as far as records of earlier days are there.
    pub trends: Vec<Trend>,
}

impl Facts {
    /// The disks under a leaf: more than one if it is on an array.
    pub fn disks(&self, leaf: &Vdev) -> Vec<&Disk> {
        let names = leaf.path.as_ref().and_then(|path| self.under.get(path));
        names
            .into_iter()
            .flatten()
            .filter_map(|name| self.disks.iter().find(|disk| disk.name == *name))
            .collect()
    }

    /// Whether a pool's data are on spinning disks: true if any is, false if none, None if that is not known.
    pub fn rotational(&self, pool: &Pool) -> Option<bool> {
        let leaves = pool.class(Class::Normal).flat_map(Vdev::leaves);
        // A loop device says that it does not spin, whatever its file lies on: the disk is the last of those under it.
        let known: Vec<Option<bool>> = leaves.map(|leaf| self.disks(leaf).last()?.rotational).collect();
        if known.contains(&Some(true)) {
            Some(true)
        } else {
            known.iter().all(Option::is_some).then_some(false)
        }
    }

    /// These facts, with counters of the time since `earlier` only. What was counted anew meanwhile (a pool imported again) counts from 0.
    pub fn since(&self, earlier: &Facts) -> Facts {
        let mut facts = self.clone();
        facts.counted_s = self.counted_s.zip(earlier.counted_s).map(|(now, then)| (now - then).max(0.0));
        if let (Some(arc), Some(then)) = (&mut facts.arc, &earlier.arc) {
            // The others of arcstats are states.
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

//! Allocation classes, and the turns of the metaslab groups within a class.
//!
//! Idea: each group of a class hands out a quantum in its turn. The quantum grows with the group's free
//! space, so vdevs of any size fill up together. Log blocks move to the next group each time; otherwise many
//! small log writes would wait for one vdev.
//!
//! Copies of a block go to consecutive vdevs, so that few pairs of vdevs hold all copies of any block.
//!
//! Locking: the rotor's mutex is held to read or advance the turn. Metaslab groups may be locked one at a
//! time under it, to read their free space, never the other way round.
//!
//! Source: OpenZFS `metaslab.c` (`metaslab_alloc_dva`), `zio.c` (`zio_alloc_zil`, `zio_dva_allocate`).

use super::AllocRequest;
use super::group::{MetaslabGroup, Spread};
use crate::config::VdevClass;
use cenote_format::blkptr::Dva;
use parking_lot::Mutex;
use std::sync::Arc;

/// The purpose of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AllocClass {
    /// Data, and everything without a better class.
    Normal,
    /// Intent logs, on log devices.
    Log,
    /// Intent logs, on metaslabs set aside by data vdevs.
    EmbeddedLog,
    /// Metadata and small blocks.
    Special,
    /// Deduplication tables.
    Dedup,
}

impl AllocClass {
    /// All classes.
    pub const ALL: [AllocClass; 5] = [
        AllocClass::Normal,
        AllocClass::Log,
        AllocClass::EmbeddedLog,
        AllocClass::Special,
        AllocClass::Dedup,
    ];

    /// A short name for display.
    pub fn name(self) -> &'static str {
        match self {
            AllocClass::Normal => "normal",
            AllocClass::Log => "log",
            AllocClass::EmbeddedLog => "embedded log",
            AllocClass::Special => "special",
            AllocClass::Dedup => "dedup",
        }
    }

    /// The class itself, then its fallbacks.
    pub(super) fn and_fallbacks(self) -> &'static [AllocClass] {
        use AllocClass::*;
        match self {
            Normal => &[Normal],
            Log => &[Log, EmbeddedLog, Normal],
            EmbeddedLog => &[EmbeddedLog, Normal],
            Special => &[Special, Normal],
            Dedup => &[Dedup, Normal],
        }
    }
}

/// The class of a vdev's metaslabs that are not set aside.
impl From<VdevClass> for AllocClass {
    fn from(class: VdevClass) -> AllocClass {
        match class {
            VdevClass::Normal => AllocClass::Normal,
            VdevClass::Log => AllocClass::Log,
            VdevClass::Special => AllocClass::Special,
            VdevClass::Dedup => AllocClass::Dedup,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Class {
    pub(super) groups: Vec<Arc<MetaslabGroup>>,
    rotor: Mutex<Rotor>,
}

#[derive(Debug, Default)]
struct Rotor {
    group: usize,
    used_bytes: u64,
    /// 0 until the turn begins.
    quantum_bytes: u64,
}

impl Class {
    pub(super) fn allocate(&self, request: &AllocRequest<'_>) -> Option<Vec<Dva>> {
        let present = request.beside.len();
        let mut copies = request.beside.to_vec();
        for _ in 0..request.copies {
            match self.allocate_one(request, &copies) {
                Some(dva) => copies.push(dva),
                None => {
                    self.take_back(&copies[present..], request);
                    return None;
                }
            }
        }
        Some(copies.split_off(present))
    }

    fn take_back(&self, copies: &[Dva], request: &AllocRequest<'_>) {
        for dva in copies {
            let taken = |group: &&Arc<MetaslabGroup>| {
                group.vdev == dva.vdev && group.unallocate(dva, request.txg).is_ok()
            };
            let found = self.groups.iter().find(taken);
            debug_assert!(found.is_some(), "{dva:?} was allocated here");
        }
    }

    /// On a vdev without a copy, else far from those on the same vdev, else anywhere.
    fn allocate_one(&self, request: &AllocRequest<'_>, others: &[Dva]) -> Option<Dva> {
        let first = self.first(request, others);
        let count = self.groups.len();
        let around = || {
            let circle = (0..count).map(move |step| (first + step) % count);
            circle.filter(|&at| {
                let group = &self.groups[at];
                group.allocates() && !request.avoid.contains(&group.vdev)
            })
        };
        let has_one = |at: &usize| others.iter().any(|other| other.vdev == self.groups[*at].vdev);
        let place = |at: usize, spread| {
            let dva = self.groups[at].allocate(request.psize, request.txg, spread, others)?;
            if others.is_empty() && request.near.is_none() {
                self.turn(at, dva.asize.0);
            }
            Some(dva)
        };
        let elsewhere = around().filter(|at| !has_one(at)).find_map(|at| place(at, Spread::Anywhere));
        elsewhere.or_else(|| {
            let mut spreads = Spread::ALL.into_iter();
            spreads.find_map(|spread| around().filter(has_one).find_map(|at| place(at, spread)))
        })
    }

    /// After the last copy, at the requested vdev, else at the rotor.
    fn first(&self, request: &AllocRequest<'_>, others: &[Dva]) -> usize {
        let position = |vdev| self.groups.iter().position(|group| group.vdev == vdev);
        let asked = match others.last() {
            Some(last) => position(last.vdev).map(|at| at + 1),
            None => request.near.and_then(position),
        };
        asked.unwrap_or_else(|| self.rotor.lock().group)
    }

    fn turn(&self, group: usize, asize: u64) {
        let mut rotor = self.rotor.lock();
        if rotor.group != group {
            *rotor = Rotor { group, ..Rotor::default() };
        }
        if rotor.quantum_bytes == 0 {
            rotor.quantum_bytes = self.quantum_bytes(group).max(1);
        }
        rotor.used_bytes += asize;
        let log = matches!(self.groups[group].class, AllocClass::Log | AllocClass::EmbeddedLog);
        if log || rotor.used_bytes >= rotor.quantum_bytes {
            *rotor = Rotor { group: (group + 1) % self.groups.len(), ..Rotor::default() };
        }
    }

    pub(super) fn largest_bytes(&self) -> u64 {
        let groups = self.groups.iter().filter(|group| group.allocates());
        groups.map(|group| group.largest_bytes()).max().unwrap_or(0)
    }

    pub(super) fn used_percent(&self) -> u64 {
        let (size, free) = self.groups.iter().fold((0, 0), |(size, free), group| {
            (size + u128::from(group.size_bytes()), free + u128::from(group.free_bytes()))
        });
        ((size - free) * 100).checked_div(size).unwrap_or(0) as u64
    }

    /// The group's share of the free space times the number of groups, applied to its aliquot.
    fn quantum_bytes(&self, at: usize) -> u64 {
        let free = |group: &MetaslabGroup| u128::from(group.free_bytes());
        let (mut groups, mut all_free) = (0, 0);
        for group in self.groups.iter().filter(|group| group.allocates()) {
            (groups, all_free) = (groups + 1, all_free + free(group));
        }
        let aliquot = u128::from(self.groups[at].aliquot_bytes());
        (aliquot * free(&self.groups[at]) * groups / (all_free + 1)) as u64
    }
}

//! The devices of a pool's leaves: tests, devices that do not answer, their queues and caches.
//!
//! `vdev/patience` detects unresponsive devices. Code above this crate decides whether to give them up.

pub(crate) mod identity;

use crate::pool::Pool;
use crate::second::SecondLevel;
use crate::vdev::leaf::Probe;
use crate::vdev::queue::QueueSettings;
use cenote_boxed::boxed;
use cenote_format::units::Guid;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The devices of a pool's leaves.
#[derive(Clone, Copy)]
pub struct Devices<'a>(&'a Pool);

impl Pool {
    /// The leaves' devices.
    pub fn devices(&self) -> Devices<'_> {
        Devices(self)
    }
}

impl<'a> Devices<'a> {
    /// Tests a leaf's device; `None` if the leaf is not in use.
    #[boxed]
    pub async fn probe(&self, leaf: Guid) -> Option<Probe> {
        let vdevs = self.0.tree().vdevs();
        let found = vdevs.leaves().iter().find(|one| one.guid == leaf && !one.is_away())?.clone();
        Some(found.probe().await)
    }

    /// Leaves whose reads or writes have failed since the last call, even if their errors were cleared.
    pub fn take_suspects(&self) -> BTreeSet<Guid> {
        let vdevs = self.0.tree().vdevs();
        vdevs.leaves().iter().filter(|leaf| leaf.take_suspicion()).map(|leaf| leaf.guid).collect()
    }

    /// Leaves in use with a slow operation, and its age.
    pub fn unanswering(&self) -> Vec<(Guid, Duration)> {
        let now = self.0.runtime().now();
        let vdevs = self.0.tree().vdevs();
        let leaves = vdevs.leaves().iter().filter(|leaf| !leaf.is_out_of_use());
        leaves.filter_map(|leaf| Some((leaf.guid, now - leaf.slow_since()?))).collect()
    }

    /// Gives up on an unresponsive leaf: it is out of use until its errors are cleared.
    pub fn give_up_on(&self, leaf: Guid) {
        self.0.tree().vdevs().leaves().iter().filter(|one| one.guid == leaf).for_each(|leaf| leaf.give_up());
    }

    /// Leaves given up on or timed out, which are out of use until their errors are cleared.
    pub fn hung(&self) -> Vec<Guid> {
        self.0.tree().vdevs().leaves().iter().filter(|leaf| leaf.is_hung()).map(|leaf| leaf.guid).collect()
    }

    /// Waits until responsive devices have finished all changes, even abandoned ones.
    #[boxed]
    pub async fn idle(&self) {
        self.0.tree().vdevs().idle().await;
    }

    /// Sets whether resilvers prefer to read this leaf.
    pub fn set_read_first(&self, leaf: Guid, is_first: bool) {
        let vdevs = self.0.tree().vdevs();
        let leaves = vdevs.leaves().iter().filter(|one| one.guid == leaf);
        leaves.for_each(|one| one.set_read_first(is_first));
    }

    /// Settings of the queues.
    pub fn queue_settings(&self) -> &'a QueueSettings {
        self.0.tree().settings()
    }

    /// Adds a second-level cache for users' reads.
    pub fn set_second_level(&self, second: Arc<dyn SecondLevel>) {
        *self.0.second().write() = Some(second);
    }
}

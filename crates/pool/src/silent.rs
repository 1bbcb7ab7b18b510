//! Unresponsive devices, for the code that decides whether to give them up (`vdev/patience`).

use crate::pool::Pool;
use cenote_format::units::Guid;
use std::time::Duration;

impl Pool {
    /// Leaves in use with a slow operation, and its age.
    pub fn unanswering(&self) -> Vec<(Guid, Duration)> {
        let now = self.runtime().now();
        let vdevs = self.tree().vdevs();
        let leaves = vdevs.leaves().iter().filter(|leaf| !leaf.is_out_of_use());
        leaves.filter_map(|leaf| Some((leaf.guid, now - leaf.slow_since()?))).collect()
    }

    /// Gives up on an unresponsive leaf: it is out of use until its errors are cleared.
    pub fn give_up_on(&self, leaf: Guid) {
        self.tree().vdevs().leaves().iter().filter(|one| one.guid == leaf).for_each(|leaf| leaf.give_up());
    }

    /// Leaves given up on or timed out, which are out of use until their errors are cleared.
    pub fn hung_leaves(&self) -> Vec<Guid> {
        self.tree().vdevs().leaves().iter().filter(|leaf| leaf.is_hung()).map(|leaf| leaf.guid).collect()
    }
}

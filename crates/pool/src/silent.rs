//! Devices that do not answer, as those see them who decide what becomes of them (`vdev/patience`).

use crate::pool::Pool;
use cenote_format::units::Guid;
use std::time::Duration;

impl Pool {
    /// Leaves in use that have not answered some operation for long, and how long that is.
    pub fn unanswering(&self) -> Vec<(Guid, Duration)> {
        let now = self.runtime().now();
        let vdevs = self.vdevs();
        let leaves = vdevs.leaves().iter().filter(|leaf| !leaf.is_out_of_use());
        leaves.filter_map(|leaf| Some((leaf.guid, now - leaf.slow_since()?))).collect()
    }

    /// Nobody waits any longer for a leaf that does not answer: it is out of use until errors are cleared.
    pub fn give_up_on(&self, leaf: Guid) {
        self.vdevs().leaves().iter().filter(|one| one.guid == leaf).for_each(|leaf| leaf.give_up());
    }

    /// Leaves whose devices did not answer an operation and are out of use until the pool is opened again.
    pub fn hung_leaves(&self) -> Vec<Guid> {
        self.vdevs().leaves().iter().filter(|leaf| leaf.is_hung()).map(|leaf| leaf.guid).collect()
    }
}

//! Space statistics of a metaslab, a vdev or a class.

use super::histogram::SizeHistogram;

/// Raw bytes, including parity. All unallocated space is allocatable.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Whole metaslabs.
    pub size_bytes: u64,
    /// Allocated or deferred.
    pub allocated_bytes: u64,
    /// Freed and not allocatable yet.
    pub deferred_bytes: u64,
    /// The largest allocatable range.
    pub largest_bytes: u64,
    /// Fragmentation of the free ranges, in percent.
    pub fragmentation_percent: u64,
    /// Free and deferred ranges by size.
    pub free_ranges: SizeHistogram,
}

impl Space {
    /// Allocatable bytes.
    pub fn free_bytes(&self) -> u64 {
        self.size_bytes - self.allocated_bytes
    }

    /// Weights fragmentation by free space (`metaslab_group_fragmentation`).
    pub(super) fn of_metaslabs(metaslabs: impl Iterator<Item = Space>) -> Space {
        Space::sum(metaslabs, |space| space.free_bytes() + space.deferred_bytes)
    }

    /// Weights fragmentation by size (`metaslab_class_fragmentation`).
    pub(super) fn of_vdevs(vdevs: impl Iterator<Item = Space>) -> Space {
        Space::sum(vdevs, |space| space.size_bytes)
    }

    fn sum(parts: impl Iterator<Item = Space>, weight: impl Fn(&Space) -> u64) -> Space {
        let (mut sum, mut weighted, mut weights) = (Space::default(), 0u128, 0u128);
        for part in parts {
            sum.size_bytes += part.size_bytes;
            sum.allocated_bytes += part.allocated_bytes;
            sum.deferred_bytes += part.deferred_bytes;
            sum.largest_bytes = sum.largest_bytes.max(part.largest_bytes);
            sum.free_ranges.merge(&part.free_ranges);
            weighted += u128::from(part.fragmentation_percent) * u128::from(weight(&part));
            weights += u128::from(weight(&part));
        }
        sum.fragmentation_percent = weighted.checked_div(weights).unwrap_or(0) as u64;
        sum
    }
}

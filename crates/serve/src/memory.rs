//! The memory of all open pools: how much they may hold together, and each of them.
//!
//! Idea: one target for cached blocks and for changes that are not on disk yet. It falls when the machine, or
//! the control group, has less left than is to be kept free, and rises again when there is more. What changes
//! take, or took in the last seconds, is taken from the caches, each of which gets an equal part of the rest.
//!
//! ```text
//!   least (zfs_arc_min) <= target <= most (zfs_arc_max, --memory)
//!   each cache: (target - changes in memory) / pools
//! ```
//!
//! Source: OpenZFS `arc.c` (`arc_reap_cb`, `arc_reduce_target_size`), `arc_os.c` of Linux
//! (`arc_default_max`, `arc_available_memory`), zfs(4).

use std::sync::Weak;
use std::time::Duration;

use cenote_runtime::Runtime;

use crate::pools::Pools;

/// How often the memory that is left is looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// A part of the target that goes whenever there is too little left (`zfs_arc_shrink_shift`).
const SHRINK_SHIFT: u32 = 7;

/// What bounds the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The most.
    pub most_bytes: u64,
    /// The least, however little is left.
    pub least_bytes: u64,
    /// What is to be left for others.
    pub keep_free_bytes: u64,
}

impl Bounds {
    /// OpenZFS's on a machine, or in a control group, with so much memory.
    pub fn of_machine(memory_bytes: u64) -> Bounds {
        const GIB: u64 = 1 << 30;
        Bounds {
            most_bytes: (memory_bytes / 8 * 5).max(memory_bytes.saturating_sub(GIB)),
            least_bytes: (memory_bytes / 32).max(32 << 20),
            keep_free_bytes: memory_bytes / 32,
        }
    }

    /// The target after this one, when pools hold so much and so much is left.
    pub(crate) fn next(&self, target_bytes: u64, held_bytes: u64, left_bytes: u64) -> u64 {
        let Bounds { most_bytes, least_bytes, keep_free_bytes } = *self;
        let next = match left_bytes.checked_sub(keep_free_bytes) {
            // A target that is above what is held would have to fall for nothing first.
            None => {
                let lacking = (keep_free_bytes - left_bytes) + (target_bytes >> SHRINK_SHIFT);
                target_bytes.min(held_bytes).saturating_sub(lacking)
            }
            // Half of it: others may want it at the same time.
            Some(room) => target_bytes.max(held_bytes.saturating_add(room / 2)),
        };
        next.clamp(least_bytes.min(most_bytes), most_bytes)
    }
}

/// Keeps what open pools hold within the memory that there is, as long as there are pools.
pub async fn keep_memory(runtime: Runtime, pools: Weak<Pools>) {
    while let Some(pools) = pools.upgrade() {
        pools.balance(runtime.available_memory_bytes());
        drop(pools);
        runtime.sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const BOUNDS: Bounds =
        Bounds { most_bytes: 1000 * MIB, least_bytes: 50 * MIB, keep_free_bytes: 100 * MIB };

    /// A machine with 1200 MiB, of which others use so much for so many seconds.
    fn run(target: &mut u64, held: &mut u64, others: u64, seconds: usize) -> u64 {
        for _ in 0..seconds {
            let left = (1200 * MIB).saturating_sub(*held + others);
            *target = BOUNDS.next(*target, *held, left);
            // Whatever pools may hold, they soon do.
            *held = *target;
        }
        (1200 * MIB).saturating_sub(*held + others)
    }

    #[test]
    fn it_goes_as_others_come_and_comes_back_as_they_go() {
        let (mut target, mut held) = (1000 * MIB, 0);
        run(&mut target, &mut held, 50 * MIB, 20);
        assert_eq!(held, 1000 * MIB);
        let left = run(&mut target, &mut held, 600 * MIB, 20);
        assert!((100 * MIB..130 * MIB).contains(&left), "{} MiB left", left / MIB);
        let left = run(&mut target, &mut held, 2000 * MIB, 20);
        assert_eq!((held, left), (50 * MIB, 0), "the least stays");
        run(&mut target, &mut held, 50 * MIB, 60);
        assert_eq!(held, 1000 * MIB);
    }

    #[test]
    fn one_look_is_enough_where_memory_runs_out_at_once() {
        let (mut target, mut held) = (1000 * MIB, 1000 * MIB);
        let left = run(&mut target, &mut held, 190 * MIB, 1);
        assert!(left >= 100 * MIB, "{} MiB left", left / MIB);
        // A target that nobody has used up falls, too.
        assert!(BOUNDS.next(1000 * MIB, 300 * MIB, 20 * MIB) < 220 * MIB);
    }

    #[test]
    fn bounds_are_those_of_openzfs() {
        let bounds = Bounds::of_machine(16 << 30);
        assert_eq!((bounds.most_bytes, bounds.least_bytes), (15 << 30, 512 << 20));
        assert_eq!(Bounds::of_machine(1 << 30).most_bytes, 640 << 20);
        assert_eq!(Bounds::of_machine(256 << 20).least_bytes, 32 << 20);
    }
}

//! The memory of all open pools: how much they may hold together, and each of them.
//!
//! Idea: one target for cached blocks and for changes that are not on disk yet. It falls when the machine, or
//! the control group, has less left than is to be kept free, and rises again when there is more. What changes
//! take, or took in the last seconds, is taken from the caches, each of which gets an equal part of the rest.
//! So is what the program takes beside both: requests under way, and what the allocator can't give back
//! because there is a block in use between two free ones. Thus the memory of the whole process is bounded.
//!
//! ```text
//!   least (zfs_arc_min) <= target <= most (zfs_arc_max, --memory)
//!   each cache: (target - changes in memory - what is taken beside, but for 64 MiB) / pools
//! ```
//!
//! Memory that is freed stays with the allocator for a few milliseconds, because most of it is used again.
//! While the process has more than it may, it is given back at once, which costs processor time.
//!
//! Source: OpenZFS `arc.c` (`arc_reap_cb`, `arc_reduce_target_size`), `arc_os.c` of Linux
//! (`arc_default_max`, `arc_available_memory`), zfs(4).

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cenote_runtime::Runtime;

use crate::pools::Pools;

/// How often memory is looked at.
const INTERVAL: Duration = Duration::from_millis(250);
/// Of the room that was taken lately, this part is given back each time.
const FADES: u64 = 64;
/// What the program may take beside what pools hold: code, threads, requests under way.
const BESIDE_BYTES: u64 = 64 << 20;
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

/// The most that was taken of late: it comes back as quickly as it went, and goes slowly.
#[derive(Debug, Default)]
pub(crate) struct Lately(AtomicU64);

impl Lately {
    /// So much is taken now. Called by one task at a time.
    pub(crate) fn note(&self, bytes: u64) -> u64 {
        let lately = self.0.load(Ordering::Relaxed);
        let lately = bytes.max(lately - lately.div_ceil(FADES));
        self.0.store(lately, Ordering::Relaxed);
        lately
    }
}

/// What of a target the caches can't have, because so much was taken beside what pools hold: half of it at
/// most, because smaller caches don't make the rest small.
pub(crate) fn held_back(target_bytes: u64, beside_bytes: u64) -> u64 {
    beside_bytes.saturating_sub(BESIDE_BYTES).min(target_bytes / 2)
}

/// Memory of this process, and what is left beside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) own_bytes: u64,
    pub(crate) left_bytes: u64,
}

impl Memory {
    /// Whether the process has more than pools may hold and is allowed beside it.
    pub(crate) fn is_over(&self, target_bytes: u64) -> bool {
        self.own_bytes > target_bytes.saturating_add(BESIDE_BYTES)
    }
}

/// Keeps what open pools hold within the memory that there is, as long as there are pools. `give_back` says
/// how the allocator goes on: with `true` it gives freed memory back at once.
pub async fn keep_memory(runtime: Runtime, pools: Weak<Pools>, give_back: impl Fn(bool) + Send) {
    let mut was_over = false;
    while let Some(pools) = pools.upgrade() {
        let (own_bytes, left_bytes) = (runtime.own_memory_bytes(), runtime.available_memory_bytes());
        let is_over = pools.balance(Memory { own_bytes, left_bytes });
        if is_over != was_over {
            give_back(is_over);
            was_over = is_over;
        }
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
    fn what_is_taken_beside_is_held_back_from_caches() {
        let held_back = |beside| held_back(1000 * MIB, beside * MIB) / MIB;
        assert_eq!([10, 64, 164, 2000].map(held_back), [0, 0, 100, 500]);
        let lately = Lately::default();
        assert_eq!(
            [lately.note(6400), lately.note(0), lately.note(6350), lately.note(7000)],
            [6400, 6300, 6350, 7000]
        );
        for _ in 0..2000 {
            lately.note(5);
        }
        assert_eq!(lately.note(0), 4);
        let over = |own| Memory { own_bytes: own * MIB, left_bytes: 0 }.is_over(500 * MIB);
        assert_eq!([500, 564, 565].map(over), [false, false, true]);
    }

    #[test]
    fn bounds_are_those_of_openzfs() {
        let bounds = Bounds::of_machine(16 << 30);
        assert_eq!((bounds.most_bytes, bounds.least_bytes), (15 << 30, 512 << 20));
        assert_eq!(Bounds::of_machine(1 << 30).most_bytes, 640 << 20);
        assert_eq!(Bounds::of_machine(256 << 20).least_bytes, 32 << 20);
    }
}

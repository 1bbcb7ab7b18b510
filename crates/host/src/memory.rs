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
//! Memory that is freed stays with the allocator for some seconds, because the next txg uses it again: new
//! pages have to be cleared by the kernel, which took a fifth of the time of writing. Near the target it is
//! given back within milliseconds, and above it at once ([`Freed`]). What it can't give back, because cached
//! blocks are scattered among it, comes free as they are moved closer together ([`gathering`]).
//!
//! Source: OpenZFS `arc.c` (`arc_reap_cb`, `arc_reduce_target_size`), `arc_os.c` of Linux
//! (`arc_default_max`, `arc_available_memory`), zfs(4).

mod gathering;

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cenote_runtime::{AbortOnDrop, Runtime};
use futures::FutureExt;

use crate::pools::Pools;
use gathering::Gathering;

/// How often memory is looked at.
const INTERVAL: Duration = Duration::from_millis(250);
/// Of the room that was taken lately, this part is given back each time.
const FADES: u64 = 64;
/// What the program may take beside what pools hold: code, threads, requests under way.
const BESIDE_BYTES: u64 = 64 << 20;
/// So near the target, as a part of it, freed memory goes back.
const NEAR_SHARE: u64 = 8;
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
    /// What is to happen to freed memory when pools may hold so much.
    pub(crate) fn freed(&self, target_bytes: u64) -> Freed {
        match self.own_bytes {
            own if own > target_bytes.saturating_add(BESIDE_BYTES) => Freed::GoesAtOnce,
            own if own > target_bytes - target_bytes / NEAR_SHARE => Freed::GoesSoon,
            _ => Freed::Kept,
        }
    }
}

/// How the memory of this process is divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Balance {
    /// What pools may hold.
    pub(crate) target_bytes: u64,
    /// What is taken beside what they hold.
    pub(crate) beside_bytes: u64,
}

/// What the allocator does with memory that was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freed {
    /// It is kept for some seconds: there is room.
    Kept,
    /// It goes back to the kernel unless it is used again within milliseconds.
    GoesSoon,
    /// It goes back at once: the process has more than pools may hold and is allowed beside it.
    GoesAtOnce,
}

/// Keeps what open pools hold within the memory that there is, as long as there are pools. `set_freed` tells
/// the allocator how to go on.
pub async fn keep_memory(runtime: Runtime, pools: Weak<Pools>, set_freed: impl Fn(Freed) + Send) {
    let (mut was, mut gathering) = (Freed::Kept, Gathering::default());
    set_freed(was);
    let mut task: Option<AbortOnDrop<()>> = None;
    while let Some(pools) = pools.upgrade() {
        let (own_bytes, left_bytes) = (runtime.own_memory_bytes(), runtime.available_memory_bytes());
        let memory = Memory { own_bytes, left_bytes };
        let balance = pools.balance(memory, was == Freed::Kept);
        if task.as_mut().is_some_and(|task| task.now_or_never().is_some()) {
            task = None;
        }
        // What was kept until now is beside, too, and is given back first.
        if task.is_none() && gathering.is_due(was, balance) {
            let (caches, own) = (pools.caches(), runtime.clone());
            let gather = async move {
                for cache in caches {
                    cache.gather(&own).await;
                }
            };
            task = Some(runtime.spawn(gather).abort_on_drop());
        }
        let freed = memory.freed(balance.target_bytes);
        if std::mem::replace(&mut was, freed) != freed {
            set_freed(freed);
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
    }

    #[test]
    fn freed_memory_goes_the_sooner_the_less_room_there_is() {
        let freed = |own| Memory { own_bytes: own * MIB, left_bytes: 0 }.freed(800 * MIB);
        let (kept, soon, at_once) = (Freed::Kept, Freed::GoesSoon, Freed::GoesAtOnce);
        assert_eq!([700, 701, 864, 865].map(freed), [kept, soon, soon, at_once]);
    }

    #[test]
    fn bounds_are_those_of_openzfs() {
        let bounds = Bounds::of_machine(16 << 30);
        assert_eq!((bounds.most_bytes, bounds.least_bytes), (15 << 30, 512 << 20));
        assert_eq!(Bounds::of_machine(1 << 30).most_bytes, 640 << 20);
        assert_eq!(Bounds::of_machine(256 << 20).least_bytes, 32 << 20);
    }
}

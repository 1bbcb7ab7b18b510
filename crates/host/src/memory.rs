//! Bounds the memory of all open pools.
//!
//! Idea: one target covers cached blocks and dirty data. It falls when the machine or control group has less
//! memory left than should stay free, and rises again later. The caches share it equally, after the recent
//! peak of dirty data and the program's other memory: requests in flight, and free memory that the allocator
//! cannot return between blocks in use. This bounds the whole process.
//!
//! ```text
//!   least (zfs_arc_min) <= target <= most (zfs_arc_max, --memory)
//!   each cache: (target - dirty data - other memory above 64 MiB) / pools
//! ```
//!
//! Freed memory stays with the allocator for some seconds, for the next txg: clearing new pages took the
//! kernel a fifth of the time of writing. Near the target it is returned within milliseconds, and above it at
//! once ([`Freed`]). Moving cached blocks closer together frees fragmented memory ([`gathering`]).
//!
//! Source: OpenZFS `arc.c` (`arc_reap_cb`, `arc_reduce_target_size`), `arc_os.c` of Linux (`arc_default_max`,
//! `arc_available_memory`), zfs(4).

mod gathering;

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cenote_runtime::{AbortOnDrop, Runtime};
use futures::FutureExt;

use crate::pools::Pools;
use gathering::Gathering;

const INTERVAL: Duration = Duration::from_millis(250);
/// A recent peak decays by this fraction per check.
const FADES: u64 = 64;
/// Allowance for memory beside the pools: code, threads, requests in flight.
const BESIDE_BYTES: u64 = 64 << 20;
/// Freed memory is returned within this fraction of the target.
const NEAR_SHARE: u64 = 8;
/// Minimum fraction by which the target shrinks (`zfs_arc_shrink_shift`).
const SHRINK_SHIFT: u32 = 7;

/// Bounds of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Upper bound.
    pub most_bytes: u64,
    /// Lower bound, even if memory is short.
    pub least_bytes: u64,
    /// Memory to keep free for other processes.
    pub keep_free_bytes: u64,
}

impl Bounds {
    /// OpenZFS's defaults for a machine or control group.
    pub fn of_machine(memory_bytes: u64) -> Bounds {
        const GIB: u64 = 1 << 30;
        Bounds {
            most_bytes: (memory_bytes / 8 * 5).max(memory_bytes.saturating_sub(GIB)),
            least_bytes: (memory_bytes / 32).max(32 << 20),
            keep_free_bytes: memory_bytes / 32,
        }
    }

    /// The next target.
    pub(crate) fn next(&self, target_bytes: u64, held_bytes: u64, left_bytes: u64) -> u64 {
        let Bounds { most_bytes, least_bytes, keep_free_bytes } = *self;
        let next = match left_bytes.checked_sub(keep_free_bytes) {
            // Start from the bytes held: lowering an unused target frees nothing.
            None => {
                let lacking = (keep_free_bytes - left_bytes) + (target_bytes >> SHRINK_SHIFT);
                target_bytes.min(held_bytes).saturating_sub(lacking)
            }
            // Half of the room: other processes may want it, too.
            Some(room) => target_bytes.max(held_bytes.saturating_add(room / 2)),
        };
        next.clamp(least_bytes.min(most_bytes), most_bytes)
    }
}

/// A recent peak, which decays slowly.
#[derive(Debug, Default)]
pub(crate) struct Lately(AtomicU64);

impl Lately {
    /// Notes the current value and returns the peak. Called by one task at a time.
    pub(crate) fn note(&self, bytes: u64) -> u64 {
        let lately = self.0.load(Ordering::Relaxed);
        let lately = bytes.max(lately - lately.div_ceil(FADES));
        self.0.store(lately, Ordering::Relaxed);
        lately
    }
}

/// Part of the target to withhold from the caches: at most half, since smaller caches do not shrink the rest.
pub(crate) fn held_back(target_bytes: u64, beside_bytes: u64) -> u64 {
    beside_bytes.saturating_sub(BESIDE_BYTES).min(target_bytes / 2)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) own_bytes: u64,
    pub(crate) left_bytes: u64,
}

impl Memory {
    pub(crate) fn freed(&self, target_bytes: u64) -> Freed {
        match self.own_bytes {
            own if own > target_bytes.saturating_add(BESIDE_BYTES) => Freed::GoesAtOnce,
            own if own > target_bytes - target_bytes / NEAR_SHARE => Freed::GoesSoon,
            _ => Freed::Kept,
        }
    }
}

/// Division of this process's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Balance {
    pub(crate) target_bytes: u64,
    pub(crate) beside_bytes: u64,
}

/// The allocator's treatment of freed memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freed {
    /// Kept for some seconds.
    Kept,
    /// Returned to the kernel unless reused within milliseconds.
    GoesSoon,
    /// Returned at once: the target and allowance are exceeded.
    GoesAtOnce,
}

/// Keeps open pools within the available memory while `pools` exists. `set_freed` configures the allocator.
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
        // Memory kept so far counts, too, and is returned first.
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

    /// Runs a machine of 1200 MiB, with memory used by other processes.
    fn run(target: &mut u64, held: &mut u64, others: u64, seconds: usize) -> u64 {
        for _ in 0..seconds {
            let left = (1200 * MIB).saturating_sub(*held + others);
            *target = BOUNDS.next(*target, *held, left);
            // Pools soon use the whole target.
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
        // An unused target falls, too.
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

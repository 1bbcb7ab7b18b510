//! The memory allocator.
//!
//! Idea: blocks are allocated and freed by the megabyte. The system allocator returns such memory to the
//! kernel each time, and the kernel zeroes every page of the next block: sequential reading then takes three
//! times the CPU time. So the allocator is mimalloc, with a delay before it returns freed memory. In a
//! command the delay is [`SOON_MS`]. A daemon keeps the blocks freed by one txg for the next, unless it nears
//! its memory limit (`cenote_host::memory`).
//!
//! `.cargo/config.toml` turns off mimalloc's 4 MiB pages for objects of 64 KiB and more. Each thread kept
//! several for each size, and a page with one cached block in it is not returned. The largest pages are then
//! eight slices of memory, for objects of at most one slice. A larger object has slices of its own, and one
//! slice more than it needs (`mi_arenas_page_singleton_alloc`): a record of 128 KiB took 192 KiB of slices of
//! 64 KiB, all of it memory where huge pages are used. So a slice is as large as a usual record.
//!
//! A verb that a daemon runs needs two megabytes here, for a few milliseconds. A quarter of that time went
//! into zeroing huge pages, and returning memory that the exit returns anyway. So the same file turns off
//! both, and makes the first arena small; [`for_long`] turns on huge pages for the others.
#![allow(unsafe_code)] // An option of a C library is set.

use cenote_host::memory::Freed;
use rustix::thread::disable_transparent_huge_pages;

/// Delay before freed memory is returned when memory is tight (mimalloc's default is 1 s).
const SOON_MS: std::ffi::c_long = 10;
/// The delay when there is memory to spare: one or two more txgs (`zfs_txg_timeout` is 5 s).
const KEPT_MS: std::ffi::c_long = 10_000;
// Options that the crate does not name.
/// `mi_option_purge_delay`.
const PURGE_DELAY: std::ffi::c_int = 15;
/// `mi_option_arena_reserve`, in KiB.
const ARENA_RESERVE: std::ffi::c_int = 23;
/// `mi_option_allow_thp`.
const ALLOW_THP: std::ffi::c_int = 43;
/// mimalloc's default.
const ARENA_KIB: std::ffi::c_long = 1 << 20;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sets the short delay. Call it before any thread starts.
pub fn give_back_soon() {
    // SAFETY: the option exists and takes a number; setting it is not thread-safe, but no thread runs yet.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, SOON_MS) };
}

/// Uses huge pages from now on, for a process that does not soon end. Call it before any thread starts.
pub fn for_long() {
    // SAFETY: the options exist and take numbers; setting them is not thread-safe, but no thread runs yet.
    unsafe {
        libmimalloc_sys::mi_option_set(ALLOW_THP, 1);
        libmimalloc_sys::mi_option_set(ARENA_RESERVE, ARENA_KIB);
    }
    // Kernels without huge pages refuse.
    disable_transparent_huge_pages(false).ok();
}

/// Sets the delay from now on. Unless it is `KEPT_MS`, memory already freed is returned at once.
pub fn set_freed(freed: Freed) {
    let delay_ms = match freed {
        Freed::Kept => KEPT_MS,
        Freed::GoesSoon => SOON_MS,
        Freed::GoesAtOnce => 0,
    };
    // SAFETY: the option exists. It is an aligned number, which other threads read before or after it is set.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, delay_ms) };
    if freed != Freed::Kept {
        // SAFETY: may be called by any thread at any time.
        unsafe { libmimalloc_sys::mi_collect(true) };
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn records_lie_side_by_side() {
        const RECORD_BYTES: usize = 128 << 10;
        let records: Vec<Vec<u8>> = (0..64).map(|_| Vec::with_capacity(RECORD_BYTES)).collect();
        let mut places: Vec<usize> = records.iter().map(|record| record.as_ptr().addr()).collect();
        places.sort_unstable();
        let without_gap = places.windows(2).filter(|pair| pair[1] - pair[0] == RECORD_BYTES).count();
        assert!(without_gap >= places.len() / 2, "{without_gap} of {}", places.len());
    }
}

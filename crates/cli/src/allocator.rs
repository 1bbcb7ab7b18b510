//! The memory allocator.
//!
//! Idea: blocks are allocated and freed by the megabyte. The system allocator returns such memory to the
//! kernel each time, and the kernel zeroes every page of the next block: sequential reading then takes three
//! times the CPU time. So the allocator is mimalloc, which returns freed memory late: in a command after
//! [`SOON_MS`]. A daemon keeps the blocks freed by one txg for the next, unless it nears its memory limit
//! (`cenote_host::memory`).
//!
//! `.cargo/config.toml` sets what mimalloc takes when it is compiled. It has no 4 MiB pages for objects of 64
//! KiB and more: one cached block keeps a page. Slices are as large as a usual record: a larger object gets
//! one slice too many (`mi_arenas_page_singleton_alloc`), 192 KiB for a record of 128 KiB. Huge pages, a
//! large first arena and memory returned at the exit took a quarter of a short verb's time; [`for_long`]
//! turns on huge pages for the others.
#![allow(unsafe_code)] // An option of a C library is set.

use cenote_host::memory::Freed;
use rustix::thread::disable_transparent_huge_pages;

/// Delay before freed memory is returned when memory is tight (mimalloc's default is 1 s).
const SOON_MS: std::ffi::c_long = 10;
/// The delay when there is memory to spare: one or two more txgs (`zfs_txg_timeout` is 5 s).
const KEPT_MS: std::ffi::c_long = 10_000;
// Options that the crate does not name: `mi_option_purge_delay`, `_arena_reserve` (in KiB), `_allow_thp`.
const PURGE_DELAY: std::ffi::c_int = 15;
const ARENA_RESERVE: std::ffi::c_int = 23;
const ALLOW_THP: std::ffi::c_int = 43;

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
        libmimalloc_sys::mi_option_set(ARENA_RESERVE, 1 << 20); // mimalloc's default
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
#[test]
fn records_lie_side_by_side() {
    let records: Vec<Vec<u8>> = (0..64).map(|_| Vec::with_capacity(128 << 10)).collect();
    let places: std::collections::BTreeSet<usize> = records.iter().map(|it| it.as_ptr().addr()).collect();
    let beside = places.iter().filter(|place| places.contains(&(*place + (128 << 10)))).count();
    assert!(beside >= 32, "{beside} of 64");
}

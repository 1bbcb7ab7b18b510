//! A counting allocator: current and peak allocation in bytes.
//!
//! Locking: none; the counters are relaxed atomics for the whole process. Peaks are exact because the driver
//! parses on one thread, and its watchdog does not allocate meanwhile.
#![allow(unsafe_code)] // GlobalAlloc is an unsafe trait; every call goes unchanged to the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator, counted.
pub struct Counting;

static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

fn grow(bytes: usize) {
    let held = HELD_BYTES.fetch_add(bytes, Relaxed) + bytes;
    PEAK_BYTES.fetch_max(held, Relaxed);
}

// SAFETY: forwards to `System`; counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // The caller keeps the promises that `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as above. Kept apart so that large zeroed blocks stay untouched pages.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs `work` and returns by how many bytes the peak exceeded the allocation before.
pub fn peak_of(work: impl FnOnce()) -> usize {
    let before = HELD_BYTES.load(Relaxed);
    PEAK_BYTES.store(before, Relaxed);
    work();
    PEAK_BYTES.load(Relaxed).saturating_sub(before)
}

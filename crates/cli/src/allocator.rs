//! The memory allocator.
//!
//! Idea: blocks are allocated and freed by the megabyte. The system allocator returns such memory to the
//! kernel each time, and the kernel zeroes every page of the next block: sequential reading then takes three
//! times the CPU time. So it is mimalloc, told when to give back what nobody takes again. A command keeps it
//! for [`SOON_MS`]. A daemon has room most of the time, and keeps what one txg frees for the next; it gives
//! back sooner as it comes near the memory that it was allowed (`cenote_host::memory`).
//!
//! `.cargo/config.toml` turns off its 4 MiB pages for objects of 64 KiB and more. Each thread had some of
//! them for each size, and a page with one cached block in it is not given back.
#![allow(unsafe_code)] // An option of a C library is set.

use cenote_host::memory::Freed;

/// How long freed memory is kept where it may be wanted (mimalloc's own value is a second).
const SOON_MS: std::ffi::c_long = 10;
/// The same where there is room: until another txg or two have been written (`zfs_txg_timeout` is 5 s).
const KEPT_MS: std::ffi::c_long = 10_000;
/// `mi_option_purge_delay`, which the crate does not name.
const PURGE_DELAY: std::ffi::c_int = 15;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sets how long freed memory is kept. To be called before any thread is started.
pub fn give_back_soon() {
    // SAFETY: the option exists and takes a number; setting it is not thread-safe, but no thread runs yet.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, SOON_MS) };
}

/// What happens to freed memory from now on. What is kept now goes back, unless it may stay.
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

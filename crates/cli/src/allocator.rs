//! The memory allocator.
//!
//! Idea: blocks are allocated and freed by the megabyte. The system allocator returns such memory to the
//! kernel each time, and the kernel zeroes every page of the next block: sequential reading then takes three
//! times the CPU time. So it is mimalloc, told to give back what nobody takes again within
//! [`PURGE_DELAY_MS`]: a daemon is to stay within the memory that it was allowed. While it has more, it pays
//! the price (`cenote_serve::memory`).
//!
//! `.cargo/config.toml` turns off its 4 MiB pages for objects of 64 KiB and more. Each thread had some of
//! them for each size, and a page with one cached block in it is not given back.
#![allow(unsafe_code)] // An option of a C library is set.

/// How long freed memory is kept (mimalloc's own value is a second).
const PURGE_DELAY_MS: std::ffi::c_long = 10;
/// `mi_option_purge_delay`, which the crate does not name.
const PURGE_DELAY: std::ffi::c_int = 15;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sets how long freed memory is kept. To be called before any thread is started.
pub fn give_back_soon() {
    // SAFETY: the option exists and takes a number; setting it is not thread-safe, but no thread runs yet.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS) };
}

/// Whether freed memory is given back at once, also what is kept now.
pub fn give_back_at_once(at_once: bool) {
    let delay = if at_once { 0 } else { PURGE_DELAY_MS };
    // SAFETY: the option exists. It is an aligned number, which other threads read before or after it is set.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, delay) };
    if at_once {
        // SAFETY: may be called by any thread at any time.
        unsafe { libmimalloc_sys::mi_collect(true) };
    }
}

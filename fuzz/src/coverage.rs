//! Code coverage of the cases, if built with LLVM's coverage counters (`fuzz/run --coverage`).
//!
//! Idea: the compiler gives each edge between basic blocks a one-byte counter, and the program registers the
//! counters with [`__sanitizer_cov_8bit_counters_init`] at startup. A case is worth mutating further if it
//! passes an edge in a new class of counts (once, twice, up to 4, 8 ...). Without counters nothing is news,
//! and mutation is blind.
//!
//! Locking: instrumented code counts without locks or atomics. A lost or late count in another thread only
//! affects whether a case is kept.
//!
//! Source: LLVM's SanitizerCoverage (inline 8-bit counters); the classes are AFL's.
#![allow(unsafe_code)] // The counters come as two pointers from the compiler.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

static COUNTERS: OnceLock<&[AtomicU8]> = OnceLock::new();

/// Registers the counters from `start` to `stop`. Code added by the compiler calls this before `main`.
///
/// # Safety
/// Both point into one array that lives as long as the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sanitizer_cov_8bit_counters_init(start: *const AtomicU8, stop: *const AtomicU8) {
    // SAFETY: the caller says so.
    COUNTERS.get_or_init(|| unsafe { std::slice::from_raw_parts(start, stop.offset_from_unsigned(start)) });
}

/// Coverage so far: per edge, a bit for each class of counts.
pub struct Coverage {
    seen: Vec<u8>,
}

impl Coverage {
    /// Empty coverage; `None` if the program has no counters.
    pub fn new() -> Option<Coverage> {
        COUNTERS.get().map(|counters| Coverage { seen: vec![0; counters.len()] })
    }

    /// Adds coverage since the last call. Returns whether any of it is new.
    pub fn add(&mut self) -> bool {
        let mut is_news = false;
        drain(|edge, count| {
            let seen = &mut self.seen[edge];
            is_news |= *seen | class(count) != *seen;
            *seen |= class(count);
        });
        is_news
    }

    /// Discards coverage since the last call.
    pub fn skip(&self) {
        drain(|_, _| ());
    }

    /// Number of edges reached.
    pub fn edges(&self) -> usize {
        self.seen.iter().filter(|seen| **seen != 0).count()
    }
}

/// Takes all nonzero counters and calls `each` with index and count. Reads eight at a time, since there are
/// very many, and skips the few at the ends outside whole words.
fn drain(mut each: impl FnMut(usize, u8)) {
    let counters = COUNTERS.get().copied().unwrap_or_default();
    // SAFETY: any eight bytes are a number.
    let (_, words, _) = unsafe { counters.align_to::<AtomicU64>() };
    for (at, word) in words.iter().enumerate().filter(|(_, word)| word.load(Relaxed) != 0) {
        let counts = word.swap(0, Relaxed).to_ne_bytes();
        counts
            .into_iter()
            .enumerate()
            .filter(|(_, count)| *count != 0)
            .for_each(|(i, n)| each(8 * at + i, n));
    }
}

/// 1, 2, 3, 4 to 7, 8 to 15, 16 to 31, 32 to 127, more: one bit each.
fn class(count: u8) -> u8 {
    match count {
        0 => 0,
        1..=3 => 1 << (count - 1),
        4..=31 => 2 << count.ilog2(),
        32..=127 => 1 << 6,
        128.. => 1 << 7,
    }
}

#[cfg(test)]
mod tests {
    use super::class;

    #[test]
    fn classes_are_single_bits_in_order() {
        let classes: Vec<u8> = [1, 2, 3, 4, 8, 16, 32, 128].map(class).into();
        assert_eq!(classes, [1, 2, 4, 8, 16, 32, 64, 128]);
        assert!((1..=255).all(|count| class(count).is_power_of_two() && class(count) >= class(count - 1)));
    }
}

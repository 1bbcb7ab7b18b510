//! *Combine* with x86-64 vector extensions.
//!
//! One loop, four instruction sets. The loop takes a block of a few vectors, runs over the sources, and
//! keeps the sums of all targets in registers; each source byte is loaded once and each target byte
//! stored once. What differs is how a vector is multiplied by a factor:
//!
//! - by nibbles: two 16-entry tables of products, looked up with a byte shuffle, XORed;
//! - with GFNI: the factor as a bit matrix, applied by one instruction.
//!
//! A first target whose factors are all 1 (P, and a column rebuilt from P) skips the multiplication.
#![allow(unsafe_code)] // Vector loads and stores by pointer, and calls that need checked CPU features.

mod avx2;
mod avx512;

use super::combine::Term;
use super::portable;

/// An instruction set this module has a kernel for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extension {
    Avx512Gfni,
    Avx512,
    Avx2Gfni,
    Avx2,
}

impl Extension {
    /// All, the fastest first.
    pub(super) const ALL: [Extension; 4] =
        [Extension::Avx512Gfni, Extension::Avx512, Extension::Avx2Gfni, Extension::Avx2];

    pub(super) fn is_supported(self) -> bool {
        let avx2 = is_x86_feature_detected!("avx2");
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        let gfni = is_x86_feature_detected!("gfni");
        match self {
            Extension::Avx512Gfni => avx512 && gfni,
            Extension::Avx512 => avx512,
            Extension::Avx2Gfni => avx2 && gfni,
            Extension::Avx2 => avx2,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Extension::Avx512Gfni => "avx512+gfni",
            Extension::Avx512 => "avx512",
            Extension::Avx2Gfni => "avx2+gfni",
            Extension::Avx2 => "avx2",
        }
    }

    /// Writes all targets. All slices are equally long, and the processor has this extension; both are
    /// checked, because the loop below relies on them.
    pub(super) fn combine(self, targets: &mut [&mut [u8]], terms: &[Term<'_>]) {
        assert!(self.is_supported(), "{} is not available on this processor", self.name());
        let len = targets.first().map_or(0, |target| target.len());
        assert!(targets.iter().all(|target| target.len() == len), "targets differ in length");
        assert!(terms.iter().all(|term| term.bytes.len() == len), "sources differ in length");
        // SAFETY: the extension is supported, and all slices hold `len` bytes.
        let done = unsafe {
            match self {
                Extension::Avx512Gfni => avx512::combine_affine(targets, terms, len),
                Extension::Avx512 => avx512::combine_nibbles(targets, terms, len),
                Extension::Avx2Gfni => avx2::combine_affine(targets, terms, len),
                Extension::Avx2 => avx2::combine_nibbles(targets, terms, len),
            }
        };
        portable::combine(targets, terms, done);
    }
}

/// A vector register.
///
/// # Safety
/// Functions may only be called where the register's instruction set is enabled (they are inlined
/// there); pointers must be valid for `BYTES` bytes and need no alignment.
trait Register: Copy {
    const BYTES: usize;
    unsafe fn zero() -> Self;
    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut u8);
    unsafe fn add(self, other: Self) -> Self;
}

/// A way to multiply a vector by a factor.
///
/// # Safety
/// As [`Register`].
trait Multiplier {
    type Register: Register;
    /// A factor made ready.
    type Factor: Copy;
    /// A source made ready for several factors.
    type Source: Copy;
    unsafe fn factor(factor: u8) -> Self::Factor;
    unsafe fn source(vector: Self::Register) -> Self::Source;
    unsafe fn add_product(sum: Self::Register, source: Self::Source, factor: Self::Factor) -> Self::Register;
}

/// Combines as many whole vectors as fit and returns how many bytes that was. `N` vectors a block are
/// as many as the registers hold sums for.
///
/// # Safety
/// `M`'s instruction set is enabled in the caller, and all slices hold `len` bytes.
#[inline(always)]
unsafe fn run<M: Multiplier, const N: usize>(
    targets: &mut [&mut [u8]],
    terms: &[Term<'_>],
    len: usize,
) -> usize {
    let plain_first = terms.iter().all(|term| term.factors[0] == 1);
    // SAFETY: passed on from the caller.
    unsafe {
        match (targets, plain_first) {
            ([a], true) => rows::<M, 1, N, true>([a.as_mut_ptr()], terms, len),
            ([a], false) => rows::<M, 1, N, false>([a.as_mut_ptr()], terms, len),
            ([a, b], true) => rows::<M, 2, N, true>([a.as_mut_ptr(), b.as_mut_ptr()], terms, len),
            ([a, b], false) => rows::<M, 2, N, false>([a.as_mut_ptr(), b.as_mut_ptr()], terms, len),
            ([a, b, c], true) => {
                rows::<M, 3, N, true>([a.as_mut_ptr(), b.as_mut_ptr(), c.as_mut_ptr()], terms, len)
            }
            ([a, b, c], false) => {
                rows::<M, 3, N, false>([a.as_mut_ptr(), b.as_mut_ptr(), c.as_mut_ptr()], terms, len)
            }
            _ => 0,
        }
    }
}

/// [`run`] for `T` targets, the first of which is a plain sum if `PLAIN_FIRST`.
///
/// # Safety
/// As [`run`]; each target is valid for `len` bytes.
#[inline(always)]
unsafe fn rows<M: Multiplier, const T: usize, const N: usize, const PLAIN_FIRST: bool>(
    targets: [*mut u8; T],
    terms: &[Term<'_>],
    len: usize,
) -> usize {
    let mut at = 0;
    // SAFETY: passed on from the caller; a block is only taken while it ends within `len`.
    unsafe {
        while at + N * M::Register::BYTES <= len {
            block::<M, T, N, PLAIN_FIRST>(targets, terms, at);
            at += N * M::Register::BYTES;
        }
        while at + M::Register::BYTES <= len {
            block::<M, T, 1, PLAIN_FIRST>(targets, terms, at);
            at += M::Register::BYTES;
        }
    }
    at
}

/// `N` vectors of every target, from byte `at` on.
///
/// # Safety
/// As [`rows`], and `at + N * M::Register::BYTES` is within all slices.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // Iterators over the matrix of sums keep it out of registers.
unsafe fn block<M: Multiplier, const T: usize, const N: usize, const PLAIN_FIRST: bool>(
    targets: [*mut u8; T],
    terms: &[Term<'_>],
    at: usize,
) {
    let first = usize::from(PLAIN_FIRST);
    // SAFETY: passed on from the caller.
    unsafe {
        let mut sums = [[M::Register::zero(); N]; T];
        for term in terms {
            let source = term.bytes.as_ptr().add(at);
            let mut factors = [M::factor(1); T];
            for t in first..T {
                factors[t] = M::factor(term.factors[t]);
            }
            for n in 0..N {
                let vector = M::Register::load(source.add(n * M::Register::BYTES));
                let prepared = M::source(vector);
                if PLAIN_FIRST {
                    sums[0][n] = sums[0][n].add(vector);
                }
                for t in first..T {
                    sums[t][n] = M::add_product(sums[t][n], prepared, factors[t]);
                }
            }
        }
        for t in 0..T {
            for n in 0..N {
                sums[t][n].store(targets[t].add(at + n * M::Register::BYTES));
            }
        }
    }
}

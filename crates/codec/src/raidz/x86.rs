//! *Combine* with x86-64 vector extensions.
//!
//! One loop serves four instruction sets. For a block of a few vectors, it runs over the sources and keeps
//! all targets' sums in registers: each source byte is loaded once, each target byte stored once.
//! Multiplication of a vector by a factor differs:
//!
//! - by nibbles: two 16-entry product tables, looked up with a byte shuffle, XORed;
//! - with GFNI: the factor as a bit matrix, applied by one instruction.
//!
//! A first target with all factors 1 (P, and a column rebuilt from P) needs no multiplication.
#![allow(unsafe_code)] // Vector loads and stores by pointer, and calls that need checked CPU features.

mod tables;

use std::arch::x86_64::{__m256i, __m512i};
use std::marker::PhantomData;

use super::combine::Term;
use crate::Kernel;
use crate::kernel::InstructionSet;
use crate::register::Register;

/// Combines the whole vectors and returns their bytes. Checks that targets and sources have equal length,
/// because the loop relies on it.
pub(super) fn combine(kernel: Kernel, targets: &mut [&mut [u8]], terms: &[Term<'_>]) -> usize {
    let len = targets.first().map_or(0, |target| target.len());
    assert!(targets.iter().all(|target| target.len() == len), "targets differ in length");
    assert!(terms.iter().all(|term| term.bytes.len() == len), "sources differ in length");
    // SAFETY: a kernel exists only where its instruction set does, and all slices hold `len` bytes.
    unsafe {
        match kernel.instruction_set() {
            InstructionSet::Avx512Gfni => avx512_affine(targets, terms, len),
            InstructionSet::Avx512 => avx512_nibbles(targets, terms, len),
            InstructionSet::Avx2Gfni => avx2_affine(targets, terms, len),
            InstructionSet::Avx2 => avx2_nibbles(targets, terms, len),
            InstructionSet::Portable => 0,
        }
    }
}

/// [`run`] with an instruction set, a multiplier, and as many vectors per block as there are registers for
/// sums.
macro_rules! kernel {
    ($name:ident, $features:literal, $multiplier:ty, $vectors:literal) => {
        /// # Safety
        /// All slices hold `len` bytes.
        #[target_feature(enable = $features)]
        unsafe fn $name(targets: &mut [&mut [u8]], terms: &[Term<'_>], len: usize) -> usize {
            // SAFETY: passed on from the caller; the features are enabled here.
            unsafe { run::<$multiplier, $vectors>(targets, terms, len) }
        }
    };
}

kernel!(avx512_affine, "avx512f,avx512bw,gfni", Affine<__m512i>, 4);
kernel!(avx512_nibbles, "avx512f,avx512bw", Nibbles<__m512i>, 4);
kernel!(avx2_affine, "avx2,gfni", Affine<__m256i>, 4);
kernel!(avx2_nibbles, "avx2", Nibbles<__m256i>, 2);

/// Multiplication of a vector by a factor.
///
/// # Safety
/// As [`Register`].
trait Multiplier {
    type Register: Register;
    type Factor: Copy;
    /// Source prepared for several factors.
    type Source: Copy;
    unsafe fn factor(factor: u8) -> Self::Factor;
    unsafe fn source(vector: Self::Register) -> Self::Source;
    unsafe fn product(source: Self::Source, factor: Self::Factor) -> Self::Register;
}

/// `GF2P8AFFINEQB`: a factor is a bit matrix.
struct Affine<R>(PhantomData<R>);

impl<R: Register> Multiplier for Affine<R> {
    type Register = R;
    type Factor = R;
    type Source = R;

    #[inline(always)]
    unsafe fn factor(factor: u8) -> R {
        // SAFETY: the trait's contract.
        unsafe { R::splat(tables::BIT_MATRICES[usize::from(factor)]) }
    }

    #[inline(always)]
    unsafe fn source(vector: R) -> R {
        vector
    }

    #[inline(always)]
    unsafe fn product(source: R, factor: R) -> R {
        // SAFETY: the trait's contract.
        unsafe { source.times_matrix(factor) }
    }
}

/// `PSHUFB`: a factor is its products with low and high nibbles.
struct Nibbles<R>(PhantomData<R>);

impl<R: Register> Multiplier for Nibbles<R> {
    type Register = R;
    type Factor = [R; 2];
    type Source = [R; 2];

    #[inline(always)]
    unsafe fn factor(factor: u8) -> [R; 2] {
        let products = &tables::NIBBLE_PRODUCTS[usize::from(factor)];
        // SAFETY: the trait's contract.
        unsafe { [R::splat_bytes(&products.low), R::splat_bytes(&products.high)] }
    }

    #[inline(always)]
    unsafe fn source(vector: R) -> [R; 2] {
        // SAFETY: the trait's contract.
        unsafe {
            let mask = R::splat(0x0f0f_0f0f_0f0f_0f0f);
            [vector.and(mask), vector.shift_right(4).and(mask)]
        }
    }

    #[inline(always)]
    unsafe fn product([low, high]: [R; 2], [low_products, high_products]: [R; 2]) -> R {
        // SAFETY: the trait's contract.
        unsafe { low_products.shuffle(low).xor(high_products.shuffle(high)) }
    }
}

/// [`combine`] with `M`, taking `N` vectors per block.
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
                    sums[0][n] = sums[0][n].xor(vector);
                }
                for t in first..T {
                    sums[t][n] = sums[t][n].xor(M::product(prepared, factors[t]));
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

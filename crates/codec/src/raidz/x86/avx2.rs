//! *Combine* with AVX2, with and without GFNI.
#![allow(unsafe_code)] // As the parent module.

use std::arch::x86_64::*;

use super::super::{combine::Term, gf};
use super::{Multiplier, Register, run};

/// Multiplies with `GF2P8AFFINEQB`.
///
/// # Safety
/// All slices hold `len` bytes.
#[target_feature(enable = "avx2,gfni")]
pub(super) unsafe fn combine_affine(targets: &mut [&mut [u8]], terms: &[Term<'_>], len: usize) -> usize {
    // SAFETY: passed on from the caller; the features are enabled here.
    unsafe { run::<Affine, 4>(targets, terms, len) }
}

/// Multiplies by looking up nibbles with `PSHUFB`.
///
/// # Safety
/// All slices hold `len` bytes.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn combine_nibbles(targets: &mut [&mut [u8]], terms: &[Term<'_>], len: usize) -> usize {
    // SAFETY: passed on from the caller; the features are enabled here.
    unsafe { run::<Nibbles, 2>(targets, terms, len) }
}

impl Register for __m256i {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the trait's contract.
        unsafe { _mm256_storeu_si256(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm256_xor_si256(self, other) }
    }
}

struct Affine;

impl Multiplier for Affine {
    type Register = __m256i;
    /// The bit matrix of the factor in each 64-bit lane.
    type Factor = __m256i;
    type Source = __m256i;

    #[inline(always)]
    unsafe fn factor(factor: u8) -> __m256i {
        // SAFETY: the trait's contract.
        unsafe { _mm256_set1_epi64x(gf::BIT_MATRICES[usize::from(factor)] as i64) }
    }

    #[inline(always)]
    unsafe fn source(vector: __m256i) -> __m256i {
        vector
    }

    #[inline(always)]
    unsafe fn add_product(sum: __m256i, source: __m256i, factor: __m256i) -> __m256i {
        // SAFETY: the trait's contract.
        unsafe { _mm256_xor_si256(sum, _mm256_gf2p8affine_epi64_epi8::<0>(source, factor)) }
    }
}

struct Nibbles;

impl Multiplier for Nibbles {
    type Register = __m256i;
    /// Products of the low and of the high nibbles, the same in each 128-bit lane.
    type Factor = (__m256i, __m256i);
    /// The low and the high nibbles.
    type Source = (__m256i, __m256i);

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        let products = &gf::NIBBLE_PRODUCTS[usize::from(factor)];
        // SAFETY: the trait's contract; both tables hold 16 bytes.
        unsafe {
            let low = _mm_load_si128(products.low.as_ptr().cast());
            let high = _mm_load_si128(products.high.as_ptr().cast());
            (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
        }
    }

    #[inline(always)]
    unsafe fn source(vector: __m256i) -> Self::Source {
        // SAFETY: the trait's contract.
        unsafe {
            let mask = _mm256_set1_epi8(0x0f);
            let high = _mm256_srli_epi16::<4>(vector);
            (_mm256_and_si256(vector, mask), _mm256_and_si256(high, mask))
        }
    }

    #[inline(always)]
    unsafe fn add_product(sum: __m256i, source: Self::Source, factor: Self::Factor) -> __m256i {
        // SAFETY: the trait's contract.
        unsafe {
            let low = _mm256_shuffle_epi8(factor.0, source.0);
            let high = _mm256_shuffle_epi8(factor.1, source.1);
            _mm256_xor_si256(sum, _mm256_xor_si256(low, high))
        }
    }
}

//! *Combine* with AVX-512, with and without GFNI.
#![allow(unsafe_code)] // As the parent module.

use std::arch::x86_64::*;

use super::super::{combine::Term, gf};
use super::{Multiplier, Register, run};

/// Multiplies with `GF2P8AFFINEQB`.
///
/// # Safety
/// All slices hold `len` bytes.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) unsafe fn combine_affine(targets: &mut [&mut [u8]], terms: &[Term<'_>], len: usize) -> usize {
    // SAFETY: passed on from the caller; the features are enabled here.
    unsafe { run::<Affine, 4>(targets, terms, len) }
}

/// Multiplies by looking up nibbles with `PSHUFB`.
///
/// # Safety
/// All slices hold `len` bytes.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn combine_nibbles(targets: &mut [&mut [u8]], terms: &[Term<'_>], len: usize) -> usize {
    // SAFETY: passed on from the caller; the features are enabled here.
    unsafe { run::<Nibbles, 4>(targets, terms, len) }
}

impl Register for __m512i {
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the trait's contract.
        unsafe { _mm512_storeu_si512(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { _mm512_xor_si512(self, other) }
    }
}

struct Affine;

impl Multiplier for Affine {
    type Register = __m512i;
    /// The bit matrix of the factor in each 64-bit lane.
    type Factor = __m512i;
    type Source = __m512i;

    #[inline(always)]
    unsafe fn factor(factor: u8) -> __m512i {
        // SAFETY: the trait's contract.
        unsafe { _mm512_set1_epi64(gf::BIT_MATRICES[usize::from(factor)] as i64) }
    }

    #[inline(always)]
    unsafe fn source(vector: __m512i) -> __m512i {
        vector
    }

    #[inline(always)]
    unsafe fn add_product(sum: __m512i, source: __m512i, factor: __m512i) -> __m512i {
        // SAFETY: the trait's contract.
        unsafe { _mm512_xor_si512(sum, _mm512_gf2p8affine_epi64_epi8::<0>(source, factor)) }
    }
}

struct Nibbles;

impl Multiplier for Nibbles {
    type Register = __m512i;
    /// Products of the low and of the high nibbles, the same in each 128-bit lane.
    type Factor = (__m512i, __m512i);
    /// The low and the high nibbles.
    type Source = (__m512i, __m512i);

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        let products = &gf::NIBBLE_PRODUCTS[usize::from(factor)];
        // SAFETY: the trait's contract; both tables hold 16 bytes.
        unsafe {
            let low = _mm_load_si128(products.low.as_ptr().cast());
            let high = _mm_load_si128(products.high.as_ptr().cast());
            (_mm512_broadcast_i32x4(low), _mm512_broadcast_i32x4(high))
        }
    }

    #[inline(always)]
    unsafe fn source(vector: __m512i) -> Self::Source {
        // SAFETY: the trait's contract.
        unsafe {
            let mask = _mm512_set1_epi8(0x0f);
            let high = _mm512_srli_epi16::<4>(vector);
            (_mm512_and_si512(vector, mask), _mm512_and_si512(high, mask))
        }
    }

    #[inline(always)]
    unsafe fn add_product(sum: __m512i, source: Self::Source, factor: Self::Factor) -> __m512i {
        /// Truth table of a three-way XOR.
        const XOR: i32 = 0x96;
        // SAFETY: the trait's contract.
        unsafe {
            let low = _mm512_shuffle_epi8(factor.0, source.0);
            let high = _mm512_shuffle_epi8(factor.1, source.1);
            _mm512_ternarylogic_epi64::<XOR>(sum, low, high)
        }
    }
}

//! Vector registers of x86-64: one interface for AVX2 and AVX-512.
//!
//! Idea: a kernel is generic over [`Register`] and inlined into one function per instruction set, which
//! enables the features. There every method below is a single instruction.
#![allow(unsafe_code)] // Intrinsics, and loads and stores by pointer.

use std::arch::x86_64::*;

/// A vector register.
///
/// # Safety
/// Methods may only be called where the register's instruction set is enabled (they are inlined there);
/// pointers must be valid for [`Self::BYTES`] and need no alignment.
pub(crate) trait Register: Copy {
    const BYTES: usize = size_of::<Self>();
    unsafe fn zero() -> Self;
    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut u8);
    /// `word` in every 64-bit lane.
    unsafe fn splat(word: u64) -> Self;
    /// `bytes` in every 128-bit lane.
    unsafe fn splat_bytes(bytes: &[u8; 16]) -> Self;
    /// Sums of 64-bit lanes.
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    /// Shifts 64-bit lanes.
    unsafe fn shift_right(self, bits: u8) -> Self;
    /// Within each 128-bit lane, the bytes at `indices` (0 to 15).
    unsafe fn shuffle(self, indices: Self) -> Self;
    /// Each byte times the 8x8 bit matrix in its 64-bit lane. Needs GFNI.
    unsafe fn times_matrix(self, matrix: Self) -> Self;
}

macro_rules! register {
    ($register:ty, $zero:ident, $load:ident, $store:ident, $splat:ident, $splat_bytes:ident, $add:ident,
     $and:ident, $xor:ident, $shift_right:ident, $shuffle:ident, $times_matrix:ident) => {
        impl Register for $register {
            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the trait's contract.
                unsafe { $zero() }
            }

            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: the trait's contract.
                unsafe { $load(from.cast()) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: the trait's contract.
                unsafe { $store(to.cast(), self) }
            }

            #[inline(always)]
            unsafe fn splat(word: u64) -> Self {
                // SAFETY: the trait's contract.
                unsafe { $splat(word as i64) }
            }

            #[inline(always)]
            unsafe fn splat_bytes(bytes: &[u8; 16]) -> Self {
                // SAFETY: the trait's contract.
                unsafe { $splat_bytes(_mm_loadu_si128(bytes.as_ptr().cast())) }
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: the trait's contract.
                unsafe { $add(self, other) }
            }

            #[inline(always)]
            unsafe fn and(self, other: Self) -> Self {
                // SAFETY: the trait's contract.
                unsafe { $and(self, other) }
            }

            #[inline(always)]
            unsafe fn xor(self, other: Self) -> Self {
                // SAFETY: the trait's contract.
                unsafe { $xor(self, other) }
            }

            #[inline(always)]
            unsafe fn shift_right(self, bits: u8) -> Self {
                // SAFETY: the trait's contract.
                unsafe { $shift_right(self, _mm_cvtsi32_si128(i32::from(bits))) }
            }

            #[inline(always)]
            unsafe fn shuffle(self, indices: Self) -> Self {
                // SAFETY: the trait's contract.
                unsafe { $shuffle(self, indices) }
            }

            #[inline(always)]
            unsafe fn times_matrix(self, matrix: Self) -> Self {
                // SAFETY: the trait's contract.
                unsafe { $times_matrix::<0>(self, matrix) }
            }
        }
    };
}

register!(
    __m256i,
    _mm256_setzero_si256,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_set1_epi64x,
    _mm256_broadcastsi128_si256,
    _mm256_add_epi64,
    _mm256_and_si256,
    _mm256_xor_si256,
    _mm256_srl_epi64,
    _mm256_shuffle_epi8,
    _mm256_gf2p8affine_epi64_epi8
);

register!(
    __m512i,
    _mm512_setzero_si512,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_set1_epi64,
    _mm512_broadcast_i32x4,
    _mm512_add_epi64,
    _mm512_and_si512,
    _mm512_xor_si512,
    _mm512_srl_epi64,
    _mm512_shuffle_epi8,
    _mm512_gf2p8affine_epi64_epi8
);

//! Fletcher sums with AVX-512 and AVX2.
//!
//! fletcher4 takes a register of 32-bit words as two sets of 64-bit lanes, the even words (masked) and
//! the odd words (shifted down): cheaper than widening loads, and twice as many independent chains of
//! additions. fletcher2 adds whole registers. What does not fill a register goes to the portable code.
#![allow(unsafe_code)] // Vector loads and stores by pointer, and calls that need checked CPU features.

use std::arch::x86_64::*;

use super::lanes::join;

/// An instruction set this module has kernels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extension {
    Avx512,
    Avx2,
}

impl Extension {
    /// All, the fastest first.
    pub(super) const ALL: [Extension; 2] = [Extension::Avx512, Extension::Avx2];

    pub(super) fn is_supported(self) -> bool {
        match self {
            Extension::Avx512 => is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"),
            Extension::Avx2 => is_x86_feature_detected!("avx2"),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Extension::Avx512 => "avx512",
            Extension::Avx2 => "avx2",
        }
    }

    /// fletcher2 of as many whole registers as `data` holds, and the rest of it.
    pub(super) fn fletcher2(self, data: &[u8], byteswap: bool) -> ([u64; 4], &[u8]) {
        assert!(self.is_supported(), "{} is not available on this processor", self.name());
        // SAFETY: the processor has the extension.
        unsafe {
            match (self, byteswap) {
                (Extension::Avx512, false) => avx512_fletcher2::<false>(data),
                (Extension::Avx512, true) => avx512_fletcher2::<true>(data),
                (Extension::Avx2, false) => avx2_fletcher2::<false>(data),
                (Extension::Avx2, true) => avx2_fletcher2::<true>(data),
            }
        }
    }

    /// fletcher4 of as many whole registers as `data` holds, and the rest of it.
    pub(super) fn fletcher4(self, data: &[u8], byteswap: bool) -> ([u64; 4], &[u8]) {
        assert!(self.is_supported(), "{} is not available on this processor", self.name());
        // SAFETY: the processor has the extension.
        unsafe {
            match (self, byteswap) {
                (Extension::Avx512, false) => avx512_fletcher4::<false>(data),
                (Extension::Avx512, true) => avx512_fletcher4::<true>(data),
                (Extension::Avx2, false) => avx2_fletcher4::<false>(data),
                (Extension::Avx2, true) => avx2_fletcher4::<true>(data),
            }
        }
    }
}

/// Byte order within a 128-bit lane that swaps each 32-bit word.
const SWAP32: [u8; 16] = [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12];
/// Byte order within a 128-bit lane that swaps each 64-bit word.
const SWAP64: [u8; 16] = [7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8];

#[target_feature(enable = "avx512f,avx512bw")]
fn avx512_fletcher4<const BYTESWAP: bool>(data: &[u8]) -> ([u64; 4], &[u8]) {
    let (blocks, rest) = data.as_chunks::<64>();
    let order = _mm512_broadcast_i32x4(load128(&SWAP32));
    let low = _mm512_set1_epi64(0xffff_ffff);
    let mut even = [_mm512_setzero_si512(); 4];
    let mut odd = even;
    for block in blocks {
        let mut words = load512(block);
        if BYTESWAP {
            words = _mm512_shuffle_epi8(words, order);
        }
        accumulate512(&mut even, _mm512_and_si512(words, low));
        accumulate512(&mut odd, _mm512_srli_epi64::<32>(words));
    }
    let lanes = [0, 1, 2, 3].map(|sum| interleave::<8, 16>(lanes512(even[sum]), lanes512(odd[sum])));
    (join(&lanes), rest)
}

#[target_feature(enable = "avx512f,avx512bw")]
fn avx512_fletcher2<const BYTESWAP: bool>(data: &[u8]) -> ([u64; 4], &[u8]) {
    let (blocks, rest) = data.as_chunks::<64>();
    let order = _mm512_broadcast_i32x4(load128(&SWAP64));
    let mut sums = [_mm512_setzero_si512(); 2];
    for block in blocks {
        let mut words = load512(block);
        if BYTESWAP {
            words = _mm512_shuffle_epi8(words, order);
        }
        accumulate512(&mut sums, words);
    }
    (join_pairs::<8, 4>(sums.map(|sum| lanes512(sum))), rest)
}

#[target_feature(enable = "avx2")]
fn avx2_fletcher4<const BYTESWAP: bool>(data: &[u8]) -> ([u64; 4], &[u8]) {
    let (blocks, rest) = data.as_chunks::<32>();
    let order = _mm256_broadcastsi128_si256(load128(&SWAP32));
    let low = _mm256_set1_epi64x(0xffff_ffff);
    let mut even = [_mm256_setzero_si256(); 4];
    let mut odd = even;
    for block in blocks {
        let mut words = load256(block);
        if BYTESWAP {
            words = _mm256_shuffle_epi8(words, order);
        }
        accumulate256(&mut even, _mm256_and_si256(words, low));
        accumulate256(&mut odd, _mm256_srli_epi64::<32>(words));
    }
    let lanes = [0, 1, 2, 3].map(|sum| interleave::<4, 8>(lanes256(even[sum]), lanes256(odd[sum])));
    (join(&lanes), rest)
}

#[target_feature(enable = "avx2")]
fn avx2_fletcher2<const BYTESWAP: bool>(data: &[u8]) -> ([u64; 4], &[u8]) {
    let (blocks, rest) = data.as_chunks::<32>();
    let order = _mm256_broadcastsi128_si256(load128(&SWAP64));
    let mut sums = [_mm256_setzero_si256(); 2];
    for block in blocks {
        let mut words = load256(block);
        if BYTESWAP {
            words = _mm256_shuffle_epi8(words, order);
        }
        accumulate256(&mut sums, words);
    }
    (join_pairs::<4, 2>(sums.map(|sum| lanes256(sum))), rest)
}

/// Adds `words` to the first sum, that to the second, and so on.
#[inline]
#[target_feature(enable = "avx512f")]
fn accumulate512<const SUMS: usize>(sums: &mut [__m512i; SUMS], words: __m512i) {
    let mut carried = words;
    for sum in sums {
        *sum = _mm512_add_epi64(*sum, carried);
        carried = *sum;
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn accumulate256<const SUMS: usize>(sums: &mut [__m256i; SUMS], words: __m256i) {
    let mut carried = words;
    for sum in sums {
        *sum = _mm256_add_epi64(*sum, carried);
        carried = *sum;
    }
}

/// Puts lanes of even and of odd words in the order of the words.
fn interleave<const HALF: usize, const LANES: usize>(even: [u64; HALF], odd: [u64; HALF]) -> [u64; LANES] {
    std::array::from_fn(|lane| if lane % 2 == 0 { even[lane / 2] } else { odd[lane / 2] })
}

/// fletcher2 from sums over whole registers, whose words alternate between the two checksums.
fn join_pairs<const WORDS: usize, const PAIRS: usize>(sums: [[u64; WORDS]; 2]) -> [u64; 4] {
    let [[a0, b0], [a1, b1]] = [0, 1].map(|half| {
        join(&sums.map(|sum| -> [u64; PAIRS] { std::array::from_fn(|pair| sum[2 * pair + half]) }))
    });
    [a0, a1, b0, b1]
}

#[inline]
fn load128(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: 16 bytes are readable and the load needs no alignment; SSE2 is part of x86-64.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load512(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes are readable and the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load256(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes are readable and the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn lanes512(register: __m512i) -> [u64; 8] {
    let mut lanes = [0; 8];
    // SAFETY: 64 bytes are writable and the store needs no alignment.
    unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), register) };
    lanes
}

#[inline]
#[target_feature(enable = "avx2")]
fn lanes256(register: __m256i) -> [u64; 4] {
    let mut lanes = [0; 4];
    // SAFETY: 32 bytes are writable and the store needs no alignment.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), register) };
    lanes
}

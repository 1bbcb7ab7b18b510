//! Fletcher sums with AVX-512 and AVX2.
//!
//! fletcher4 splits a register of 32-bit words into two sets of 64-bit lanes: even words (masked) and odd
//! words (shifted down). This is cheaper than widening loads and doubles the independent chains of additions.
//! fletcher2 adds whole registers. The portable code sums the remaining words.
#![allow(unsafe_code)] // Vector loads and stores by pointer, and calls that need checked CPU features.

use std::arch::x86_64::{__m256i, __m512i};

use super::lanes::join;
use crate::Kernel;
use crate::kernel::InstructionSet;
use crate::register::Register;

/// Shuffle that swaps 32-bit words of a 128-bit lane.
const SWAP32: [u8; 16] = [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12];
/// Shuffle that swaps 64-bit words of a 128-bit lane.
const SWAP64: [u8; 16] = [7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8];

/// Defines a checksum over whole registers, which also returns the rest of the data: `$sum`, inlined for each
/// instruction set, with its numbers of 64-bit lanes and of lanes to join.
macro_rules! kernels {
    ($name:ident, $sum:ident, $avx512_joined:literal, $avx2_joined:literal) => {
        pub(super) fn $name(kernel: Kernel, data: &[u8], byteswap: bool) -> ([u64; 4], &[u8]) {
            #[target_feature(enable = "avx512f,avx512bw")]
            fn avx512<const BYTESWAP: bool>(data: &[u8]) -> ([u64; 4], &[u8]) {
                // SAFETY: the features are enabled here.
                unsafe { $sum::<__m512i, 64, 8, $avx512_joined, BYTESWAP>(data) }
            }

            #[target_feature(enable = "avx2")]
            fn avx2<const BYTESWAP: bool>(data: &[u8]) -> ([u64; 4], &[u8]) {
                // SAFETY: the features are enabled here.
                unsafe { $sum::<__m256i, 32, 4, $avx2_joined, BYTESWAP>(data) }
            }

            use InstructionSet::{Avx2, Avx2Gfni, Avx512, Avx512Gfni, Portable};
            // SAFETY: a kernel exists only where its instruction set does.
            unsafe {
                match (kernel.instruction_set(), byteswap) {
                    (Avx512Gfni | Avx512, false) => avx512::<false>(data),
                    (Avx512Gfni | Avx512, true) => avx512::<true>(data),
                    (Avx2Gfni | Avx2, false) => avx2::<false>(data),
                    (Avx2Gfni | Avx2, true) => avx2::<true>(data),
                    (Portable, _) => ([0; 4], data),
                }
            }
        }
    };
}

kernels!(fletcher2, sum2, 4, 2);
kernels!(fletcher4, sum4, 16, 8);

/// fletcher2 in registers of `BYTES` bytes or `LANES` words, which alternate between its two checksums.
///
/// # Safety
/// As [`Register`].
#[inline(always)]
unsafe fn sum2<
    R: Register,
    const BYTES: usize,
    const LANES: usize,
    const PAIRS: usize,
    const BYTESWAP: bool,
>(
    data: &[u8],
) -> ([u64; 4], &[u8]) {
    let (blocks, rest) = data.as_chunks::<BYTES>();
    // SAFETY: the caller's contract.
    let sums = unsafe {
        let mut sums = [R::zero(); 2];
        for block in blocks {
            accumulate(&mut sums, words::<R, BYTES, BYTESWAP>(block, &SWAP64));
        }
        lanes::<R, 2, LANES>(sums)
    };
    let of_half =
        |half: usize| sums.map(|sum| -> [u64; PAIRS] { std::array::from_fn(|i| sum[2 * i + half]) });
    let [[a0, b0], [a1, b1]] = [join(&of_half(0)), join(&of_half(1))];
    ([a0, a1, b0, b1], rest)
}

/// fletcher4 in registers of `BYTES` bytes or `WORDS` words, summed in twice `LANES` lanes.
///
/// # Safety
/// As [`Register`].
#[inline(always)]
unsafe fn sum4<
    R: Register,
    const BYTES: usize,
    const LANES: usize,
    const WORDS: usize,
    const BYTESWAP: bool,
>(
    data: &[u8],
) -> ([u64; 4], &[u8]) {
    let (blocks, rest) = data.as_chunks::<BYTES>();
    // SAFETY: the caller's contract.
    let (even, odd) = unsafe {
        let low = R::splat(0xffff_ffff);
        let (mut even, mut odd) = ([R::zero(); 4], [R::zero(); 4]);
        for block in blocks {
            let words = words::<R, BYTES, BYTESWAP>(block, &SWAP32);
            accumulate(&mut even, words.and(low));
            accumulate(&mut odd, words.shift_right(32));
        }
        (lanes::<R, 4, LANES>(even), lanes::<R, 4, LANES>(odd))
    };
    let mut in_order = [[0; WORDS]; 4];
    for (words, (even, odd)) in in_order.iter_mut().zip(even.iter().zip(&odd)) {
        for (pair, (even, odd)) in words.chunks_exact_mut(2).zip(even.iter().zip(odd)) {
            pair.copy_from_slice(&[*even, *odd]);
        }
    }
    (join(&in_order), rest)
}

/// A block as native words, with bytes in `swapped` order if `BYTESWAP`.
///
/// # Safety
/// As [`Register`].
#[inline(always)]
unsafe fn words<R: Register, const BYTES: usize, const BYTESWAP: bool>(
    block: &[u8; BYTES],
    swapped: &[u8; 16],
) -> R {
    const { assert!(BYTES == R::BYTES) };
    // SAFETY: the caller's contract; the block is as long as the register.
    unsafe {
        let words = R::load(block.as_ptr());
        if BYTESWAP { words.shuffle(R::splat_bytes(swapped)) } else { words }
    }
}

/// Adds `words` to the first sum, the first sum to the second, and so on.
///
/// # Safety
/// As [`Register`].
#[inline(always)]
unsafe fn accumulate<R: Register, const SUMS: usize>(sums: &mut [R; SUMS], words: R) {
    let mut carried = words;
    for sum in sums {
        // SAFETY: the caller's contract.
        *sum = unsafe { sum.add(carried) };
        carried = *sum;
    }
}

/// Lanes of each sum. A loop, because a closure would not have the instruction set enabled.
///
/// # Safety
/// As [`Register`].
#[inline(always)]
unsafe fn lanes<R: Register, const SUMS: usize, const LANES: usize>(sums: [R; SUMS]) -> [[u64; LANES]; SUMS] {
    const { assert!(LANES * size_of::<u64>() == R::BYTES) };
    let mut lanes = [[0u64; LANES]; SUMS];
    for (lanes, sum) in lanes.iter_mut().zip(sums) {
        // SAFETY: the caller's contract; the array is as long as the register.
        unsafe { sum.store(lanes.as_mut_ptr().cast()) };
    }
    lanes
}

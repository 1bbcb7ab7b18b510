//! *Combine* in plain Rust, eight bytes per `u64`; also for the bytes that vector kernels leave.
//!
//! Idea: the only multiplication is doubling, applied to sums, not to sources. Split by the bits of the
//! factors, a weighted sum is
//!
//! ```text
//!   (((S7·2 + S6)·2 + S5)·2 + ... )·2 + S0        Sb: sum of the sources whose factor has bit b
//! ```
//!
//! This takes seven doublings per target; the rest is XOR, which compilers vectorise.

use super::combine::Term;
use super::gf::POLYNOMIAL;

/// One sector.
const STRIP_WORDS: usize = 64;
const STRIP_BYTES: usize = STRIP_WORDS * 8;

type Strip = [u64; STRIP_WORDS];

/// Writes all targets from byte `start` on. All slices have equal length.
pub(super) fn combine(targets: &mut [&mut [u8]], terms: &[Term<'_>], start: usize) {
    for (row, target) in targets.iter_mut().enumerate() {
        let mut at = start;
        let rest = target.get_mut(start..).unwrap_or_default();
        for out in rest.chunks_mut(STRIP_BYTES) {
            store(&weighted_sum(row, terms, at, out.len()), out);
            at += out.len();
        }
    }
}

fn weighted_sum(row: usize, terms: &[Term<'_>], at: usize, len: usize) -> Strip {
    let all_bits = terms.iter().fold(0, |bits, term| bits | term.factors[row]);
    let mut sum = [0; STRIP_WORDS];
    for bit in (0..u8::BITS - all_bits.leading_zeros()).rev() {
        double(&mut sum);
        for term in terms.iter().filter(|term| term.factors[row] >> bit & 1 != 0) {
            add(&mut sum, &term.bytes[at..at + len]);
        }
    }
    sum
}

/// Doubles each byte: shift left, and reduce on overflow.
fn double(sum: &mut Strip) {
    const TOP_BITS: u64 = 0x8080_8080_8080_8080;
    const REDUCTION: u64 = u64::from_ne_bytes([POLYNOMIAL; 8]);
    for word in sum {
        let carries = *word & TOP_BITS;
        // 0xff in each byte with its top bit set.
        let mask = (carries << 1).wrapping_sub(carries >> 7);
        *word = (*word & !TOP_BITS) << 1 ^ mask & REDUCTION;
    }
}

fn add(sum: &mut Strip, bytes: &[u8]) {
    let (words, tail) = bytes.as_chunks::<8>();
    for (sum, word) in sum.iter_mut().zip(words) {
        *sum ^= u64::from_ne_bytes(*word);
    }
    if let Some(sum) = sum.get_mut(words.len()) {
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        *sum ^= u64::from_ne_bytes(last);
    }
}

fn store(sum: &Strip, out: &mut [u8]) {
    for (out, word) in out.chunks_mut(8).zip(sum) {
        out.copy_from_slice(&word.to_ne_bytes()[..out.len()]);
    }
}

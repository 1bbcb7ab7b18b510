//! A random order of the numbers below n, in constant memory: a Feistel network with cycle walking.
//!
//! A bitmap of visited blocks (fio's random map) costs a bit per block and, towards the end of a pass, long
//! searches. Instead, a number is split into two halves mixed into each other, which permutes all numbers
//! with as many bits as n needs. A result at or above n is fed back, fewer than two times on average. Source:
//! Black and Rogaway, "Ciphers with arbitrary finite domains", 2002. Secrecy is not required, so four light
//! rounds suffice.

use super::random::Random;

const ROUNDS: usize = 4;

#[derive(Debug, Clone)]
pub(crate) struct Permutation {
    n: u64,
    /// Bits of the right half; the left one has as many or one less.
    right_bits: u32,
    left_mask: u64,
    right_mask: u64,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// A random permutation of the numbers below `n`, which is at least 1.
    pub fn new(n: u64, random: &mut Random) -> Permutation {
        let bits = (u64::BITS - n.saturating_sub(1).leading_zeros()).max(2);
        let right_bits = bits.div_ceil(2);
        Permutation {
            n,
            right_bits,
            left_mask: (1 << (bits - right_bits)) - 1,
            right_mask: (1 << right_bits) - 1,
            keys: std::array::from_fn(|_| random.bits()),
        }
    }

    /// Image of `at`, which must be below n.
    #[inline]
    pub fn get(&self, at: u64) -> u64 {
        let mut value = at;
        loop {
            value = self.mix(value);
            if value < self.n {
                return value;
            }
        }
    }

    /// Halves stay in place and are changed in turn, so they may differ in length.
    #[inline]
    fn mix(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> self.right_bits, value & self.right_mask);
        for pair in self.keys.chunks_exact(2) {
            left ^= half(right, pair[0]) & self.left_mask;
            right ^= half(left, pair[1]) & self.right_mask;
        }
        (left << self.right_bits) | right
    }
}

/// 32 bits that depend on all of `value` and the key.
#[inline]
fn half(value: u64, key: u64) -> u64 {
    let product = (value ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product ^ (product >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

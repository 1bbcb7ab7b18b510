//! Random numbers: SplitMix64, a counter with scrambled values.
//!
//! The generators of the `rand` crate may change, but here a seed must always mean the same values. Source:
//! Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.

#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Stream number `stream` of `seed`.
    pub fn new(seed: u64, stream: u64) -> Random {
        Random(scramble(seed ^ scramble(stream.wrapping_add(1))))
    }

    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// A number below `bound`, or 0 if that is 0. Its bias is below `bound`/2^64, too small for any test
    /// here.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in [0, 1) with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

/// Spreads each bit over all.
#[inline]
pub(crate) fn scramble(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// `base` to the power of `exponent`, for random draws: `libm::pow` takes twice as long to be exact in the
/// last bit.
#[inline]
pub(super) fn power(base: f64, exponent: f64) -> f64 {
    libm::exp2(libm::log(base) * (exponent * std::f64::consts::LOG2_E))
}

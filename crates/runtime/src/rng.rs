//! A small random generator: xoshiro256++ seeded by SplitMix64 (Blackman and Vigna, public domain reference).
//!
//! A seed from a bug report must replay with a build made years later, so this is no library, and tests pin
//! the sequence to the published values.

/// A deterministic generator; not for secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Any seed is good, including zero.
    pub fn new(seed: u64) -> Rng {
        let mut x = seed;
        Rng { state: std::array::from_fn(|_| split_mix(&mut x)) }
    }

    /// A generator for one part, whose draws do not shift those of others.
    pub fn stream(seed: u64, part: u64) -> Rng {
        let mut x = part;
        Rng::new(seed ^ split_mix(&mut x))
    }

    /// The next number, uniform over all of `u64`.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let output = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        output
    }

    /// A number below `bound`, or zero. (Multiply-shift; its bias is under bound / 2^64.)
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True with this probability (0.0 never, 1.0 always).
    pub fn chance(&mut self, probability: f64) -> bool {
        // 53 random bits make a uniform number in [0, 1).
        ((self.next_u64() >> 11) as f64) * (1.0 / (1u64 << 53) as f64) < probability
    }

    /// Fills a buffer with random bytes.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

fn split_mix(x: &mut u64) -> u64 {
    *x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *x;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_is_the_published_one() {
        // Values of the reference implementations: SplitMix64 from zero, xoshiro256++ from the state 1, 2, 3,
        // 4.
        let mut x = 0;
        assert_eq!(split_mix(&mut x), 0xe220_a839_7b1d_cdaf);
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let drawn: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(drawn, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn bounds_and_chances_hold() {
        let mut rng = Rng::new(7);
        assert!((0..10_000).all(|_| rng.below(10) < 10));
        assert!((0..1000).all(|_| !rng.chance(0.0) && rng.chance(1.0)));
        let heads = (0..100_000).filter(|_| rng.chance(0.25)).count();
        assert!((24_000..26_000).contains(&heads), "{heads} of 100000 at 0.25");
    }
}

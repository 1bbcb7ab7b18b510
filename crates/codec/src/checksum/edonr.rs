//! Edon-R-512 (with the 2009 tweak), cut to 256 bits and keyed as in OpenZFS.
//!
//! Idea: the state is two rows of eight words, a block is two more. A quasigroup operation [`combine`] mixes
//! two rows into one; eight of them, in four layers, absorb a block. The digest is the state's second row.
//!
//! ```text
//!            block low  ─┐reversed high           state high ┐ state low
//!   layer 1  p = high' ∗ low        q = p ∗ high
//!   layer 2  p = state_high ∗ p     q = p ∗ q
//!   layer 3  p = p ∗ state_low      q = q ∗ p
//!   layer 4  p = low' ∗ p           q = p ∗ q
//!   state ^= (high, low) ^ (p, q)                 the tweak: feed forward
//! ```
//!
//! (`'` reverses a row.) Padding is a one bit, zeros and the length in bits, as in SHA-2.
//!
//! The salt is shorter than a block, so `H(salt) ‖ H(H(salt))` is absorbed first.
//!
//! Source: Edon-R submission to NIST's SHA-3 competition; OpenZFS `edonr_zfs.c` for the keying.

type Row = [u64; 8];

const BLOCK_BYTES: usize = 128;

/// Initial state: bytes 0x80, 0x81, ... 0xff, read big-endian.
const INITIAL: EdonrState = {
    let mut words = [0; 16];
    let mut i = 0;
    while i < 16 {
        words[i] = 0x8081_8283_8485_8687 + 0x0808_0808_0808_0808 * i as u64;
        i += 1;
    }
    let (low, high) = words.split_at(8);
    EdonrState { low: row(low), high: row(high) }
};

const fn row(words: &[u64]) -> Row {
    let mut row = [0; 8];
    row.copy_from_slice(words);
    row
}

#[derive(Clone, Copy)]
struct EdonrState {
    low: Row,
    high: Row,
}

/// State after the stretched salt.
#[derive(Clone)]
pub(super) struct Keyed(EdonrState);

impl Keyed {
    pub(super) fn new(salt: &[u8; 32]) -> Self {
        let once = finish(INITIAL, salt, 0);
        let twice = finish(INITIAL, &once, 0);
        let mut block = [0; BLOCK_BYTES];
        block[..64].copy_from_slice(&once);
        block[64..].copy_from_slice(&twice);
        Self(absorb(INITIAL, &block))
    }

    pub(super) fn hash(&self, data: &[u8]) -> [u8; 32] {
        let digest = finish(self.0, data, BLOCK_BYTES);
        std::array::from_fn(|i| digest[i])
    }
}

/// Absorbs `data` and padding after `before` bytes.
fn finish(mut state: EdonrState, data: &[u8], before: usize) -> [u8; 64] {
    let (blocks, tail) = data.as_chunks::<BLOCK_BYTES>();
    for block in blocks {
        state = absorb(state, block);
    }
    let mut padded = [0; 2 * BLOCK_BYTES];
    padded[..tail.len()].copy_from_slice(tail);
    padded[tail.len()] = 0x80;
    // The length takes the last eight bytes.
    let end = if tail.len() < BLOCK_BYTES - 8 { BLOCK_BYTES } else { 2 * BLOCK_BYTES };
    let bits = (before as u64 + data.len() as u64) * 8;
    padded[end - 8..end].copy_from_slice(&bits.to_le_bytes());
    for block in padded[..end].as_chunks::<BLOCK_BYTES>().0 {
        state = absorb(state, block);
    }

    let mut digest = [0; 64];
    for (bytes, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(state.high) {
        *bytes = word.to_le_bytes();
    }
    digest
}

fn absorb(state: EdonrState, block: &[u8; BLOCK_BYTES]) -> EdonrState {
    let (words, _) = block.as_chunks::<8>();
    let low: Row = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
    let high: Row = std::array::from_fn(|i| u64::from_le_bytes(words[8 + i]));

    let p = combine(&reversed(&high), &low);
    let q = combine(&p, &high);
    let p = combine(&state.high, &p);
    let q = combine(&p, &q);
    let p = combine(&p, &state.low);
    let q = combine(&q, &p);
    let p = combine(&reversed(&low), &p);
    let q = combine(&p, &q);

    EdonrState {
        low: std::array::from_fn(|i| state.low[i] ^ high[i] ^ p[i]),
        high: std::array::from_fn(|i| state.high[i] ^ low[i] ^ q[i]),
    }
}

fn reversed(row: &Row) -> Row {
    std::array::from_fn(|i| row[7 - i])
}

const CONSTANT: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// Quasigroup operation of order 2^512: for each side, eight rotated sums of five words, chosen by two Latin
/// squares, then XORs of three of each; finally both sides are added.
///
/// Unrolled, so that every word stays in a register.
#[inline(always)]
fn combine(x: &Row, y: &Row) -> Row {
    let sum = |words: [u64; 5]| words.into_iter().fold(0, u64::wrapping_add);

    let [x0, x1, x2, x3, x4, x5, x6, x7] = *x;
    let s0 = sum([x0, x1, x2, x4, x7]).wrapping_add(CONSTANT);
    let s1 = sum([x0, x1, x3, x4, x7]).rotate_left(5);
    let s2 = sum([x0, x1, x4, x6, x7]).rotate_left(15);
    let s3 = sum([x2, x3, x5, x6, x7]).rotate_left(22);
    let s4 = sum([x1, x2, x3, x5, x6]).rotate_left(31);
    let s5 = sum([x0, x2, x3, x4, x5]).rotate_left(40);
    let s6 = sum([x0, x1, x5, x6, x7]).rotate_left(50);
    let s7 = sum([x2, x3, x4, x5, x6]).rotate_left(59);

    let [y0, y1, y2, y3, y4, y5, y6, y7] = *y;
    let t0 = sum([y0, y1, y2, y5, y7]).wrapping_add(!CONSTANT);
    let t1 = sum([y0, y1, y3, y4, y6]).rotate_left(10);
    let t2 = sum([y0, y1, y2, y3, y5]).rotate_left(19);
    let t3 = sum([y2, y3, y4, y6, y7]).rotate_left(29);
    let t4 = sum([y0, y1, y3, y4, y5]).rotate_left(36);
    let t5 = sum([y2, y4, y5, y6, y7]).rotate_left(44);
    let t6 = sum([y1, y2, y5, y6, y7]).rotate_left(48);
    let t7 = sum([y0, y3, y4, y6, y7]).rotate_left(55);

    [
        (s0 ^ s1 ^ s4).wrapping_add(t0 ^ t1 ^ t5),
        (s0 ^ s4 ^ s7).wrapping_add(t2 ^ t6 ^ t7),
        (s1 ^ s6 ^ s7).wrapping_add(t0 ^ t1 ^ t3),
        (s2 ^ s3 ^ s4).wrapping_add(t0 ^ t3 ^ t4),
        (s0 ^ s1 ^ s7).wrapping_add(t1 ^ t2 ^ t5),
        (s3 ^ s5 ^ s6).wrapping_add(t3 ^ t4 ^ t6),
        (s2 ^ s5 ^ s6).wrapping_add(t2 ^ t5 ^ t7),
        (s2 ^ s3 ^ s5).wrapping_add(t4 ^ t6 ^ t7),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(data: &[u8]) -> String {
        finish(INITIAL, data, 0).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn agrees_with_the_digests_that_openzfs_tests() {
        assert_eq!(
            hex(b"abc"),
            "1b14db155f1d406594b8cef70a4362ec6b5de6a5daf50ec999e987c19d3049e2\
             de5977bb05b1bb220050a1ea5b46a9f1740acafbf6b45032adc90c628372c22b"
        );
        // 112 bytes.
        assert_eq!(
            hex(b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno\
                  ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
            "5351070dc51c3b2baca5a60d0252ccb4e4921a96fe5a69e76dad48fd21a0845a\
             d57f880b3e4a907bc503151842bb949e1cba7439a6409a34b8436cb46921583c"
        );
    }
}

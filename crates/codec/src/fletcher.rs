//! Fletcher checksums: two and four running sums over the words of a block.
//!
//! Idea: `a` sums the words, `b` sums the successive values of `a`, and so on, so that the order of the
//! words matters as well as their values. All sums wrap modulo 2^64.
//!
//! - [`fletcher2`] reads 64-bit words as two interleaved lanes: `[a0, a1, b0, b1]`.
//! - [`fletcher4`] reads 32-bit words as one lane with four sums: `[a, b, c, d]`.
//!
//! Words are read little-endian; with `byteswap` they are read big-endian, which is how a block written
//! on a big-endian machine is verified. The result is plain integers: the caller compares them with
//! words decoded in the byte order of the block pointer.
//!
//! A tail shorter than one group (16 bytes for fletcher2, 4 for fletcher4) is ignored, as the sizes of
//! all blocks are multiples of 512 bytes.
//!
//! Source: OpenZFS zfs_fletcher.c (theory comment).

/// fletcher2 over `data`: `[a0, a1, b0, b1]`.
#[must_use]
pub fn fletcher2(data: &[u8], byteswap: bool) -> [u64; 4] {
    if byteswap { sum2(data, u64::from_be_bytes) } else { sum2(data, u64::from_le_bytes) }
}

/// fletcher4 over `data`: `[a, b, c, d]`.
///
/// Picks the fastest implementation this machine has; all agree with [`portable_fletcher4`].
#[must_use]
pub fn fletcher4(data: &[u8], byteswap: bool) -> [u64; 4] {
    portable_fletcher4(data, byteswap)
}

/// fletcher4 in plain Rust: the definition that every vectorised kernel is tested against.
#[must_use]
pub fn portable_fletcher4(data: &[u8], byteswap: bool) -> [u64; 4] {
    if byteswap { sum4(data, u32::from_be_bytes) } else { sum4(data, u32::from_le_bytes) }
}

fn sum2(data: &[u8], word: impl Fn([u8; 8]) -> u64) -> [u64; 4] {
    let (words, _) = data.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    pairs.iter().fold([0u64; 4], |[a0, a1, b0, b1], &[even, odd]| {
        let a0 = a0.wrapping_add(word(even));
        let a1 = a1.wrapping_add(word(odd));
        [a0, a1, b0.wrapping_add(a0), b1.wrapping_add(a1)]
    })
}

fn sum4(data: &[u8], word: impl Fn([u8; 4]) -> u32) -> [u64; 4] {
    let (words, _) = data.as_chunks::<4>();
    words.iter().fold([0u64; 4], |[a, b, c, d], &bytes| {
        let a = a.wrapping_add(u64::from(word(bytes)));
        let b = b.wrapping_add(a);
        let c = c.wrapping_add(b);
        [a, b, c, d.wrapping_add(c)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_weigh_each_word_by_its_distance_from_the_end() {
        // Words 1, 2, 3: a = 6, b = 3*1 + 2*2 + 1*3, c and d with triangular and tetrahedral weights.
        let data: Vec<u8> = [1u32, 2, 3].iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(fletcher4(&data, false), [6, 10, 6 + 3 * 2 + 3, 10 + 4 * 2 + 3]);

        let data: Vec<u8> = [1u64, 10, 2, 20].iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(fletcher2(&data, false), [3, 30, 4, 40]);
    }

    #[test]
    fn byteswap_reads_the_same_words_from_the_other_byte_order() {
        let words: Vec<u64> = (0..64u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let little: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let big: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        assert_eq!(fletcher2(&little, false), fletcher2(&big, true));

        let little4: Vec<u8> = words.iter().flat_map(|w| (*w as u32).to_le_bytes()).collect();
        let big4: Vec<u8> = words.iter().flat_map(|w| (*w as u32).to_be_bytes()).collect();
        assert_eq!(fletcher4(&little4, false), fletcher4(&big4, true));
    }
}

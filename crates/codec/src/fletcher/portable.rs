//! The sums by definition, word by word. Also continues the vector kernels' sums over the remaining words.

pub(super) fn fletcher2(sums: [u64; 4], data: &[u8], byteswap: bool) -> [u64; 4] {
    match byteswap {
        false => sum2(sums, data, u64::from_le_bytes),
        true => sum2(sums, data, u64::from_be_bytes),
    }
}

pub(super) fn fletcher4(sums: [u64; 4], data: &[u8], byteswap: bool) -> [u64; 4] {
    match byteswap {
        false => sum4(sums, data, u32::from_le_bytes),
        true => sum4(sums, data, u32::from_be_bytes),
    }
}

fn sum2(sums: [u64; 4], data: &[u8], word: impl Fn([u8; 8]) -> u64) -> [u64; 4] {
    let (words, _) = data.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    pairs.iter().fold(sums, |[a0, a1, b0, b1], &[even, odd]| {
        let a0 = a0.wrapping_add(word(even));
        let a1 = a1.wrapping_add(word(odd));
        [a0, a1, b0.wrapping_add(a0), b1.wrapping_add(a1)]
    })
}

fn sum4(sums: [u64; 4], data: &[u8], word: impl Fn([u8; 4]) -> u32) -> [u64; 4] {
    let (words, _) = data.as_chunks::<4>();
    words.iter().fold(sums, |[a, b, c, d], &bytes| {
        let a = a.wrapping_add(u64::from(word(bytes)));
        let b = b.wrapping_add(a);
        let c = c.wrapping_add(b);
        [a, b, c, d.wrapping_add(c)]
    })
}

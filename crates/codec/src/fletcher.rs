//! Fletcher checksums: two and four running sums over a block's words.
//!
//! Idea: `a` sums the words, `b` sums the successive values of `a`, and so on, so the order of the words
//! matters. All sums wrap modulo 2^64.
//!
//! - [`fletcher2`] reads 64-bit words as two interleaved lanes: `[a0, a1, b0, b1]`.
//! - [`fletcher4`] reads 32-bit words as one lane with four sums: `[a, b, c, d]`.
//!
//! Words are little-endian, or big-endian with `byteswap`. The caller compares the results with words decoded
//! in the block pointer's byte order. A tail shorter than a word group (16 bytes for fletcher2, 4 for
//! fletcher4) is ignored: block sizes are multiples of 512 bytes.
//!
//! The definition is serial, but wide registers can compute it: interleaved lanes sum separately, and
//! constant weights join them at the end (module `lanes`). A [`Kernel`] is chosen at run time; words that do
//! not fill its registers go to module `portable`.
//!
//! Source: OpenZFS `zfs_fletcher.c` (theory comment).

#[cfg(target_arch = "x86_64")]
mod lanes;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::Kernel;

/// fletcher2 over `data`: `[a0, a1, b0, b1]`.
#[must_use]
pub fn fletcher2(data: &[u8], byteswap: bool) -> [u64; 4] {
    Kernel::best().fletcher2(data, byteswap)
}

/// fletcher4 over `data`: `[a, b, c, d]`.
#[must_use]
pub fn fletcher4(data: &[u8], byteswap: bool) -> [u64; 4] {
    Kernel::best().fletcher4(data, byteswap)
}

/// fletcher4 over joined parts; all but the last must have whole words.
#[must_use]
pub fn fletcher4_of_parts(parts: &[&[u8]], byteswap: bool) -> [u64; 4] {
    parts.iter().fold([0; 4], |sums, part| fletcher4_after(sums, part, byteswap))
}

/// Continues fletcher4 sums of earlier whole words over `data`.
///
/// `data` is summed alone. To continue from sums `[a, b, c, d]` over `n` more words, add the old sums'
/// contribution: to `b`, `n` times `a`; to `c`, `n` times `b` and the `n`-th triangular number times `a`; and
/// so on.
#[must_use]
pub fn fletcher4_after([a, b, c, d]: [u64; 4], data: &[u8], byteswap: bool) -> [u64; 4] {
    let [a2, b2, c2, d2] = fletcher4(data, byteswap);
    let n = (data.len() / 4) as u128;
    let triangular = (n * (n + 1) / 2) as u64;
    let tetrahedral = (n * (n + 1) * (n + 2) / 6) as u64;
    let n = n as u64;
    let times = u64::wrapping_mul;
    [
        a.wrapping_add(a2),
        b.wrapping_add(times(n, a)).wrapping_add(b2),
        c.wrapping_add(times(n, b)).wrapping_add(times(triangular, a)).wrapping_add(c2),
        d.wrapping_add(times(n, c))
            .wrapping_add(times(triangular, b))
            .wrapping_add(times(tetrahedral, a))
            .wrapping_add(d2),
    ]
}

impl Kernel {
    /// [`fletcher2`] with this kernel.
    #[must_use]
    pub fn fletcher2(self, data: &[u8], byteswap: bool) -> [u64; 4] {
        #[cfg(target_arch = "x86_64")]
        let (sums, data) = x86::fletcher2(self, data, byteswap);
        #[cfg(not(target_arch = "x86_64"))]
        let sums = [0; 4];
        portable::fletcher2(sums, data, byteswap)
    }

    /// [`fletcher4`] with this kernel.
    #[must_use]
    pub fn fletcher4(self, data: &[u8], byteswap: bool) -> [u64; 4] {
        #[cfg(target_arch = "x86_64")]
        let (sums, data) = x86::fletcher4(self, data, byteswap);
        #[cfg(not(target_arch = "x86_64"))]
        let sums = [0; 4];
        portable::fletcher4(sums, data, byteswap)
    }
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
    fn parts_sum_to_what_the_whole_does() {
        let data: Vec<u8> = (0..40_000u32).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
        for cuts in [&[][..], &[0], &[4], &[512, 4096], &[100, 100, 131_072]] {
            let mut parts = Vec::new();
            let mut rest = &data[..];
            for &cut in cuts {
                let (part, others) = rest.split_at(cut);
                parts.push(part);
                rest = others;
            }
            parts.push(rest);
            for byteswap in [false, true] {
                assert_eq!(fletcher4_of_parts(&parts, byteswap), fletcher4(&data, byteswap), "{cuts:?}");
            }
        }
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

    #[test]
    fn every_kernel_agrees_with_the_definition() {
        // Extreme and mixed words; every length around the register sizes, also at an odd address.
        let mixed = |i: u32| (i.wrapping_mul(0x9e37_79b9) >> 23) as u8;
        let bytes: Vec<u8> = (0..9000).map(|i| if i % 700 < 80 { 0xff } else { mixed(i) }).collect();
        let lengths = (0..400).chain([512, 4096, 8191, 8192]);
        for (len, start) in lengths.flat_map(|len| [(len, 0), (len, 1)]) {
            let data = &bytes[start..start + len];
            for byteswap in [false, true] {
                let two = portable::fletcher2([0; 4], data, byteswap);
                let four = portable::fletcher4([0; 4], data, byteswap);
                for kernel in Kernel::available() {
                    let what = format!("{}: {len} bytes from {start}, byteswap {byteswap}", kernel.name());
                    assert_eq!(kernel.fletcher2(data, byteswap), two, "fletcher2, {what}");
                    assert_eq!(kernel.fletcher4(data, byteswap), four, "fletcher4, {what}");
                }
            }
        }
    }
}

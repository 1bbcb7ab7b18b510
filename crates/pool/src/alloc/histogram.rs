//! Range sizes by powers of two, and the fragmentation they imply.

use cenote_format::space_map::SPACE_MAP_HISTOGRAM_SIZE;

/// `zfs_frag_table`: percent for a free range of 2^(9 + i) bytes; 0 for larger ones.
const FRAGMENTATION: [u64; 20] =
    [100, 99, 97, 93, 88, 83, 77, 71, 64, 57, 50, 43, 36, 29, 23, 17, 12, 7, 3, 1];

/// Element i counts ranges of 2^i to 2^(i+1) - 1 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeHistogram(pub [u64; 64]);

impl Default for SizeHistogram {
    fn default() -> SizeHistogram {
        SizeHistogram([0; 64])
    }
}

impl SizeHistogram {
    /// From a space map's histogram in units of `1 << shift` bytes.
    pub fn from_space_map(counts: &[u64; SPACE_MAP_HISTOGRAM_SIZE], shift: u32) -> SizeHistogram {
        let mut histogram = SizeHistogram::default();
        let buckets = histogram.0.iter_mut().skip(shift as usize);
        buckets.zip(counts).for_each(|(bucket, count)| *bucket = *count);
        histogram
    }

    /// To a space map's histogram in units of `1 << shift` bytes. A range beyond the last bucket counts as
    /// several of that bucket.
    pub fn to_space_map(&self, shift: u32) -> [u64; SPACE_MAP_HISTOGRAM_SIZE] {
        let mut counts = [0u64; SPACE_MAP_HISTOGRAM_SIZE];
        let last = SPACE_MAP_HISTOGRAM_SIZE - 1;
        for (order, &count) in self.0.iter().enumerate().skip(shift as usize) {
            let bucket = (order - shift as usize).min(last);
            counts[bucket] = counts[bucket].saturating_add(count << (order - shift as usize - bucket));
        }
        counts
    }

    /// Whether no ranges are counted.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 64]
    }

    /// Fragmentation in percent (`metaslab_set_fragmentation`).
    pub fn fragmentation_percent(&self) -> u64 {
        let (mut sum, mut total) = (0u128, 0u128);
        for (order, &count) in self.0.iter().enumerate() {
            // Each range counts with the power of two below its size.
            let space = u128::from(count) << order;
            total = total.saturating_add(space);
            let weight = FRAGMENTATION.get(order.saturating_sub(9)).copied().unwrap_or(0);
            sum = sum.saturating_add(space.saturating_mul(weight.into()));
        }
        sum.checked_div(total).unwrap_or(0) as u64
    }

    pub(crate) fn add(&mut self, len_bytes: u64) {
        self.0[len_bytes.max(1).ilog2() as usize] += 1;
    }

    pub(crate) fn sub(&mut self, len_bytes: u64) {
        self.0[len_bytes.max(1).ilog2() as usize] -= 1;
    }

    pub(crate) fn merge(&mut self, other: &SizeHistogram) {
        for (ours, theirs) in self.0.iter_mut().zip(other.0) {
            *ours += theirs;
        }
    }
}

/// Counts ranges given as (start, end).
impl FromIterator<(u64, u64)> for SizeHistogram {
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(ranges: T) -> SizeHistogram {
        let mut histogram = SizeHistogram::default();
        ranges.into_iter().for_each(|(start, end)| histogram.add(end - start));
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_free_ranges_are_fragmentation() {
        let of = |ranges: &[(usize, u64)]| {
            let mut histogram = SizeHistogram::default();
            ranges.iter().for_each(|&(order, count)| histogram.0[order] = count);
            histogram.fragmentation_percent()
        };
        assert_eq!([of(&[]), of(&[(23, 1)]), of(&[(9, 7)]), of(&[(30, 1)])], [0, 23, 100, 0]);
        // Half of the space in pieces of 4 KiB, half in one of 8 MiB.
        assert_eq!(of(&[(23, 1), (12, 1 << 11)]), (23 + 93) / 2);
    }

    #[test]
    fn ranges_beyond_a_space_maps_last_bucket_count_as_several() {
        let histogram: SizeHistogram =
            [(0, 512), (1024, 4096), (1 << 44, (1 << 44) + (5 << 42))].into_iter().collect();
        let counts = histogram.to_space_map(9);
        // Bucket 44 holds 5 * 2^42 bytes; a space map's last bucket is for 2^40.
        assert_eq!((counts[0], counts[2], counts[31]), (1, 1, 1 << 4));
        assert_eq!(SizeHistogram::from_space_map(&counts, 9).0[40], 16);
    }
}

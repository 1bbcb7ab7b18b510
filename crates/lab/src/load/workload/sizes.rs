//! The size of the next operation.

use super::random::Random;
use crate::load::job::BlockSizes;

#[derive(Debug)]
pub(super) struct Sizes {
    sizes: Vec<u32>,
    /// Sum of the weights up to and including this one.
    up_to: Vec<u64>,
    smallest: u32,
}

impl Sizes {
    pub fn new(sizes: &BlockSizes) -> Sizes {
        let smallest = sizes.0.iter().filter(|size| size.1 > 0).map(|size| size.0).min().unwrap_or(0);
        let mut sum = 0;
        let (sizes, up_to): (Vec<u32>, Vec<u64>) = sizes
            .0
            .iter()
            .filter(|size| size.1 > 0)
            .map(|&(bytes, weight)| {
                sum += u64::from(weight);
                (bytes, sum)
            })
            .unzip();
        Sizes { sizes, up_to, smallest }
    }

    /// Smallest; 0 if none.
    pub fn smallest(&self) -> u32 {
        self.smallest
    }

    #[inline]
    pub fn next(&self, random: &mut Random) -> u32 {
        match self.sizes[..] {
            [only] => only,
            _ => self.drawn(random),
        }
    }

    fn drawn(&self, random: &mut Random) -> u32 {
        let all = self.up_to.last().copied().unwrap_or(0);
        let drawn = random.below(all);
        let index = self.up_to.partition_point(|&up_to| up_to <= drawn);
        self.sizes.get(index).copied().unwrap_or(self.smallest)
    }
}

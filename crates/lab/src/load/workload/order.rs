//! The order in which the blocks of a region are visited.
//!
//! The hot blocks of Zipf and Pareto are scattered over the region by a permutation, which keeps the
//! distribution exact. (fio hashes ranks to blocks, so that some collide and others are left out.) Those of
//! the normal distribution lie around the middle.

use super::permutation::Permutation;
use super::random::{self, Random};
use super::zipf::Zipf;
use crate::load::job::{Distribution, Job};

/// Position of the next operation, in a region that starts at 0.
#[derive(Debug)]
pub(super) struct Order {
    region_bytes: u64,
    /// Random offsets are multiples of it.
    unit: u64,
    blocks: u64,
    /// End of the last operation.
    next: u64,
    course: Course,
}

#[derive(Debug)]
enum Course {
    /// Sequential, then again from the start.
    Sequential,
    /// Each block once in random order; then in another order.
    Shuffled { order: Permutation, at: u64 },
    /// Any block.
    Uniform,
    /// Block k with probability proportional to k^-theta.
    Zipf { ranks: Zipf, places: Permutation },
    /// Of n blocks, number n u^power with uniform u: the share h of blocks gets 1 - h of the operations.
    Pareto { power: f64, places: Permutation },
    /// Around the middle, with this standard deviation in blocks.
    Normal { deviation: f64 },
}

impl Order {
    /// For operations of at least `unit` bytes in a region large enough for one.
    pub fn new(job: &Job, region_bytes: u64, unit: u32, random: &mut Random) -> Order {
        let unit = u64::from(unit);
        let blocks = region_bytes / unit;
        let course = match job.distribution {
            _ if !job.pattern.random => Course::Sequential,
            Distribution::Random if job.no_random_map => Course::Uniform,
            Distribution::Random => Course::Shuffled { order: Permutation::new(blocks, random), at: 0 },
            Distribution::Zipf(theta) => {
                Course::Zipf { ranks: Zipf::new(blocks, theta), places: Permutation::new(blocks, random) }
            }
            Distribution::Pareto(h) => Course::Pareto {
                power: libm::log(h) / libm::log(1.0 - h),
                places: Permutation::new(blocks, random),
            },
            Distribution::Normal(percent) => Course::Normal { deviation: percent / 100.0 * blocks as f64 },
        };
        Order { region_bytes, unit, blocks, next: 0, course }
    }

    /// Offset and size of the next operation: `bytes` if they fit there, otherwise `smallest`.
    #[inline]
    pub fn next(&mut self, random: &mut Random, bytes: u32, smallest: u32) -> (u64, u32) {
        let offset = self.offset(random, smallest);
        let fits = u64::from(bytes) <= self.region_bytes - offset;
        let bytes = if fits { bytes } else { smallest };
        self.next = offset + u64::from(bytes);
        (offset, bytes)
    }

    #[inline]
    fn offset(&mut self, random: &mut Random, smallest: u32) -> u64 {
        let block = match &mut self.course {
            Course::Sequential => {
                let fits = u64::from(smallest) <= self.region_bytes - self.next;
                return if fits { self.next } else { 0 };
            }
            Course::Shuffled { order, at } => {
                if *at == self.blocks {
                    (*order, *at) = (Permutation::new(self.blocks, random), 0);
                }
                *at += 1;
                order.get(*at - 1)
            }
            Course::Uniform => random.below(self.blocks),
            Course::Zipf { ranks, places } => places.get(ranks.next(random)),
            Course::Pareto { power, places } => {
                let rank = (self.blocks as f64 * random::power(random.unit(), *power)) as u64;
                places.get(rank.min(self.blocks - 1))
            }
            Course::Normal { deviation } => normal(random, self.blocks, *deviation),
        };
        block * self.unit
    }
}

/// A block around the middle; draws outside are repeated.
fn normal(random: &mut Random, blocks: u64, deviation: f64) -> u64 {
    loop {
        let block = (blocks as f64 / 2.0 + gauss(random) * deviation).floor();
        if block >= 0.0 && block < blocks as f64 {
            return block as u64;
        }
    }
}

/// Mean 0, standard deviation 1: the sum of twelve uniform numbers minus six (Irwin-Hall), which deviates
/// from the normal distribution only in the far tails.
fn gauss(random: &mut Random) -> f64 {
    let mut sum = 0;
    for _ in 0..6 {
        let bits = random.bits();
        sum += (bits & 0xffff_ffff) + (bits >> 32);
    }
    sum as f64 / (1u64 << 32) as f64 - 6.0
}

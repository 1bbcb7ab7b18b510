//! Miss-ratio curves: the misses of a cache by its size, from one pass over a trace.
//!
//! - [`exact_lru`]: the reuse distance of each request, in bytes of other blocks used since; an LRU cache
//!   hits if it is at least that large. The distances come from a tree over the positions of last uses
//!   (Olken's method): time n log n, memory for every block.
//! - [`sampled_lru`]: the same for a fixed part of the blocks, chosen by a hash of their number; distances
//!   are scaled up (SHARDS). Memory and time shrink by the sampling rate.
//! - [`sampled`]: for any policy, scaled-down caches replay the sampled requests (miniature simulation).
//!
//! A sample may contain popular blocks too often or too seldom; both estimates correct the number of requests
//! to the expected one (SHARDS-adj).
//!
//! Source: Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST 2015, and "Cache Modeling and
//! Optimization using Miniature Simulations", USENIX ATC 2017.

use rustc_hash::FxHashMap;

use crate::policy::PolicyName;
use crate::replay::replay;
use crate::trace::{Request, Trace};

/// Miss ratios by cache size, ascending.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Cache sizes in bytes, and miss ratios.
    pub points: Vec<(u64, f64)>,
}

impl Curve {
    /// The miss ratio of the largest point up to `bytes`.
    pub fn at(&self, bytes: u64) -> f64 {
        let above = self.points.partition_point(|&(size, _)| size <= bytes);
        above.checked_sub(1).map_or(1.0, |index| self.points[index].1)
    }

    /// The mean difference to another curve at this curve's sizes.
    pub fn mean_difference(&self, other: &Curve) -> f64 {
        let sum: f64 = self.points.iter().map(|&(size, ratio)| (ratio - other.at(size)).abs()).sum();
        sum / self.points.len().max(1) as f64
    }
}

/// The exact curve of LRU.
pub fn exact_lru(trace: &Trace, sizes: &[u64]) -> Curve {
    let distances = Distances::of(trace.requests.iter().copied());
    distances.curve(sizes, 1.0, trace.reads() as f64)
}

/// The curve of LRU, from the part `rate` of the blocks.
pub fn sampled_lru(trace: &Trace, sizes: &[u64], rate: f64) -> Curve {
    let sample = Sample::of(rate);
    let distances = Distances::of(trace.requests.iter().filter(|r| sample.takes(r.id)).copied());
    distances.curve(sizes, rate, trace.reads() as f64 * rate)
}

/// The curve of any policy, from the part `rate` of the blocks; 1.0 replays the whole trace.
pub fn sampled(trace: &Trace, policy: PolicyName, sizes: &[u64], rate: f64) -> Curve {
    let sample = Sample::of(rate);
    let requests: Vec<Request> = trace.requests.iter().filter(|r| sample.takes(r.id)).copied().collect();
    let expected = trace.reads() as f64 * rate;
    let part = Trace { requests, ..Trace::default() };
    let point = |&size: &u64| {
        let capacity_bytes = (size as f64 * rate) as u64;
        let outcome = replay(&part, policy, capacity_bytes);
        (size, corrected(outcome.requests - outcome.hits, expected))
    };
    Curve { points: sizes.iter().map(point).collect() }
}

/// The miss ratio of a sample; excess or missing requests count as hits.
fn corrected(misses: u64, expected: f64) -> f64 {
    if expected <= 0.0 { 1.0 } else { (misses as f64 / expected).clamp(0.0, 1.0) }
}

struct Sample {
    below: u64,
}

impl Sample {
    fn of(rate: f64) -> Sample {
        let below = if rate >= 1.0 { u64::MAX } else { (rate.max(0.0) * u64::MAX as f64) as u64 };
        Sample { below }
    }

    fn takes(&self, id: u64) -> bool {
        hash(id) <= self.below
    }
}

/// Spreads block numbers evenly (the last step of SplitMix64).
pub(crate) fn hash(id: u64) -> u64 {
    let mut hash = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Reuse distances in bytes, sorted, with the block itself.
struct Distances {
    reused: Vec<u64>,
    requests: u64,
}

impl Distances {
    fn of(requests: impl Iterator<Item = Request>) -> Distances {
        let mut last_use: FxHashMap<u64, usize> = FxHashMap::default();
        let mut tree = Sums::default();
        let mut reused = Vec::new();
        let mut count = 0;
        for request in requests {
            let bytes = u64::from(request.bytes);
            let now = tree.push(bytes);
            if let Some(before) = last_use.insert(request.id, now) {
                // From the block's last use to just before this one.
                let since = tree.total() - bytes - tree.before(before);
                tree.clear(before);
                reused.extend((!request.is_write).then_some(since));
            }
            count += u64::from(!request.is_write);
        }
        reused.sort_unstable();
        Distances { reused, requests: count }
    }

    fn curve(&self, sizes: &[u64], rate: f64, expected: f64) -> Curve {
        let point = |&size: &u64| {
            let scaled = (size as f64 * rate) as u64;
            let hits = self.reused.partition_point(|&distance| distance <= scaled) as u64;
            (size, corrected(self.requests - hits, expected))
        };
        Curve { points: sizes.iter().map(point).collect() }
    }
}

/// Sums over a growing sequence: a Fenwick tree.
#[derive(Default)]
pub(crate) struct Sums {
    /// Position i (from one) sums the lowest-set-bit(i) values up to it.
    tree: Vec<u64>,
    values: Vec<u64>,
    total: u64,
}

impl Sums {
    pub(crate) fn push(&mut self, value: u64) -> usize {
        let position = self.values.len() + 1;
        let mut sum = value;
        let (mut below, lowest) = (position - 1, position - (position & position.wrapping_neg()));
        while below > lowest {
            sum += self.tree[below - 1];
            below -= below & below.wrapping_neg();
        }
        self.tree.push(sum);
        self.values.push(value);
        self.total += value;
        position - 1
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn value(&self, index: usize) -> u64 {
        self.values[index]
    }

    pub(crate) fn before(&self, index: usize) -> u64 {
        let (mut position, mut sum) = (index, 0);
        while position > 0 {
            sum += self.tree[position - 1];
            position -= position & position.wrapping_neg();
        }
        sum
    }

    pub(crate) fn clear(&mut self, index: usize) {
        let value = std::mem::take(&mut self.values[index]);
        self.total -= value;
        let mut position = index + 1;
        while position <= self.tree.len() {
            self.tree[position - 1] -= value;
            position += position & position.wrapping_neg();
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

//! A miss-ratio curve of a cache in use: the hits of a smaller or larger one.
//!
//! Idea: as in [`crate::curve::sampled_lru`], reuse distances of blocks sampled by hash, but of a bounded
//! number of blocks: beyond it, those with the largest hashes leave and the sampling rate falls (SHARDS with
//! a fixed size). The sample is cut into [`GROUPS`], each with its own curve; their spread shows the error of
//! the mean.
//!
//! ```text
//!   hash of a block   | 61 bits: below the group's threshold?  | 3 bits: group |
//! ```
//!
//! Old look-ups count less: after every [`AGE`] look-ups, each group halves its counts and forgets the blocks
//! not used since the last halving. If few are left, it samples more. If sampled blocks are used often, fewer
//! suffice, which keeps a hit cheap.
//!
//! Caches of less than a thousandth of all blocks are too small for it: a sampled block stands for many
//! others.
//!
//! Locking: a mutex for each group, only tried, and only for sampled blocks: no look-up waits, and one that
//! finds it taken is not sampled. The threshold is also an atomic, so other look-ups cost a hash and a
//! comparison.
//!
//! Memory: bounded, about 2 MiB.
//!
//! Source: Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST 2015.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::curve::{Sums, hash};
use crate::policy::BlockId;

/// Parts of the sample.
pub const GROUPS: usize = 8;
const GROUP_BLOCKS: usize = 2048;
const LEAST_BLOCKS: usize = 256;
/// Mean look-ups of a sampled block after which half the blocks suffice.
const OFTEN: usize = 16;
/// Look-ups, sampled or not, between halvings.
const AGE: u64 = 1 << 22;
/// A group reads the total number of look-ups once in this many of its own.
const ASK: usize = 64;
/// Distances are counted in 16 steps per doubling: the first bits of a float's mantissa.
const STEP_BITS: u32 = 4;
/// Distances up to an exbibyte.
const BUCKETS: usize = 60 << STEP_BITS;
/// Positions of last uses before unused ones are squeezed out.
const MOST_POSITIONS: usize = 8 * GROUP_BLOCKS;

/// The curve of all look-ups.
pub struct LiveCurve {
    groups: [Sampler; GROUPS],
}

/// A hit ratio and its error.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Estimate {
    /// The most likely value.
    pub ratio: f64,
    /// Twice its standard error.
    pub error: f64,
}

struct Sampler {
    threshold: AtomicU64,
    group: Mutex<Group>,
}

struct Group {
    /// By hash of a sampled block: the position of its last use.
    last_use: BTreeMap<u64, usize>,
    sums: Sums,
    /// Weights of look-ups, by reuse distance.
    reused: Vec<f64>,
    /// Weight of all look-ups.
    weight: f64,
    requests: f64,
    aged_at: u64,
    /// The first position used since then.
    young_from: usize,
    /// Sampled look-ups since the sample was last halved.
    noted: usize,
}

impl Default for LiveCurve {
    fn default() -> LiveCurve {
        LiveCurve { groups: std::array::from_fn(|_| Sampler::default()) }
    }
}

impl Default for Sampler {
    fn default() -> Sampler {
        let group = Group {
            last_use: BTreeMap::new(),
            sums: Sums::default(),
            reused: vec![0.0; BUCKETS],
            weight: 0.0,
            requests: 0.0,
            aged_at: 0,
            young_from: 0,
            noted: 0,
        };
        Sampler { threshold: AtomicU64::new(u64::MAX), group: Mutex::new(group) }
    }
}

impl LiveCurve {
    /// Notes a look-up. `requests`, the number of look-ups so far, is called only if needed.
    pub fn note(&self, id: BlockId, bytes: u32, requests: impl FnOnce() -> u64) {
        let hash = hash(id);
        let sampler = &self.groups[hash as usize % GROUPS];
        if hash < sampler.threshold.load(Ordering::Relaxed) {
            sampler.note(hash, bytes, requests);
        }
    }

    /// Hit ratios of caches of these sizes, by group. `None` until there are enough look-ups.
    fn ratios(&self, sizes: &[u64], requests: u64) -> Option<Vec<[f64; GROUPS]>> {
        let mut ratios = vec![[0.0; GROUPS]; sizes.len()];
        for (index, sampler) in self.groups.iter().enumerate() {
            let group = sampler.group.lock();
            for (of_size, size) in ratios.iter_mut().zip(sizes) {
                of_size[index] = group.hit_ratio(*size, requests)?;
            }
        }
        Some(ratios)
    }

    /// The hit ratio of a cache of `size_bytes`, given that of one of `now_bytes`: the curve yields the
    /// difference.
    pub fn estimate(
        &self,
        (now_bytes, now_ratio): (u64, f64),
        size_bytes: u64,
        requests: u64,
    ) -> Option<Estimate> {
        let ratios = self.ratios(&[now_bytes, size_bytes], requests)?;
        let gains: Vec<f64> = ratios[1].iter().zip(&ratios[0]).map(|(then, now)| then - now).collect();
        let mean = gains.iter().sum::<f64>() / GROUPS as f64;
        let spread = gains.iter().map(|gain| (gain - mean).powi(2)).sum::<f64>() / (GROUPS - 1) as f64;
        let error = 2.0 * (spread / GROUPS as f64).sqrt();
        Some(Estimate { ratio: (now_ratio + mean).clamp(0.0, 1.0), error })
    }

    /// The hit ratio of an LRU cache.
    pub fn lru(&self, size_bytes: u64, requests: u64) -> Option<f64> {
        let ratios = self.ratios(&[size_bytes], requests)?;
        Some(ratios[0].iter().sum::<f64>() / GROUPS as f64)
    }
}

impl Sampler {
    fn note(&self, hash: u64, bytes: u32, requests: impl FnOnce() -> u64) {
        let Some(mut group) = self.group.try_lock() else { return };
        let threshold = self.threshold.load(Ordering::Relaxed);
        if hash >= threshold {
            return;
        }
        group.note(hash, u64::from(bytes), rate(threshold));
        if group.noted.is_multiple_of(ASK) {
            let requests = requests();
            if requests.saturating_sub(group.aged_at) >= AGE {
                group.age(requests);
                if group.last_use.len() < LEAST_BLOCKS / 2 {
                    self.threshold.store(threshold.saturating_mul(2), Ordering::Relaxed);
                }
            }
        }
        let blocks = group.last_use.len();
        if blocks >= 2 * LEAST_BLOCKS && group.noted > OFTEN * blocks {
            group.cut(threshold / 2);
            self.threshold.store(threshold / 2, Ordering::Relaxed);
            return;
        }
        if group.last_use.len() > GROUP_BLOCKS
            && let Some((largest, position)) = group.last_use.pop_last()
        {
            group.sums.clear(position);
            self.threshold.store(largest, Ordering::Relaxed);
        }
    }
}

fn rate(threshold: u64) -> f64 {
    (threshold as f64 / u64::MAX as f64) / GROUPS as f64
}

impl Group {
    fn cut(&mut self, threshold: u64) {
        for (_, position) in self.last_use.split_off(&threshold) {
            self.sums.clear(position);
        }
        self.noted = 0;
    }

    fn note(&mut self, hash: u64, bytes: u64, rate: f64) {
        self.noted += 1;
        let now = self.sums.push(bytes);
        if let Some(before) = self.last_use.insert(hash, now) {
            let distance = self.sums.total() - bytes - self.sums.before(before);
            self.sums.clear(before);
            self.reused[bucket(distance as f64 / rate)] += 1.0 / rate;
        }
        self.weight += 1.0 / rate;
        if now >= MOST_POSITIONS {
            self.squeeze();
        }
    }

    fn age(&mut self, requests: u64) {
        let old: Vec<(u64, usize)> = self.last_use.iter().map(|(hash, at)| (*hash, *at)).collect();
        for (hash, at) in old.into_iter().filter(|(_, at)| *at < self.young_from) {
            self.last_use.remove(&hash);
            self.sums.clear(at);
        }
        self.squeeze();
        self.young_from = self.sums.len();
        self.requests = self.requests_until(requests) / 2.0;
        self.aged_at = requests;
        self.weight /= 2.0;
        self.reused.iter_mut().for_each(|count| *count /= 2.0);
    }

    fn requests_until(&self, requests: u64) -> f64 {
        self.requests + requests.saturating_sub(self.aged_at) as f64
    }

    fn squeeze(&mut self) {
        let mut uses: Vec<(usize, u64)> = self.last_use.iter().map(|(hash, at)| (*at, *hash)).collect();
        uses.sort_unstable();
        self.young_from = uses.partition_point(|(at, _)| *at < self.young_from);
        let mut sums = Sums::default();
        for (at, hash) in uses {
            self.last_use.insert(hash, sums.push(self.sums.value(at)));
        }
        self.sums = sums;
    }

    fn hit_ratio(&self, size_bytes: u64, requests: u64) -> Option<f64> {
        let requests = self.requests_until(requests);
        if requests < 1.0 || self.weight == 0.0 {
            return None;
        }
        let hits: f64 = self.reused[..=bucket(size_bytes as f64)].iter().sum();
        // Excess or missing requests of the sample count as hits (SHARDS-adj).
        Some(((hits + requests - self.weight) / requests).clamp(0.0, 1.0))
    }
}

fn bucket(bytes: f64) -> usize {
    let steps = |bytes: f64| bytes.to_bits() >> (f64::MANTISSA_DIGITS - 1 - STEP_BITS);
    ((steps(bytes.max(1.0)) - steps(1.0)) as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve;
    use crate::trace::{Request, Trace};

    /// Blocks of 8 KiB, few popular: a discrete power law.
    fn trace(blocks: u64, requests: u64) -> Trace {
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            (hash(state) >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut request = |n: u64| {
            let rank = ((blocks as f64).powf(random()) - 1.0) as u64;
            Request {
                id: rank.wrapping_mul(0x1234_5678_9abc_def1),
                now_ns: n,
                bytes: 8192,
                ..Request::default()
            }
        };
        Trace { requests: (0..requests).map(&mut request).collect(), ..Trace::default() }
    }

    #[test]
    fn a_bounded_sample_says_within_two_points_what_caches_would_hit_and_how_sure_that_is() {
        let trace = trace(1 << 21, 3_000_000);
        let live = LiveCurve::default();
        for (n, request) in trace.requests.iter().enumerate() {
            live.note(request.id, request.bytes, || n as u64 + 1);
        }
        let requests = trace.requests.len() as u64;
        let sizes: Vec<u64> = (24..34).map(|shift| 1 << shift).collect();
        let exact = curve::exact_lru(&trace, &sizes);
        let now = 1 << 26;
        let known = (now, 1.0 - exact.at(now));
        for size in sizes {
            let truth = 1.0 - exact.at(size);
            let found = live.lru(size, requests).unwrap();
            assert!((found - truth).abs() < 0.02, "{size}: {found} for {truth}");
            let Estimate { ratio, error } = live.estimate(known, size, requests).unwrap();
            assert!((ratio - truth).abs() < 0.03 && error < 0.1, "{size}: {ratio} +- {error} for {truth}");
        }
        let held: usize = live.groups.iter().map(|group| group.group.lock().last_use.len()).sum();
        assert!(held <= GROUPS * GROUP_BLOCKS);
    }

    #[test]
    fn what_was_long_ago_counts_less() {
        let live = LiveCurve::default();
        let mut requests = 0;
        for id in 0..2_000_000_u64 {
            requests += 1;
            live.note(id, 8192, || requests);
        }
        assert!(live.lru(1 << 30, requests).unwrap() < 0.02);
        for n in 0..8_000_000_u64 {
            requests += 1;
            live.note(n % 4000, 8192, || requests);
        }
        assert!(live.lru(1 << 30, requests).unwrap() > 0.8);
    }

    #[test]
    fn nothing_is_said_before_anything_was_looked_up() {
        assert_eq!(LiveCurve::default().lru(1 << 30, 0), None);
    }
}

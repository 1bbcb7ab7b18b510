//! Modes of a latency histogram: groups of operations served in different ways.
//!
//! A read from memory takes microseconds, one from a disk milliseconds: on a logarithmic axis, hills with a
//! valley between them. The histogram is smoothed in bins of equal logarithmic width. A valley counts if well
//! below the lower of its hills, and a hill if its share is relevant.

use serde::{Deserialize, Serialize};

/// Bins per decade: each is 12 % wide.
const BINS_PER_DECADE: f64 = 20.0;
/// A valley must be below this share of the lower adjacent hill.
const VALLEY_BELOW: f64 = 0.5;
/// A hill with a smaller share of all operations does not count.
const LEAST_SHARE: f64 = 0.005;
/// A hill with fewer operations is chance.
const LEAST_COUNT: f64 = 20.0;

/// One hill.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    /// Start (the valley before it, or the shortest latency), in nanoseconds.
    pub low_ns: f64,
    /// End, in nanoseconds.
    pub high_ns: f64,
    /// Median of its operations.
    pub center_ns: f64,
    /// Share of all operations.
    pub share: f64,
}

/// Modes of a histogram of (lowest, highest value, count) in ascending order: one without a valley, none
/// without operations.
pub fn modes(buckets: impl IntoIterator<Item = (u64, u64, u64)>) -> Vec<Mode> {
    let buckets: Vec<(f64, f64)> = buckets
        .into_iter()
        .filter(|bucket| bucket.2 > 0)
        .map(|(low, high, count)| (((low.max(1) as f64) * (high.max(1) as f64)).sqrt(), count as f64))
        .collect();
    let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else { return Vec::new() };
    let bin = |ns: f64| (ns.log10() * BINS_PER_DECADE).floor() as usize;
    let (begin, end) = (bin(first.0), bin(last.0));
    let mut bins = vec![0.0; end - begin + 1];
    for &(ns, count) in &buckets {
        bins[bin(ns) - begin] += count;
    }
    let all: f64 = bins.iter().sum();
    let hills = hills(&smooth(&smooth(&bins)), LEAST_COUNT.max(LEAST_SHARE * all));
    let edge = |at: usize| 10f64.powf((begin + at) as f64 / BINS_PER_DECADE);
    let mode = |hill: &Hill| {
        let inside: Vec<(f64, f64)> =
            buckets.iter().copied().filter(|b| (hill.from..hill.to).contains(&(bin(b.0) - begin))).collect();
        let count: f64 = inside.iter().map(|b| b.1).sum();
        Mode {
            low_ns: edge(hill.from).max(first.0),
            high_ns: edge(hill.to).min(last.0),
            center_ns: middle(&inside, count),
            share: count / all,
        }
    };
    hills.iter().map(mode).collect()
}

fn smooth(bins: &[f64]) -> Vec<f64> {
    let at = |i: usize| bins.get(i).copied().unwrap_or(0.0);
    let before = |i: usize| i.checked_sub(1).map_or(0.0, at);
    (0..bins.len()).map(|i| (before(i) + 2.0 * at(i) + at(i + 1)) / 4.0).collect()
}

/// A range of bins that rises and falls once.
#[derive(Debug, Clone, Copy)]
struct Hill {
    from: usize,
    to: usize,
    peak: f64,
    mass: f64,
}

impl Hill {
    fn join(self, next: Hill) -> Hill {
        Hill { from: self.from, to: next.to, peak: self.peak.max(next.peak), mass: self.mass + next.mass }
    }
}

/// Splits bins at every minimum, then merges neighbours until all valleys are deep and all hills have at
/// least `least`.
fn hills(bins: &[f64], least: f64) -> Vec<Hill> {
    let mut hills: Vec<Hill> = Vec::new();
    let mut falls = false;
    for (at, &height) in bins.iter().enumerate() {
        let one = Hill { from: at, to: at + 1, peak: height, mass: height };
        let before = at.checked_sub(1).map_or(0.0, |i| bins[i]);
        match hills.last_mut() {
            Some(hill) if !(falls && height > before) => *hill = hill.join(one),
            _ => hills.push(one),
        }
        falls = height < before || (falls && height == before);
    }
    // The valley between two hills, as a share of the lower hill; a hill too small gets a valley without
    // depth.
    let depth = |pair: &[Hill]| {
        let floor = bins[pair[1].from].min(bins[pair[1].from - 1]);
        let is_small = pair[0].mass.min(pair[1].mass) < least;
        floor / pair[0].peak.min(pair[1].peak) + if is_small { 1.0 } else { 0.0 }
    };
    loop {
        let depths = hills.windows(2).map(depth).enumerate();
        let Some((at, worst)) = depths.max_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        if worst < VALLEY_BELOW {
            break;
        }
        let next = hills.remove(at + 1);
        hills[at] = hills[at].join(next);
    }
    hills
}

fn middle(buckets: &[(f64, f64)], count: f64) -> f64 {
    let mut seen = 0.0;
    for &(ns, n) in buckets {
        seen += n;
        if seen * 2.0 >= count {
            return ns;
        }
    }
    0.0
}

//! Whether two sets of repeats differ, by how much, and whether so few repeats can show it.

use serde::{Deserialize, Serialize};

use super::bootstrap::{Interval, bootstrap};
use super::middle::median;

/// A difference is called supported if chance alone gives one as large less often than this.
pub const SIGNIFICANT: f64 = 0.05;

/// Whether data support a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Support {
    /// Chance alone would give this less than once in twenty.
    Supported,
    /// It may be chance.
    Unsupported,
    /// Too few repeats to support any difference, however large.
    TooFew,
}

/// Difference of the values of B from those of A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Median of B divided by median of A; None if A's is 0.
    pub ratio: Option<f64>,
    /// Bootstrap interval of that ratio; None with fewer than three values on a side.
    pub ratio_interval: Option<Interval>,
    /// Hodges-Lehmann: the median of all differences b - a.
    pub shift: f64,
    /// Cliff's delta: how much more often b > a than a > b; from -1 to 1.
    pub delta: f64,
    /// Two-sided p of the exact rank permutation test.
    pub p: f64,
    /// Smallest p that this many repeats can give.
    pub p_least: f64,
}

impl Difference {
    /// Compares values; None if a side has none.
    pub fn of(a: &[f64], b: &[f64]) -> Option<Difference> {
        if a.is_empty() || b.is_empty() {
            return None;
        }
        let pairs = || a.iter().flat_map(|a| b.iter().map(move |b| b - a));
        let sign = |d: f64| if d == 0.0 { 0.0 } else { d.signum() };
        let base = median(a);
        let enough = a.len().min(b.len()) >= 3 && base != 0.0;
        Some(Difference {
            ratio: (base != 0.0).then(|| median(b) / base),
            ratio_interval: enough.then(|| bootstrap(&[a, b], |s| median(&s[1]) / median(&s[0]))),
            shift: median(&pairs().collect::<Vec<_>>()),
            delta: pairs().map(sign).sum::<f64>() / (a.len() * b.len()) as f64,
            p: permutation(a, b),
            p_least: least_p(a.len(), b.len()),
        })
    }

    /// Whether this is a difference, as one of `comparisons`, with p corrected for their number.
    pub fn support(&self, p_corrected: f64, comparisons: usize) -> Support {
        match p_corrected {
            p if p <= SIGNIFICANT => Support::Supported,
            _ if self.p_least * comparisons as f64 > SIGNIFICANT => Support::TooFew,
            _ => Support::Unsupported,
        }
    }
}

/// Smallest p that this many values on each side can give.
pub fn least_p(n: usize, m: usize) -> f64 {
    (2.0 / choices(n + m, n)).min(1.0)
}

fn choices(n: usize, k: usize) -> f64 {
    (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product()
}

/// Two-sided p: the share of all ways to divide the values into sides of these sizes in which the rank sum is
/// at least as far from its expectation as the actual one. Ties get their mean rank. Exact, by counting sums
/// (all ranks are doubled to be integers).
pub fn permutation(a: &[f64], b: &[f64]) -> f64 {
    let ranks = doubled_ranks(a, b);
    let all: usize = ranks.iter().sum();
    // ways[k][s]: choices of k values whose doubled ranks sum to s.
    let mut ways = vec![vec![0.0f64; all + 1]; a.len() + 1];
    ways[0][0] = 1.0;
    for &rank in &ranks {
        for k in (1..=a.len()).rev() {
            let (fewer, more) = ways.split_at_mut(k);
            let (from, into) = (&fewer[k - 1], &mut more[0]);
            for sum in rank..=all {
                into[sum] += from[sum - rank];
            }
        }
    }
    let expected = all as f64 * a.len() as f64 / ranks.len() as f64;
    let seen: usize = ranks[..a.len()].iter().sum();
    let far = (seen as f64 - expected).abs() - 1e-9;
    let as_far: f64 = ways[a.len()]
        .iter()
        .enumerate()
        .filter(|(sum, _)| (*sum as f64 - expected).abs() >= far)
        .map(|w| w.1)
        .sum();
    as_far / choices(ranks.len(), a.len())
}

/// Twice the rank of each value of `a`, then of `b`, among all values.
fn doubled_ranks(a: &[f64], b: &[f64]) -> Vec<usize> {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    // With `below` smaller values and `equal` equal ones, itself included, the rank is below + (equal + 1) /
    // 2.
    let doubled = |v: &f64| {
        let below = all.iter().filter(|other| *other < v).count();
        let equal = all.iter().filter(|other| *other == v).count();
        2 * below + equal + 1
    };
    all.iter().map(doubled).collect()
}

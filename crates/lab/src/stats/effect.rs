//! Whether two sets of repeats differ, by how much, and whether so few of them can say so.

use serde::{Deserialize, Serialize};

use super::bootstrap::{Interval, bootstrap};
use super::spread::median;

/// A difference is called supported if chance gives one as large less often than this.
const SIGNIFICANT: f64 = 0.05;

/// Whether data support that there is a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Support {
    /// Chance alone would give this less than once in twenty.
    Supported,
    /// It may be chance.
    Unsupported,
    /// So few repeats can't support any difference, however large.
    TooFew,
}

/// How the values of B differ from those of A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Median of B by median of A; None where A's is 0.
    pub ratio: Option<f64>,
    /// Bootstrap interval of that ratio; None with fewer than three values on a side.
    pub ratio_interval: Option<Interval>,
    /// Hodges-Lehmann: the median of all differences b - a.
    pub shift: f64,
    /// Cliff's delta: how much more often b > a than a > b; from -1 to 1.
    pub delta: f64,
    /// Two-sided p of the exact rank permutation test.
    pub p: f64,
    /// The least p that so many repeats can give.
    pub p_least: f64,
    /// The verdict.
    pub support: Support,
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
        let (p, p_least) = (permutation(a, b), 2.0 / choices(a.len() + b.len(), a.len()));
        let support = match p {
            _ if p_least > SIGNIFICANT => Support::TooFew,
            p if p <= SIGNIFICANT => Support::Supported,
            _ => Support::Unsupported,
        };
        Some(Difference {
            ratio: (base != 0.0).then(|| median(b) / base),
            ratio_interval: enough.then(|| bootstrap(&[a, b], |s| median(&s[1]) / median(&s[0]))),
            shift: median(&pairs().collect::<Vec<_>>()),
            delta: pairs().map(sign).sum::<f64>() / (a.len() * b.len()) as f64,
            p,
            p_least: p_least.min(1.0),
            support,
        })
    }
}

/// How many ways there are to choose `k` of `n`.
fn choices(n: usize, k: usize) -> f64 {
    (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product()
}

/// Two-sided p: among all ways to share out the values on two sides of these sizes, those whose sum of ranks is as far from the
/// expected one as the sum here, or farther. Ties have the mean of their ranks. Exact, by counting sums (all ranks doubled, to be whole).
fn permutation(a: &[f64], b: &[f64]) -> f64 {
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

/// Twice the rank of each value of `a`, then of each of `b`, among all.
fn doubled_ranks(a: &[f64], b: &[f64]) -> Vec<usize> {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    // Those below, and half of those equal, itself among them: its rank is below + (equal + 1) / 2.
    let doubled = |v: &f64| {
        let below = all.iter().filter(|other| *other < v).count();
        let equal = all.iter().filter(|other| *other == v).count();
        2 * below + equal + 1
    };
    all.iter().map(doubled).collect()
}

//! Holm's correction for many comparisons: of twenty chance differences, one looks supported at 5 %.
//!
//! The smallest of m p values is multiplied by m, the next by m - 1, and so on, each result being at least as
//! large as the previous one. The probability that any is wrongly called supported is then 5 % overall,
//! however they depend on each other.
//!
//! Source: Holm 1979, A simple sequentially rejective multiple test procedure.

use super::effect::{SIGNIFICANT, least_p};

/// Practical limit on repeats.
const MOST_REPEATS: usize = 30;

/// P values corrected for their number, in the same order.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut corrected = vec![0.0; p.len()];
    let mut least = 0.0f64;
    for (rank, &at) in order.iter().enumerate() {
        least = least.max(p[at] * (p.len() - rank) as f64).min(1.0);
        corrected[at] = least;
    }
    corrected
}

/// Fewest repeats on each side that allow a supported difference among this many comparisons.
pub fn repeats_for(comparisons: usize) -> usize {
    let enough = |n: &usize| least_p(*n, *n) * comparisons.max(1) as f64 <= SIGNIFICANT;
    (1..MOST_REPEATS).find(enough).unwrap_or(MOST_REPEATS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_p_is_corrected_by_the_number_left() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (is, expected) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((is - expected).abs() < 1e-12, "{corrected:?}");
        }
        assert_eq!(holm(&[0.5, 0.6]), [1.0, 1.0], "never above 1");
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn more_comparisons_need_more_repeats() {
        assert_eq!([1, 6, 7, 23, 24, 85].map(repeats_for), [4, 5, 6, 6, 7, 7]);
    }
}

//! The location and spread of some values, and whether they are stable.

use serde::{Deserialize, Serialize};

use super::bootstrap::{Interval, bootstrap};
use super::middle::{mean, median};

/// Repeats with a larger coefficient of variation are called unstable: another repeat could move the median
/// by a relevant amount.
pub const UNSTABLE_ABOVE: f64 = 0.10;
/// Modified z-score beyond which a value is an outlier (Iglewicz and Hoaglin).
const OUTLIER_SCORE: f64 = 3.5;
/// A value closer to the median than this share of it is never an outlier: repeats that agree to a per mille
/// have none.
const OUTLIER_AT_LEAST: f64 = 0.05;
/// Fewer values have neither an interval nor outliers.
const LEAST: usize = 3;

/// Some values, summarised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of values.
    pub n: usize,
    /// Median.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Bootstrap interval of the median; None with fewer than three values.
    pub interval: Option<Interval>,
    /// Median of the absolute deviations from the median, unscaled.
    pub mad: f64,
    /// Standard deviation (n - 1) divided by mean; None with fewer than two values, or if the mean is 0.
    pub variation: Option<f64>,
    /// At least three values that vary by more than a tenth.
    pub unstable: bool,
    /// Indexes of values (from 0, in order of repeats) far from all others. They are flagged, but count.
    pub outliers: Vec<usize>,
}

impl Spread {
    /// Summarises `values`; all zero if none.
    pub fn of(values: &[f64]) -> Spread {
        let n = values.len();
        let middle = median(values);
        let deviations: Vec<f64> = values.iter().map(|v| (v - middle).abs()).collect();
        let mad = median(&deviations);
        let variation = variation(values);
        Spread {
            n,
            median: middle,
            min: values.iter().copied().reduce(f64::min).unwrap_or(0.0),
            max: values.iter().copied().reduce(f64::max).unwrap_or(0.0),
            interval: (n >= LEAST).then(|| bootstrap(&[values], |samples| median(&samples[0]))),
            mad,
            variation,
            unstable: n >= LEAST && variation.is_some_and(|v| v > UNSTABLE_ABOVE),
            outliers: if n >= LEAST { outliers(&deviations, middle, mad) } else { Vec::new() },
        }
    }
}

fn outliers(deviations: &[f64], middle: f64, mad: f64) -> Vec<usize> {
    // If more than half are equal, the MAD is 0 and the mean deviation replaces it, with its own factor.
    let scale = if mad > 0.0 { 1.4826 * mad } else { 1.2533 * mean(deviations) };
    let is_far = |d: f64| d > OUTLIER_SCORE * scale && d > OUTLIER_AT_LEAST * middle.abs();
    (0..deviations.len()).filter(|&at| is_far(deviations[at])).collect()
}

fn variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values);
    if values.len() < 2 || mean == 0.0 {
        return None;
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt() / mean.abs())
}

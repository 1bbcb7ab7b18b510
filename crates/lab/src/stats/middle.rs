//! Mean, median and other quantiles.

/// Arithmetic mean; 0 without values.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Middle value, or the mean of the two middle ones; 0 without values.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Value below which the share `q` lies, interpolated linearly (type 7 of Hyndman and Fan); 0 without values.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, q)
}

/// [`quantile`] of sorted values.
pub fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = q.clamp(0.0, 1.0) * last as f64;
    let low = place.floor() as usize;
    let (a, b) = (sorted[low], sorted[(low + 1).min(last)]);
    if a == b { a } else { a + (b - a) * (place - low as f64) }
}

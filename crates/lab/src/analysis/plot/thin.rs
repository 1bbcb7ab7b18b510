//! Thinning: a line of many points is drawn as its envelope, which looks the same and stays small.

/// Columns that a line is divided into: more than the eye can separate.
const COLUMNS: usize = 240;

/// Keeps the lowest and highest point of each of [`COLUMNS`] equal columns, in order; short lines stay whole.
///
/// `x` must not decrease.
pub fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    let span = last.0 - first.0;
    if points.len() <= 2 * COLUMNS || span <= 0.0 {
        return points.to_vec();
    }
    let column = |x: f64| ((x - first.0) / span * COLUMNS as f64).min(COLUMNS as f64 - 1.0) as usize;
    points.chunk_by(|a, b| column(a.0) == column(b.0)).flat_map(ends).collect()
}

/// Lowest and the highest point of a column, in order of `x`.
fn ends(column: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let low = column.iter().enumerate().min_by(|a, b| a.1.1.total_cmp(&b.1.1));
    let high = column.iter().enumerate().max_by(|a, b| a.1.1.total_cmp(&b.1.1));
    let (Some((low, _)), Some((high, _))) = (low, high) else { return Vec::new() };
    let mut indices = vec![low.min(high), low.max(high)];
    indices.dedup();
    indices.into_iter().map(|i| column[i]).collect()
}

//! Speed against fill level: whether there is a cliff, and where.
//!
//! Points are (fill, speed) of one figure, from targets or results that differ only in fill. Speeds are
//! compared as logarithms, because a cliff is a fall by a factor. By the number of fill levels:
//! - three to five: the cliff is the step with the largest fall, if speed falls at least by half there and
//!   far more than over all other steps together. Its position is known only to that step.
//! - six or more: segmented regression with two straight lines that meet. The knee minimises the squared
//!   error, which must be much less than that of one line. Its interval holds the knees whose errors are not
//!   significantly larger (F-like, 95 %).
//!
//! Where the points cannot support a statement, [`cliff`] refuses with the reason.

use serde::{Deserialize, Serialize};

use crate::stats::median;

/// One measured speed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FillPoint {
    /// Percent full.
    pub fill_percent: f64,
    /// Speed; higher is better.
    pub speed: f64,
}

/// Method that found a cliff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// Step with the largest fall.
    Step,
    /// Knee of two lines.
    Segments,
}

/// Fill level beyond which speed collapses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cliff {
    /// Lower bound, in percent.
    pub low_percent: f64,
    /// Upper bound, in percent.
    pub high_percent: f64,
    /// Best estimate; None where only the step is known.
    pub knee_percent: Option<f64>,
    /// Speed before the cliff divided by speed at the fullest point.
    pub factor: f64,
    /// Range of speeds over all points before the cliff, as a factor.
    pub before_factor: f64,
    /// Method that found it.
    pub found: Found,
}

/// Reason for finding no cliff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoCliff {
    /// The points cannot show one; the text says why.
    CantTell(String),
    /// The points could show a cliff, and there is none.
    None,
}

/// A smaller fall is no cliff.
const LEAST_FALL: f64 = 2.0;
/// How many times the fall in the step must exceed the change over all other steps (as logarithms).
const CLEARLY: f64 = 3.0;
/// From this many different fill levels on, lines are fitted.
const FOR_LINES: usize = 6;
/// Two lines must leave less than this share of one line's squared error.
const BETTER: f64 = 0.5;

/// Looks for a cliff.
///
/// # Errors
/// No cliff, or the points cannot show one.
pub fn cliff(points: &[FillPoint]) -> Result<Cliff, NoCliff> {
    let levels = levels(points);
    let (Some(first), Some(last)) = (levels.first(), levels.last()) else {
        return Err(NoCliff::CantTell("there are no points".into()));
    };
    if levels.len() < 3 {
        let what = format!("{} different fill levels: detecting a cliff takes three", levels.len());
        return Err(NoCliff::CantTell(what));
    }
    if last.0 - first.0 < 20.0 {
        return Err(NoCliff::CantTell("the fill levels lie within 20 percent of each other".into()));
    }
    if levels.len() >= FOR_LINES { knee(&levels) } else { step(&levels) }
}

/// Fill levels in order, each with the logarithm of its median speed.
fn levels(points: &[FillPoint]) -> Vec<(f64, f64)> {
    let mut points: Vec<FillPoint> =
        points.iter().copied().filter(|p| p.speed > 0.0 && p.fill_percent.is_finite()).collect();
    points.sort_by(|a, b| a.fill_percent.total_cmp(&b.fill_percent));
    let same = |a: &FillPoint, b: &FillPoint| (a.fill_percent - b.fill_percent).abs() < 0.5;
    let level = |group: &[FillPoint]| {
        let of = |value: fn(&FillPoint) -> f64| median(&group.iter().map(value).collect::<Vec<_>>());
        (of(|p| p.fill_percent), of(|p| p.speed).ln())
    };
    points.chunk_by(same).map(level).collect()
}

fn step(levels: &[(f64, f64)]) -> Result<Cliff, NoCliff> {
    let falls: Vec<f64> = levels.windows(2).map(|pair| pair[0].1 - pair[1].1).collect();
    let (at, fall) = largest(&falls);
    let others: f64 = falls.iter().map(|f| f.abs()).sum::<f64>() - fall.abs();
    if fall < LEAST_FALL.ln() || fall < CLEARLY * others {
        return Err(NoCliff::None);
    }
    let before = &levels[..=at];
    Ok(Cliff {
        low_percent: levels[at].0,
        high_percent: levels[at + 1].0,
        knee_percent: None,
        factor: fall.exp(),
        before_factor: range(before).exp(),
        found: Found::Step,
    })
}

fn largest(values: &[f64]) -> (usize, f64) {
    values
        .iter()
        .copied()
        .enumerate()
        .fold((0, f64::MIN), |best, next| if next.1 > best.1 { next } else { best })
}

fn range(levels: &[(f64, f64)]) -> f64 {
    let values = || levels.iter().map(|level| level.1);
    values().fold(f64::MIN, f64::max) - values().fold(f64::MAX, f64::min)
}

fn knee(levels: &[(f64, f64)]) -> Result<Cliff, NoCliff> {
    let (first, last) = (levels[0].0, levels[levels.len() - 1].0);
    let line = fit(levels, f64::INFINITY).squares;
    let steps = ((last - first) * 2.0) as usize;
    let knees = (1..steps).map(|n| first + n as f64 / 2.0);
    // Each side must hold two points, or its line is arbitrary.
    let is_held = |knee: &f64| {
        levels.iter().filter(|l| l.0 <= *knee).count() >= 2
            && levels.iter().filter(|l| l.0 > *knee).count() >= 2
    };
    let fits: Vec<Fit> = knees.filter(is_held).map(|knee| fit(levels, knee)).collect();
    let Some(best) = fits.iter().copied().reduce(|a, b| if b.squares < a.squares { b } else { a }) else {
        return Err(NoCliff::CantTell("the fill levels lie in two clusters".into()));
    };
    let fall = best.at(best.knee) - best.at(last);
    if best.squares > BETTER * line || fall < LEAST_FALL.ln() || best.bend >= 0.0 {
        return Err(NoCliff::None);
    }
    // Four parameters are fitted; 3.84 is the 95 % point of chi squared with one degree of freedom.
    let free = levels.len().saturating_sub(4).max(1) as f64;
    let noise = best.squares.max(1e-9 * line);
    let plausible = || fits.iter().filter(|f| f.squares <= noise * (1.0 + 3.84 / free)).map(|f| f.knee);
    let before: Vec<(f64, f64)> = levels.iter().copied().filter(|l| l.0 <= best.knee).collect();
    Ok(Cliff {
        low_percent: plausible().fold(best.knee, f64::min),
        high_percent: plausible().fold(best.knee, f64::max),
        knee_percent: Some(best.knee),
        factor: fall.exp(),
        before_factor: range(&before).exp(),
        found: Found::Segments,
    })
}

/// y = level + slope x + bend max(0, x - knee).
#[derive(Debug, Clone, Copy)]
struct Fit {
    knee: f64,
    level: f64,
    slope: f64,
    bend: f64,
    squares: f64,
}

impl Fit {
    fn at(&self, x: f64) -> f64 {
        self.level + self.slope * x + self.bend * (x - self.knee).max(0.0)
    }
}

/// Least squares with the knee given; without a bend if no point lies beyond it.
fn fit(levels: &[(f64, f64)], knee: f64) -> Fit {
    let beyond = |x: f64| if x > knee { x - knee } else { 0.0 };
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| levels.iter().map(of).sum::<f64>() / levels.len() as f64;
    let (x, y, z) = (mean(&|l| l.0), mean(&|l| l.1), mean(&|l| beyond(l.0)));
    let product = |a: &dyn Fn(&(f64, f64)) -> f64, b: &dyn Fn(&(f64, f64)) -> f64| mean(&|l| a(l) * b(l));
    let (dx, dy, dz) = (|l: &(f64, f64)| l.0 - x, |l: &(f64, f64)| l.1 - y, |l: &(f64, f64)| beyond(l.0) - z);
    let (xx, zz, xz) = (product(&dx, &dx), product(&dz, &dz), product(&dx, &dz));
    let (xy, zy) = (product(&dx, &dy), product(&dz, &dy));
    let determinant = xx * zz - xz * xz;
    let (slope, bend) = if determinant > 1e-12 * xx.max(1e-12) {
        ((xy * zz - zy * xz) / determinant, (zy * xx - xy * xz) / determinant)
    } else {
        (if xx > 0.0 { xy / xx } else { 0.0 }, 0.0)
    };
    let knee = if knee.is_finite() { knee } else { 0.0 };
    let mut fit = Fit { knee, level: y - slope * x - bend * z, slope, bend, squares: 0.0 };
    fit.squares = levels.iter().map(|l| (l.1 - fit.at(l.0)).powi(2)).sum();
    fit
}

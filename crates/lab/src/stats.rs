//! Statistics of few repeats: what a handful of numbers allows to say, and what it does not.
//!
//! Measurements are repeated three or five times, rarely more, and storage is not normally distributed. So: medians, not means; intervals by
//! the bootstrap, none for fewer than three values, each with the confidence that so few values can really give; differences by exact
//! permutation, which at n against n can never have a p below 2/C(2n, n): three against three can't support anything at 5 %, however
//! far apart, and the verdict says so. Outliers are marked and stay. All of it is deterministic: the seed is fixed.
//!
//! Source: Efron and Tibshirani, An Introduction to the Bootstrap; Hodges and Lehmann 1963; Cliff 1993; Iglewicz and Hoaglin 1993.

mod bootstrap;
mod effect;
mod modes;
mod spread;
#[cfg(test)]
mod tests;

pub use bootstrap::Interval;
pub use effect::{Difference, Support};
pub use modes::{Mode, modes};
pub use spread::{Spread, UNSTABLE_ABOVE, median, quantile};

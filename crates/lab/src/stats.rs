//! Statistics for few repeats.
//!
//! Measurements have three or five repeats, rarely more, and are not normally distributed: hence medians;
//! bootstrap intervals, from three values on, each with its true confidence; and exact permutation tests.
//! With n values on each side, p cannot fall below 2/C(2n, n): three against three support nothing at 5 %,
//! however far apart, and the verdict says so. Comparisons made together are corrected for their number.
//! Outliers are marked but kept. The seed is fixed.
//!
//! Source: Efron and Tibshirani, An Introduction to the Bootstrap; Hodges and Lehmann 1963; Cliff 1993;
//! Iglewicz and Hoaglin 1993.

mod bootstrap;
mod effect;
mod holm;
mod middle;
mod modes;
mod spread;
#[cfg(test)]
mod tests;

pub use bootstrap::Interval;
pub use effect::{Difference, Support};
pub use holm::{holm, repeats_for};
pub use middle::median;
pub use modes::{Mode, modes};
pub use spread::{Spread, UNSTABLE_ABOVE};

//! Comparing two sides, figure by figure: targets of one result, or results with each other.

use serde::{Deserialize, Serialize};

use crate::result::FigureSummary;
use crate::stats::{Difference, Spread};
use crate::unit::{Better, Unit};

/// What is compared: the figures of one target, under the name that they have in the comparison.
#[derive(Debug, Clone)]
pub struct Side {
    /// `tank`, or `tank (before)`.
    pub name: String,
    /// All of one target.
    pub figures: Vec<FigureSummary>,
}

/// One figure of one test, on two sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The test.
    pub test: String,
    /// The figure.
    pub figure: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// Name of the first side.
    pub a: String,
    /// Its values.
    pub a_spread: Spread,
    /// Name of the second side.
    pub b: String,
    /// Its values.
    pub b_spread: Spread,
    /// How b's values differ from a's.
    pub difference: Difference,
    /// How much the data say.
    pub verdict: Verdict,
    /// B seen from A: `47% slower`, `28x slower`, `2.2x higher`, `about equal`.
    pub b_from_a: String,
    /// A seen from B: `89% faster`.
    pub a_from_b: String,
    /// All of that in a sentence, with what the data support.
    pub sentence: String,
}

/// How much the data say about a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The repeats support it.
    Supported,
    /// The repeats don't: it may be chance.
    Unsupported,
    /// Too few repeats to support anything, but far larger than what repeats vary by.
    LargeButFew,
    /// Too few repeats, and of a size that repeats may vary by.
    Unclear,
    /// Too small to matter, whatever is behind it.
    Equal,
}

/// Compares what two sides have in common.
pub fn compare(_a: &Side, _b: &Side) -> Vec<Comparison> {
    Vec::new()
}

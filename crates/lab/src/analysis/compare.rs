//! Comparing two sides, figure by figure: targets of one result, or results with each other.

use serde::{Deserialize, Serialize};

use crate::measurement::words_of_figure;
use crate::result::FigureSummary;
use crate::stats::{Difference, Spread, Support};
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

/// Twice what two runs of a test that just counts as stable differ by: 1 + 2 x sqrt(2) x 10 %. Less may be chance where repeats are too
/// few to tell.
const LARGE: f64 = 1.28;
/// Differences below this matter to nobody.
const EQUAL: f64 = 1.02;

/// Compares what two sides have in common, in a's order.
pub fn compare(a: &Side, b: &Side) -> Vec<Comparison> {
    let pair = |x: &FigureSummary| {
        let y = b.figures.iter().find(|y| y.test == x.test && y.figure == x.figure && y.unit == x.unit)?;
        Comparison::of(&a.name, x, &b.name, y)
    };
    a.figures.iter().filter_map(pair).collect()
}

impl Comparison {
    fn of(a: &str, x: &FigureSummary, b: &str, y: &FigureSummary) -> Option<Comparison> {
        let difference = Difference::of(&x.values, &y.values)?;
        let verdict = verdict(&difference);
        let words = |from: &FigureSummary, to: &FigureSummary| {
            words(from.spread.median, to.spread.median, x.unit, x.better)
        };
        let (b_from_a, a_from_b) = (words(x, y), words(y, x));
        let values = format!("{} against {}", x.unit.show(y.spread.median), x.unit.show(x.spread.median));
        let support = support_in_words(&difference, verdict, x.spread.n, y.spread.n);
        let sentence = format!(
            "{}, {}: {b} is {b_from_a} than {a} ({values}); {support}.",
            x.test,
            words_of_figure(&x.figure)
        )
        .replace("about equal than", "about equal to");
        Some(Comparison {
            test: x.test.clone(),
            figure: x.figure.clone(),
            unit: x.unit,
            better: x.better,
            a: a.into(),
            a_spread: x.spread.clone(),
            b: b.into(),
            b_spread: y.spread.clone(),
            difference,
            verdict,
            b_from_a,
            a_from_b,
            sentence,
        })
    }

    /// What the repeats say of it: `The repeats ...`.
    pub fn support(&self) -> String {
        let p = self.difference.p;
        match self.verdict {
            Verdict::Supported if p < 0.001 => "support it (p < 0.001)".into(),
            Verdict::Supported => format!("support it (p = {p:.3})"),
            Verdict::Unsupported => format!("don't support it (p = {p:.2})"),
            Verdict::LargeButFew => "too few to support it, but it is far beyond what they vary by".into(),
            Verdict::Unclear => "too few to tell".into(),
            Verdict::Equal => "show nothing that matters".into(),
        }
    }

    /// The larger median by the smaller; None if one is 0.
    pub fn factor(&self) -> Option<f64> {
        let ratio = self.difference.ratio.filter(|ratio| *ratio > 0.0)?;
        Some(ratio.max(1.0 / ratio))
    }
}

fn verdict(difference: &Difference) -> Verdict {
    let factor = match difference.ratio {
        Some(ratio) if ratio > 0.0 => ratio.max(1.0 / ratio),
        _ => f64::INFINITY,
    };
    match difference.support {
        _ if factor < EQUAL => Verdict::Equal,
        Support::Supported => Verdict::Supported,
        Support::Unsupported => Verdict::Unsupported,
        Support::TooFew if factor >= LARGE => Verdict::LargeButFew,
        Support::TooFew => Verdict::Unclear,
    }
}

fn support_in_words(difference: &Difference, verdict: Verdict, n: usize, m: usize) -> String {
    let repeats = match (n, m) {
        (1, 1) => "one run each".to_owned(),
        _ => format!("{n} and {m} runs"),
    };
    let p = if difference.p < 0.001 { "p < 0.001".into() } else { format!("p = {:.3}", difference.p) };
    match verdict {
        Verdict::Supported => format!("the data support that ({repeats}, {p})"),
        Verdict::Unsupported => {
            format!("the data do not support a difference ({repeats}, {p}: it may be chance)")
        }
        Verdict::LargeButFew => {
            format!("{repeats}: too few for a test, but more than runs of a stable test differ by")
        }
        Verdict::Unclear => format!("{repeats}: too few to tell it from chance"),
        Verdict::Equal => format!("too small a difference to matter ({repeats})"),
    }
}

/// How `to` looks from `from`: `47% slower`, `28x slower`, `2.2x higher`, `about equal`.
pub fn words(from: f64, to: f64, unit: Unit, better: Better) -> String {
    let is_speed = better == Better::Higher && matches!(unit, Unit::BytesPerSecond | Unit::PerSecond);
    let (less, more) = if is_speed { ("slower", "faster") } else { ("lower", "higher") };
    if from == to {
        return "about equal".into();
    }
    if from <= 0.0 || to <= 0.0 {
        return if to < from { less.into() } else { more.into() };
    }
    let factor = (to / from).max(from / to);
    let word = if to < from { less } else { more };
    match factor {
        f if f < 1.005 => "about equal".into(),
        f if f >= 9.95 => format!("{f:.0}x {word}"),
        f if f >= 2.0 => format!("{f:.1}x {word}"),
        _ => format!("{:.0}% {word}", (to / from - 1.0).abs() * 100.0),
    }
}

//! Compares two sides figure by figure: targets of one result, or results with each other.
//!
//! Comparisons of one kind shown together are judged together ([`judge`]): p values are corrected for their
//! number. Headlines and 99th percentiles are judged; other figures are for information.

use serde::{Deserialize, Serialize};

use super::is_headline;
use crate::load::measurement::words_of_figure;
use crate::load::result::FigureSummary;
use crate::stats::{Difference, Spread, Support, holm};
use crate::unit::{Better, Unit};

/// One target's figures, under the name used in the comparison.
#[derive(Debug, Clone)]
pub struct Side {
    /// `tank`, or `tank (before)`.
    pub name: String,
    /// All figures of the target.
    pub figures: Vec<FigureSummary>,
}

/// One figure of one test, on two sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Name of the test.
    pub test: String,
    /// Name of the figure.
    pub figure: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// First side.
    pub a: String,
    /// Its values.
    pub a_spread: Spread,
    /// Second side.
    pub b: String,
    /// Its values.
    pub b_spread: Spread,
    /// Difference of b from a.
    pub difference: Difference,
    /// Decides whether the comparison is judged.
    pub kind: FigureKind,
    /// P value corrected for the comparisons judged together; None if not judged.
    pub p_corrected: Option<f64>,
    /// Number of comparisons judged together, this one included.
    pub judged: usize,
    /// Conclusion that the data support.
    pub verdict: Verdict,
    /// B relative to A: `47% slower`, `28x slower`, `2.2x higher`, `about equal`.
    pub b_from_a: String,
    /// A relative to B: `89% faster`.
    pub a_from_b: String,
    /// Comparison in a sentence.
    pub sentence: String,
}

/// Kind of figure compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureKind {
    /// A headline figure.
    Headline,
    /// A 99th percentile.
    P99,
    /// Any other, or one without a better direction.
    Other,
}

impl FigureKind {
    fn of(all: &[FigureSummary], figure: &FigureSummary) -> FigureKind {
        match figure.better {
            Better::Neither => FigureKind::Other,
            _ if is_headline(all, figure) => FigureKind::Headline,
            _ if figure.figure.ends_with(".p99") => FigureKind::P99,
            _ => FigureKind::Other,
        }
    }
}

/// Conclusion that the data support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The repeats support it.
    Supported,
    /// The difference may be chance.
    Unsupported,
    /// Too few repeats for a test, but far larger than usual variation.
    LargeButFew,
    /// Too few repeats, and within usual variation.
    Unclear,
    /// Too small to matter.
    Equal,
    /// A figure not judged.
    NotJudged,
}

/// Twice the difference between two runs of a barely stable test: 1 + 2 x sqrt(2) x 10 %. With few
/// repeats, anything less may be chance.
const LARGE: f64 = 1.28;
/// Differences below this do not matter.
const EQUAL: f64 = 1.02;

/// Compares the figures common to both sides, in a's order, and judges them.
#[cfg(test)]
pub fn compare(a: &Side, b: &Side) -> Vec<Comparison> {
    let mut comparisons = pairs(a, b);
    judge(&mut comparisons);
    comparisons
}

/// Figures common to both sides, in a's order, to be judged with all others shown beside them.
pub fn pairs(a: &Side, b: &Side) -> Vec<Comparison> {
    let pair = |x: &FigureSummary| {
        let y = b.figures.iter().find(|y| y.test == x.test && y.figure == x.figure && y.unit == x.unit)?;
        Comparison::of(&a.name, x, &b.name, y, FigureKind::of(&a.figures, x))
    };
    a.figures.iter().filter_map(pair).collect()
}

/// Sets the verdicts, given the number of comparisons of each kind. Call it again after leaving some out.
pub fn judge(comparisons: &mut [Comparison]) {
    for kind in [FigureKind::Headline, FigureKind::P99] {
        let of_kind = |c: &&mut Comparison| c.kind == kind;
        let p: Vec<f64> = comparisons.iter().filter(|c| c.kind == kind).map(|c| c.difference.p).collect();
        for (comparison, corrected) in comparisons.iter_mut().filter(of_kind).zip(holm(&p)) {
            comparison.p_corrected = Some(corrected);
            comparison.judged = p.len();
        }
    }
    for comparison in comparisons {
        comparison.verdict = comparison.judgement();
        comparison.sentence = comparison.in_words();
    }
}

impl Comparison {
    fn of(a: &str, x: &FigureSummary, b: &str, y: &FigureSummary, kind: FigureKind) -> Option<Comparison> {
        let words = |from: &FigureSummary, to: &FigureSummary| {
            words(from.spread.median, to.spread.median, x.unit, x.better)
        };
        Some(Comparison {
            test: x.test.clone(),
            figure: x.figure.clone(),
            unit: x.unit,
            better: x.better,
            a: a.into(),
            a_spread: x.spread.clone(),
            b: b.into(),
            b_spread: y.spread.clone(),
            difference: Difference::of(&x.values, &y.values)?,
            kind,
            p_corrected: None,
            judged: 0,
            verdict: Verdict::NotJudged,
            b_from_a: words(x, y),
            a_from_b: words(y, x),
            sentence: String::new(),
        })
    }

    fn judgement(&self) -> Verdict {
        let Some(p) = self.p_corrected else { return Verdict::NotJudged };
        let factor = self.factor().unwrap_or(f64::INFINITY);
        match self.difference.support(p, self.judged) {
            _ if factor < EQUAL => Verdict::Equal,
            Support::Supported => Verdict::Supported,
            Support::Unsupported => Verdict::Unsupported,
            Support::TooFew if factor >= LARGE => Verdict::LargeButFew,
            Support::TooFew => Verdict::Unclear,
        }
    }

    fn in_words(&self) -> String {
        let Comparison { test, a, b, b_from_a, .. } = self;
        let show = |spread: &Spread| self.unit.show(spread.median);
        let values = format!("{} against {}", show(&self.b_spread), show(&self.a_spread));
        let than = if b_from_a == ALIKE { "to" } else { "than" };
        let figure = words_of_figure(&self.figure);
        format!("{test}, {figure}: {b} is {b_from_a} {than} {a} ({values}); {}.", self.support_in_words())
    }

    fn support_in_words(&self) -> String {
        let repeats = match (self.a_spread.n, self.b_spread.n) {
            (1, 1) => "one run each".to_owned(),
            (n, m) => format!("{n} and {m} runs"),
        };
        let p = self.p_corrected.unwrap_or(1.0);
        let p = if p < 0.001 { "p < 0.001".into() } else { format!("p = {p:.3}") };
        let among = match self.judged {
            0 | 1 => String::new(),
            many => format!(" corrected for {many} comparisons"),
        };
        match self.verdict {
            Verdict::Supported => format!("the data support this ({repeats}, {p}{among})"),
            Verdict::Unsupported => {
                format!("the data do not support a difference ({repeats}, {p}{among}: it may be chance)")
            }
            Verdict::LargeButFew => {
                format!(
                    "{repeats}{}: too few for a test, so this is only an observation",
                    among_so_many(self.judged)
                )
            }
            Verdict::Unclear => {
                format!("{repeats}{}: too few to distinguish it from chance", among_so_many(self.judged))
            }
            Verdict::Equal => format!("the difference is too small to matter ({repeats})"),
            Verdict::NotJudged => format!("not judged ({repeats})"),
        }
    }

    /// Completes `The repeats ...`.
    pub fn support(&self) -> String {
        let p = self.p_corrected.unwrap_or(1.0);
        match self.verdict {
            Verdict::Supported if p < 0.001 => "support it (p < 0.001)".into(),
            Verdict::Supported => format!("support it (p = {p:.3})"),
            Verdict::Unsupported => format!("do not support it (p = {p:.2})"),
            Verdict::LargeButFew => "are too few to support it, though it is large".into(),
            Verdict::Unclear => "are too few to decide".into(),
            Verdict::Equal => "show no relevant difference".into(),
            Verdict::NotJudged => "are not judged".into(),
        }
    }

    /// Larger median divided by the smaller; None if one is 0.
    pub fn factor(&self) -> Option<f64> {
        let ratio = self.difference.ratio.filter(|ratio| *ratio > 0.0)?;
        Some(ratio.max(1.0 / ratio))
    }
}

/// ` in 6 comparisons`, if several.
fn among_so_many(judged: usize) -> String {
    if judged > 1 { format!(" in {judged} comparisons") } else { String::new() }
}

const ALIKE: &str = "about equal";

/// `to` relative to `from`: `47% slower`, `28x slower`, `2.2x higher`, `about equal`.
pub fn words(from: f64, to: f64, unit: Unit, better: Better) -> String {
    let is_speed = better == Better::Higher && matches!(unit, Unit::BytesPerSecond | Unit::PerSecond);
    let (less, more) = if is_speed { ("slower", "faster") } else { ("lower", "higher") };
    if from == to {
        return ALIKE.into();
    }
    if from <= 0.0 || to <= 0.0 {
        return if to < from { less.into() } else { more.into() };
    }
    let factor = (to / from).max(from / to);
    let word = if to < from { less } else { more };
    match factor {
        f if f < 1.005 => ALIKE.into(),
        f if f >= 9.95 => format!("{f:.0}x {word}"),
        f if f >= 2.0 => format!("{f:.1}x {word}"),
        _ => format!("{:.0}% {word}", (to / from - 1.0).abs() * 100.0),
    }
}

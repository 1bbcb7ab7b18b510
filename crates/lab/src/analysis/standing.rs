//! Ranking of targets in a figure: the best, and all that the repeats cannot separate from it.
//!
//! A target wins only if the data show that every other one is worse.

use super::{Comparison, Verdict};
use crate::load::result::FigureSummary;
use crate::unit::Better;

/// Targets of one figure of one test.
#[derive(Debug)]
pub struct Standing<'a> {
    /// From best to worst median.
    pub order: Vec<&'a FigureSummary>,
    /// How the best compares with each of the others, in their order; None if not compared.
    differences: Vec<Option<&'a Comparison>>,
}

impl<'a> Standing<'a> {
    /// Ranks figures of one test and name; None if fewer than two, or neither direction is better.
    pub fn of(
        figures: impl IntoIterator<Item = &'a FigureSummary>,
        comparisons: &'a [Comparison],
    ) -> Option<Standing<'a>> {
        let mut order: Vec<&FigureSummary> = figures.into_iter().collect();
        let better = order.first()?.better;
        if order.len() < 2 || better == Better::Neither {
            return None;
        }
        order.sort_by(|a, b| match better {
            Better::Lower => a.spread.median.total_cmp(&b.spread.median),
            _ => b.spread.median.total_cmp(&a.spread.median),
        });
        let best = *order.first()?;
        let of_both = |c: &&Comparison, other: &str| {
            c.test == best.test
                && c.figure == best.figure
                && [(&*c.a, &*c.b), (&*c.b, &*c.a)].contains(&(&*best.target, other))
        };
        let with = |f: &&FigureSummary| comparisons.iter().find(|c| of_both(c, &f.target));
        let differences = order[1..].iter().map(with).collect();
        Some(Standing { order, differences })
    }

    /// Best, and all that the repeats cannot separate from it.
    pub fn leaders(&self) -> Vec<&'a FigureSummary> {
        let others = self.order[1..].iter().zip(&self.differences);
        let alike = others.filter(|(_, c)| c.is_none_or(|c| c.verdict != Verdict::Supported));
        self.order.first().copied().into_iter().chain(alike.map(|(figure, _)| *figure)).collect()
    }

    /// Targets that the data show to be worse than the best.
    pub fn behind(&self) -> Vec<&'a FigureSummary> {
        let others = self.order[1..].iter().zip(&self.differences);
        let worse = others.filter(|(_, c)| c.is_some_and(|c| c.verdict == Verdict::Supported));
        worse.map(|(figure, _)| *figure).collect()
    }

    /// Winner, if any.
    pub fn winner(&self) -> Option<&'a FigureSummary> {
        match self.leaders().as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }
}

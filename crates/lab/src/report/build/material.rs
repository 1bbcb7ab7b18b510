//! What a report is written from, and the questions that sections ask of it.

use serde_json::Value;

use crate::advice::Advice;
use crate::analysis::{Analysis, Comparison, Finding, Verdict, is_headline};
use crate::result::{FigureSummary, Run, Summary};
use crate::suite::Plan;
use crate::unit::Better;

/// A file beside the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its path from the report.
    pub path: String,
    /// What is in it.
    pub about: String,
}

/// All that a report is written from.
#[derive(Debug, Clone, Copy)]
pub struct Material<'a> {
    /// The figures, over all repeats.
    pub summary: &'a Summary,
    /// What was to be done.
    pub plan: &'a Plan,
    /// What it was done on.
    pub machine: &'a Value,
    /// All runs, with their series.
    pub runs: &'a [Run],
    /// What was found in it.
    pub analysis: &'a Analysis,
    /// What should be done.
    pub advice: &'a [Advice],
    /// The evidence.
    pub files: &'a [File],
}

impl<'a> Material<'a> {
    /// A figure of a test on a target.
    pub fn figure(&self, test: &str, target: &str, figure: &str) -> Option<&'a FigureSummary> {
        self.summary.figures.iter().find(|f| f.test == test && f.target == target && f.figure == figure)
    }

    /// Names of targets, in order.
    pub fn targets(&self) -> Vec<&'a str> {
        self.summary.targets.iter().map(|target| target.name.as_str()).collect()
    }

    /// Names of tests that gave something, in order.
    pub fn tests(&self) -> Vec<&'a str> {
        let names = self.summary.tests.iter().map(|test| test.name.as_str());
        names.filter(|name| self.summary.figures.iter().any(|f| f.test == *name)).collect()
    }

    /// Operations of a test that have rates and latencies, in order.
    pub fn operations(&self, test: &str) -> Vec<&'a str> {
        let of_test = self.summary.figures.iter().filter(|f| f.test == test);
        unique(of_test.filter_map(|f| f.figure.strip_suffix(".iops")))
    }

    /// The figures that stand for a test.
    pub fn headlines(&self, test: &str) -> Vec<&'a str> {
        let all = &self.summary.figures;
        unique(all.iter().filter(|f| f.test == test && is_headline(all, f)).map(|f| f.figure.as_str()))
    }

    /// Figures of a test that no stream gives.
    pub fn others(&self, test: &str) -> Vec<&'a str> {
        let streams = self.operations(test);
        let of_stream = |name: &&str| name.split_once('.').is_some_and(|(what, _)| streams.contains(&what));
        self.headlines(test).into_iter().filter(|name| !of_stream(name)).collect()
    }

    /// All headlines of all tests: (test, figure).
    pub fn all_headlines(&self) -> Vec<(&'a str, &'a str)> {
        self.tests().into_iter().flat_map(|t| self.headlines(t).into_iter().map(move |f| (t, f))).collect()
    }

    /// The best target for a figure, if there are several and one way is better.
    pub fn best(&self, test: &str, figure: &str) -> Option<&'a FigureSummary> {
        let mut all = self.summary.figures.iter().filter(|f| f.test == test && f.figure == figure);
        let first = all.next()?;
        let best = all.clone().fold(first, |best, next| match next.better {
            Better::Higher if next.spread.median > best.spread.median => next,
            Better::Lower if next.spread.median < best.spread.median => next,
            _ => best,
        });
        (first.better != Better::Neither && all.next().is_some()).then_some(best)
    }

    /// The best target, and those that the repeats can't tell from it.
    pub fn leaders(&self, test: &str, figure: &str) -> Vec<&'a str> {
        let Some(best) = self.best(test, figure) else { return Vec::new() };
        let alike = |target: &&str| {
            *target == best.target
                || self
                    .comparison(test, figure, target, &best.target)
                    .is_some_and(|c| matches!(c.verdict, Verdict::Equal | Verdict::Unsupported))
        };
        self.targets().into_iter().filter(alike).collect()
    }

    /// How two targets compare, in either direction.
    pub fn comparison(&self, test: &str, figure: &str, one: &str, other: &str) -> Option<&'a Comparison> {
        let of_both = |c: &&Comparison| (c.a == one && c.b == other) || (c.a == other && c.b == one);
        self.analysis.comparisons.iter().filter(of_both).find(|c| c.test == test && c.figure == figure)
    }

    /// All repeats of a test on a target.
    pub fn repeats(&self, test: &str, target: &str) -> Vec<&'a Run> {
        let is = |run: &&Run| run.measurement.test == test && run.measurement.target == target;
        self.runs.iter().filter(is).collect()
    }

    /// The repeat whose first headline is the median, or next to it: what is shown where one has to stand for all.
    pub fn typical(&self, test: &str, target: &str) -> Option<&'a Run> {
        let mut runs = self.repeats(test, target);
        let headline = self.headlines(test).into_iter().next().unwrap_or_default();
        let value = |run: &Run| {
            let figures = run.measurement.outcome.figures();
            figures.into_iter().find(|f| f.name == headline).map_or(0.0, |f| f.value)
        };
        runs.sort_by(|a, b| value(a).total_cmp(&value(b)));
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }

    /// Findings whose id begins so, the gravest first.
    pub fn findings(&self, kind: &str) -> Vec<&'a Finding> {
        let mut all: Vec<&Finding> =
            self.analysis.findings.iter().filter(|f| f.id.starts_with(kind)).collect();
        all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        all
    }
}

/// Each once, in the order in which they first came.
fn unique<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

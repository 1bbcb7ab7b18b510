//! The input of a report, and the queries that sections make on it.

use serde_json::Value;

use crate::advice::Advice;
use crate::analysis::{Analysis, Finding, Standing, is_headline};
use crate::load::result::{FigureSummary, Run, Summary};
use crate::load::suite::Plan;
use crate::unit::Better;

/// A file beside the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Path relative to the report.
    pub path: String,
    /// Description of the content.
    pub about: String,
}

/// Input of a report.
#[derive(Debug, Clone, Copy)]
pub struct Material<'a> {
    /// Figures over all repeats.
    pub summary: &'a Summary,
    /// Plan of the study.
    pub plan: &'a Plan,
    /// Machine's description.
    pub machine: &'a Value,
    /// All runs, with their series.
    pub runs: &'a [Run],
    /// Findings.
    pub analysis: &'a Analysis,
    /// Advice.
    pub advice: &'a [Advice],
    /// Evidence.
    pub files: &'a [File],
}

impl<'a> Material<'a> {
    /// Figure of a test on a target.
    pub fn figure(&self, test: &str, target: &str, figure: &str) -> Option<&'a FigureSummary> {
        self.summary.figures.iter().find(|f| f.test == test && f.target == target && f.figure == figure)
    }

    /// Names of targets, in order.
    pub fn targets(&self) -> Vec<&'a str> {
        self.summary.targets.iter().map(|target| target.name.as_str()).collect()
    }

    /// Names of tests with results, in order.
    pub fn tests(&self) -> Vec<&'a str> {
        let names = self.summary.tests.iter().map(|test| test.name.as_str());
        names.filter(|name| self.summary.figures.iter().any(|f| f.test == *name)).collect()
    }

    /// Operations of a test with rates and latencies, in order.
    pub fn operations(&self, test: &str) -> Vec<&'a str> {
        let of_test = self.summary.figures.iter().filter(|f| f.test == test);
        unique(of_test.filter_map(|f| f.figure.strip_suffix(".iops")))
    }

    /// Headline figures of a test.
    pub fn headlines(&self, test: &str) -> Vec<&'a str> {
        let all = &self.summary.figures;
        unique(all.iter().filter(|f| f.test == test && is_headline(all, f)).map(|f| f.figure.as_str()))
    }

    /// Figures of a test that do not belong to a stream.
    pub fn others(&self, test: &str) -> Vec<&'a str> {
        let streams = self.operations(test);
        let of_stream = |name: &&str| name.split_once('.').is_some_and(|(what, _)| streams.contains(&what));
        self.headlines(test).into_iter().filter(|name| !of_stream(name)).collect()
    }

    /// All headlines of all tests: (test, figure).
    pub fn all_headlines(&self) -> Vec<(&'a str, &'a str)> {
        self.tests().into_iter().flat_map(|t| self.headlines(t).into_iter().map(move |f| (t, f))).collect()
    }

    /// Best target for a figure, if several and one direction is better.
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

    /// Ranking of all targets in a figure, if several and one direction is better.
    pub fn standing(&self, test: &str, figure: &str) -> Option<Standing<'a>> {
        let figures = self.summary.figures.iter().filter(|f| f.test == test && f.figure == figure);
        Standing::of(figures, &self.analysis.comparisons)
    }

    /// Targets to highlight in a figure: the best and all that the repeats cannot separate from it; none if
    /// that would be all.
    pub fn leaders(&self, test: &str, figure: &str) -> Vec<&'a str> {
        let Some(standing) = self.standing(test, figure) else { return Vec::new() };
        let leaders = standing.leaders();
        if leaders.len() == standing.order.len() {
            return Vec::new();
        }
        leaders.into_iter().map(|figure| figure.target.as_str()).collect()
    }

    /// All repeats of a test on a target.
    pub fn repeats(&self, test: &str, target: &str) -> Vec<&'a Run> {
        let is = |run: &&Run| run.measurement.test == test && run.measurement.target == target;
        self.runs.iter().filter(is).collect()
    }

    /// Repeat with the median first headline, or next to it: the one shown where one must represent all.
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

    /// Findings whose id starts with `kind`, most severe first.
    pub fn findings(&self, kind: &str) -> Vec<&'a Finding> {
        let mut all: Vec<&Finding> =
            self.analysis.findings.iter().filter(|f| f.id.starts_with(kind)).collect();
        all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        all
    }
}

/// Each item once, in order of first appearance.
fn unique<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

//! Compares results with each other: before and after, here and there.
//!
//! Different work does not compare storage: tests of one name that did different work are listed with the
//! differences, and results without a common test are not compared.

use super::across::{compare_targets, fill_against_speed, is_worse};
use super::compare::judge;
use super::{Comparison, Finding, Setting, Severity, Verdict, is_headline};
use crate::load::result::FigureSummary;
use crate::load::suite::{Plan, Test, Work};
use crate::unit::Unit;
use crate::{LabError, Result};

/// A result to compare.
#[derive(Debug, Clone)]
pub struct Source {
    /// Name in the comparison.
    pub name: String,
    /// Figures of the result.
    pub figures: Vec<FigureSummary>,
    /// Facts about its targets.
    pub setting: Setting,
    /// Plan of the result.
    pub plan: Plan,
}

/// Compares results. Targets of the same name in several results are compared as `tank (before)` and
/// `tank (after)`; if no name repeats, all targets are compared, those of a single result under their own
/// names. Speed against fill covers all.
///
/// # Errors
/// Nothing to compare; the text lists each result's content.
pub fn compare_results(sources: &[Source]) -> Result<(Vec<Comparison>, Vec<Finding>)> {
    if let [only] = sources {
        let (comparisons, mut findings) = compare_targets(&only.figures);
        if comparisons.is_empty() {
            let why = "has one target: give a second result to compare it with, or measure two targets";
            return Err(LabError::Refused(format!("nothing to compare: {} {why}", only.name)));
        }
        findings.extend(fill_against_speed(&only.figures, &only.setting));
        return Ok((comparisons, findings));
    }
    let shared = |test: &str| sources.iter().filter(|source| source.has(test)).count() > 1;
    if !sources.iter().flat_map(Source::tests).any(shared) {
        return Err(nothing_in_common(sources));
    }
    let mut before = differences(sources);
    let (mut figures, mut setting) = (Vec::new(), Setting::default());
    for source in sources {
        let label = |target: &str| format!("{target} ({})", source.name);
        let of_others = source.figures.iter().filter(|figure| shared(&figure.test));
        figures.extend(of_others.map(|f| FigureSummary { target: label(&f.target), ..f.clone() }));
        let targets = source.setting.targets.iter();
        setting.targets.extend(targets.map(|(target, facts)| (label(target), facts.clone())));
    }
    let plain =
        |label: &str| label.rsplit_once(" (").map_or(label.to_owned(), |(target, _)| target.to_owned());
    let (mut comparisons, mut findings) = compare_targets(&figures);
    let is_same = |c: &Comparison| plain(&c.a) == plain(&c.b);
    if comparisons.iter().any(is_same) {
        comparisons.retain(is_same);
        judge(&mut comparisons);
        let headline = comparisons.iter().filter(|c| {
            figures.iter().any(|f| {
                f.figure == c.figure && f.test == c.test && f.target == c.a && is_headline(&figures, f)
            })
        });
        findings = headline.map(changed).collect();
    }
    before.append(&mut findings);
    before.extend(fill_against_speed(&figures, &setting));
    Ok((comparisons, before))
}

impl Source {
    fn tests(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.figures.iter().map(|figure| figure.test.as_str()).collect();
        names.dedup();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn has(&self, test: &str) -> bool {
        self.figures.iter().any(|figure| figure.test == test)
    }

    fn planned(&self, test: &str) -> Option<&Test> {
        self.plan.tests.iter().find(|planned| planned.name == test)
    }
}

fn nothing_in_common(sources: &[Source]) -> LabError {
    let of = |source: &Source| match source.tests().as_slice() {
        [] => format!("{} has no measurement", source.name),
        tests => format!("{} (suite {}) has {}", source.name, source.plan.suite, tests.join(", ")),
    };
    let each: Vec<String> = sources.iter().map(of).collect();
    LabError::Refused(format!(
        "nothing to compare: these results have no test in common: {}",
        each.join("; ")
    ))
}

/// How these results differ, apart from their targets.
fn differences(sources: &[Source]) -> Vec<Finding> {
    let Some((first, others)) = sources.split_first() else { return Vec::new() };
    let mut findings = Vec::new();
    for other in others {
        let options = options(first, other);
        if !options.is_empty() {
            let sentence = format!(
                "{} and {} were measured with different options ({}), which may explain the differences \
                 between them.",
                first.name,
                other.name,
                options.join("; ")
            );
            findings.push(Finding::new("compare.options", Severity::Warning, sentence));
        }
    }
    for source in sources {
        let is_alone =
            |test: &&str| !sources.iter().any(|other| other.name != source.name && other.has(test));
        let alone: Vec<&str> = source.tests().into_iter().filter(is_alone).collect();
        if !alone.is_empty() {
            let sentence = format!("Only in {}, so not compared: {}.", source.name, alone.join(", "));
            findings.push(Finding::new("compare.alone", Severity::Notice, sentence));
        }
    }
    findings
}

fn options(one: &Source, other: &Source) -> Vec<String> {
    let (a, b) = (&one.plan.options, &other.plan.options);
    let mut words = Vec::new();
    let mut flag = |yes: (bool, bool), is: &str, is_not: &str| {
        if yes.0 != yes.1 {
            let [a, b] = [yes.0, yes.1].map(|yes| if yes { is } else { is_not });
            words.push(format!("{a} against {b}"));
        }
    };
    flag((a.quick, b.quick), "a quick run", "a full run");
    flag((a.together, b.together), "all targets at once", "targets in turn");
    flag((a.real, b.real), "the real fio or bonnie++", "Cenote's load generator");
    // Tests with the same difference are listed together.
    let mut tests: Vec<(String, Vec<&str>)> = Vec::new();
    for test in one.tests() {
        let (Some(x), Some(y)) = (one.planned(test), other.planned(test)) else { continue };
        if x.work != y.work {
            let how = how(&x.work, &y.work);
            match tests.iter_mut().find(|known| known.0 == how) {
                Some(known) => known.1.push(test),
                None => tests.push((how, vec![test])),
            }
        }
    }
    words.extend(tests.into_iter().map(|(how, tests)| format!("{}: {how}", tests.join(", "))));
    words
}

fn how(one: &Work, other: &Work) -> String {
    let mut words = Vec::new();
    let mut differ = |what: &str, one: Option<String>, other: Option<String>| {
        if one != other {
            let [one, other] = [one, other].map(|value| value.unwrap_or_else(|| "none".into()));
            words.push(format!("{what} {one} against {other}"));
        }
    };
    differ("data set", one.data_bytes().map(bytes), other.data_bytes().map(bytes));
    let time = |work: &Work| work.measured_ns().map(|ns| Unit::Nanoseconds.show(ns as f64));
    differ("time", time(one), time(other));
    if let (Work::Io(a), Work::Io(b)) = (one, other) {
        let each = |of: fn(&crate::load::job::Job) -> String| {
            [a, b].map(|jobs| Some(jobs.0.iter().map(of).collect()))
        };
        let [x, y] = each(|job| format!("{} x {} ", job.workers, job.queue_depth));
        differ("workers x depth", x, y);
    }
    if words.is_empty() { "different work".into() } else { words.join(", ") }
}

fn bytes(bytes: u64) -> String {
    Unit::Bytes.show(bytes as f64)
}

fn changed(c: &Comparison) -> Finding {
    let got_worse = is_worse(c.a_spread.median, c.b_spread.median, c.better);
    let is_sure = c.verdict == Verdict::Supported;
    let severity = if got_worse && is_sure { Severity::Warning } else { Severity::Info };
    let id = match (is_sure, got_worse) {
        (false, _) => "compare.same",
        (true, true) => "compare.worse",
        (true, false) => "compare.better",
    };
    Finding::new(id, severity, c.sentence.clone())
        .of_test(&c.test)
        .of_target(&c.b)
        .with(c.a.clone(), c.a_spread.median, c.unit)
        .with(c.b.clone(), c.b_spread.median, c.unit)
}

//! Reports state the figures and findings, no more, and omit empty sections.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use serde_json::Value;

use super::*;
use crate::advice::{Advice, Evidence, EvidenceValue, Remedy, Risk};
use crate::analysis::report::{Style, html, markdown, text};
use crate::analysis::{Analysis, Finding, Severity, compare_targets};
use crate::load::measurement::{Figure, Latency, Measurement, Outcome, Second, Stream, Tool};
use crate::load::result::{Run, SCHEMA, Summary, summarise};
use crate::load::samples::{Missing, Samples};
use crate::load::suite::{Options, Plan};
use crate::load::target::{Target, TargetKind};
use crate::unit::Unit;

/// A run of a test with `iops` 4 KiB reads per second.
fn run(target: &str, repeat: u32, iops: u64) -> Run {
    let mut latency = Latency::default();
    latency.record_many(100_000, iops * 2);
    let second = |at: u64| Second {
        at_ns: at * 1_000_000_000,
        operations: iops,
        bytes: iops * 4096,
        latency_sum_ns: iops * 100_000,
        latency_max_ns: 120_000,
    };
    let stream = Stream {
        operation: "read".into(),
        operations: iops * 2,
        bytes: iops * 8192,
        runtime_ns: 2_000_000_000,
        errors: 0,
        latency,
        seconds: vec![second(0), second(1)],
    };
    let outcome = Outcome {
        tool: Tool { name: "cenote".into(), version: "0.1".into(), command: None },
        cpu: None,
        streams: vec![stream],
        others: vec![Figure::lower("resilver.time", 4.2e9, Unit::Nanoseconds)],
        notes: vec!["caches could not be dropped".into()],
    };
    let measurement = Measurement {
        test: "rand-read".into(),
        target: target.into(),
        repeat,
        started_unix_ns: 0,
        elapsed_ns: 2_000_000_000,
        outcome,
    };
    Run { measurement, samples: Samples::default() }
}

struct Made {
    runs: Vec<Run>,
    summary: Summary,
    plan: Plan,
    analysis: Analysis,
}

fn made(targets: &[(&str, &[u64])], quick: bool) -> Made {
    let of_target = |(name, all): &(&str, &[u64])| -> Vec<Run> {
        (1..).zip(all.iter()).map(|(repeat, iops)| run(name, repeat, *iops)).collect()
    };
    let runs: Vec<Run> = targets.iter().flat_map(of_target).collect();
    let figures = summarise(&runs);
    let (comparisons, mut findings) = compare_targets(&figures);
    findings.push(
        Finding::new("latency.bimodal", Severity::Warning, "Read latency has two modes.")
            .of_target(targets[0].0),
    );
    let options = Options { quick, ..Options::default() };
    let plan = Plan {
        suite: "pools".into(),
        title: "Pools of a test".into(),
        method: "How fast are they?".into(),
        options: options.clone(),
        repeats: targets[0].1.len() as u32,
        tests: Vec::new(),
    };
    let target = |(name, _): &(&str, &[u64])| Target {
        name: (*name).into(),
        path: "/t".into(),
        kind: TargetKind::Folder,
    };
    let summary = Summary {
        schema: SCHEMA.into(),
        cenote: "0.1".into(),
        suite: plan.suite.clone(),
        title: plan.title.clone(),
        created_unix_ns: 1_772_150_400_000_000_000,
        complete: true,
        runs: runs.len(),
        planned: runs.len(),
        options,
        targets: targets.iter().map(target).collect(),
        tests: vec![crate::load::result::TestSummary { name: "rand-read".into(), about: "Reads.".into() }],
        tools: Vec::new(),
        machine: Value::Null,
        sampled: Vec::new(),
        missing: vec![Missing { source: "smart".into(), why: "smartctl is not installed".into() }],
        notes: vec!["caches could not be dropped".into()],
        failures: Vec::new(),
        figures: figures.clone(),
    };
    Made { runs, summary, plan, analysis: Analysis { figures, comparisons, findings, ..Analysis::default() } }
}

impl Made {
    fn material(&self) -> Material<'_> {
        Material {
            summary: &self.summary,
            plan: &self.plan,
            machine: &Value::Null,
            runs: &self.runs,
            analysis: &self.analysis,
            advice: &[],
            files: &[],
        }
    }

    fn markdown(&self) -> String {
        markdown(&build(&self.material())).text
    }
}

const FAST: &[u64] = &[12_700, 12_650, 12_800, 12_720, 12_690];
const SLOW: &[u64] = &[419, 421, 418, 420, 419];

#[test]
fn the_summary_names_the_best_the_gap_and_the_gravest_finding() {
    let report = made(&[("data0", SLOW), ("data1", FAST)], false).markdown();
    assert!(
        report.contains("`data0` and `data1` were measured with one test, each run five times."),
        "{report}"
    );
    assert!(report.contains("The widest gap: "), "{report}");
    assert!(report.contains("**12.7 k/s**") && !report.contains("**419 /s**"), "the best is bold: {report}");
    let summary = report.split("## System").next().unwrap();
    assert!(summary.contains("Read latency has two modes."), "{summary}");
    assert!(report.contains("2026-02-27"), "{report}");
}

#[test]
fn both_directions_are_compared_with_what_the_repeats_support() {
    let report = made(&[("data0", SLOW), ("data1", FAST)], false).markdown();
    let comparisons = report.split("## Comparisons").nth(1).unwrap();
    assert!(comparisons.contains("30x") && comparisons.contains("support it (p = 0.016)"), "{comparisons}");
}

#[test]
fn nothing_is_highlighted_if_the_repeats_cannot_separate_targets() {
    let report = made(&[("a", &[100, 104, 98, 101, 99]), ("b", &[101, 99, 103, 100, 98])], false).markdown();
    let row = report.lines().find(|line| line.starts_with("| `rand-read` | Read IOPS")).unwrap();
    assert_eq!(row.matches("**").count(), 0, "{row}");
    assert!(
        report.contains("Nothing is bold: in no row can the repeats separate the best from the others."),
        "{report}"
    );
}

#[test]
fn one_target_has_neither_ranking_nor_comparisons() {
    let report = made(&[("only", FAST)], false).markdown();
    assert!(report.contains("`only` was measured") && report.contains("12.7 k/s"), "{report}");
    for absent in ["## Comparisons", "across targets", "widest gap", "## Recommendations", "## Evidence"] {
        assert!(!report.contains(absent), "{absent}: {report}");
    }
}

#[test]
fn quick_warm_and_unsampled_are_reported() {
    let report = made(&[("only", FAST)], true).markdown();
    assert!(report.contains("**Caution:** This was a quick run"), "{report}");
    assert!(report.contains("caches could not be dropped"), "{report}");
    assert!(report.contains("`smart` | smartctl is not installed"), "{report}");
}

#[test]
fn advice_comes_with_reason_source_command_and_risk() {
    let made = made(&[("only", FAST)], false);
    let advice = [Advice {
        rule: "fill-90".into(),
        severity: crate::advice::Severity::Critical,
        subject: "data0".into(),
        summary: "The pool is 91% full.".into(),
        evidence: vec![Evidence {
            what: "used".into(),
            value: EvidenceValue::Number { value: 91.0, unit: Unit::Percent },
        }],
        reason: "Free space comes in ever smaller pieces.".into(),
        sources: vec!["OpenZFS documentation".into()],
        remedy: Remedy {
            commands: vec!["zfs list -o space".into()],
            risk: Risk::None,
            caution: "It only reads.".into(),
        },
        gauge: None,
    }];
    let report = markdown(&build(&Material { advice: &advice, ..made.material() })).text;
    let section = report.split("## Recommendations").nth(1).unwrap();
    for present in [
        "`data0`",
        "smaller pieces",
        "OpenZFS documentation",
        "used 91.0%",
        "zfs list -o space",
        "none. It only reads.",
    ] {
        assert!(section.contains(present), "{present}: {section}");
    }
}

#[test]
fn one_repeat_claims_nothing() {
    let report = made(&[("a", &[419]), ("b", &[12_700])], false).markdown();
    assert!(report.contains("so the variation of its figures is unknown"), "{report}");
    assert!(!report.contains("(p = "), "{report}");
    assert!(!report.contains("is best"), "{report}");
    let row = report.lines().find(|line| line.starts_with("| `rand-read` | Read IOPS")).unwrap();
    assert!(!row.contains("**"), "one run each highlights nothing: {row}");
}

fn summary(report: &str) -> Vec<&str> {
    let summary = report.split("## Summary").nth(1).unwrap().split("## ").next().unwrap();
    summary.split("\n\n").map(str::trim).filter(|part| !part.is_empty()).collect()
}

#[test]
fn the_summary_answers_first_and_then_qualifies_the_answer() {
    let mut made = made(&[("data0", SLOW), ("data1", FAST)], true);
    let sentence = "The machine was not quiet in 10 of 10 runs: other processes used 60 % of the processors.";
    made.analysis.findings.push(Finding::new("machine.busy", Severity::Warning, sentence));
    let report = made.markdown();
    let parts = summary(&report);
    assert_eq!(
        parts[0],
        "`data1` is best in one of 2 figures; in one the repeats cannot separate the leaders."
    );
    assert!(parts[1].contains(sentence), "{parts:#?}");
    assert!(parts[2].contains("quick run"), "{parts:#?}");
    let numbers = "2 comparisons of headline figures were made, and 1 of 99th percentiles; p values are \
        corrected for these numbers (Holm).";
    assert!(parts.contains(&numbers), "{parts:#?}");
}

#[test]
fn chance_names_no_winner() {
    let alike: [(&str, &[u64]); 2] = [("a", &[100, 130, 98, 101, 120]), ("b", &[110, 99, 143, 100, 98])];
    let report = made(&alike, false).markdown();
    assert_eq!(
        summary(&report)[0],
        "**No target is clearly best:** in all 2 figures the repeats cannot separate the leaders."
    );
    assert!(!report.contains("is best"), "{report}");
    let few: [(&str, &[u64]); 2] = [("a", &[100, 101, 102]), ("b", &[900, 901, 902])];
    let report = made(&few, false).markdown();
    let expected = "each test ran three times, which is too few to distinguish a difference from chance in 2 \
        comparisons (--repeats 5 would suffice).";
    assert!(summary(&report)[0].contains(expected), "{report}");
}

#[test]
fn the_terminal_has_the_figures_and_the_findings() {
    let made = made(&[("data0", SLOW), ("data1", FAST)], false);
    let lines = text(&essentials(&made.material()), Style { colour: false, width: 100 });
    for present in
        ["12.7 k/s", "419 /s", "4.20 s", "Read latency has two modes.", "caches could not be dropped"]
    {
        assert!(lines.contains(present), "{present}: {lines}");
    }
}

#[test]
fn the_page_shows_each_test_with_plots() {
    let made = made(&[("data0", SLOW), ("data1", FAST)], false);
    let page = html(&build(&made.material()));
    // Bars of two figures and one latency across targets; over time, histogram and percentiles of each
    // target.
    assert_eq!(page.matches("<svg").count(), 3 + 2 * 3);
}

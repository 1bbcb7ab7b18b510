//! The summary: the answer, its cautions, the supporting numbers, and the extent of the study.

use super::material::Material;
use super::words;
use crate::advice::facts::{Bears, sweeps};
use crate::analysis::report::document::{Block, Document, Note, Text};
use crate::analysis::{Comparison, FigureKind, Finding, Severity, Standing, Verdict};
use crate::load::measurement::words_of_figure;
use crate::stats::repeats_for;
use crate::unit::{number, times};

/// More findings are no summary.
const MOST_FINDINGS: usize = 4;
/// Most figures of a single target in one sentence.
const MOST_FIGURES: usize = 8;
/// Findings that come before all others.
const FIRST: [&str; 2] = ["machine.busy", "targets.shared"];

pub fn write(material: &Material<'_>, document: &mut Document) {
    document.section("Summary");
    match material.summary.targets.as_slice() {
        [] => {}
        [only] => {
            document.paragraph(figures_of(material, &only.name));
            document.paragraph(limited(material));
        }
        _ => document.paragraph(ranking(material)),
    }
    borne(material, document);
    for caution in cautions(material) {
        document.note(Note::Caution, caution);
    }
    if material.summary.targets.len() > 1 {
        document.paragraph(widest_gap(material));
        document.paragraph(compared(material));
    }
    let found = worth_saying(material);
    if !found.is_empty() {
        let items = found.into_iter().map(|finding| finding.sentence.as_str().into()).collect();
        document.blocks.push(Block::List { ordered: false, items });
    }
    document.paragraph(asked(material));
}

fn asked(material: &Material<'_>) -> Text {
    let summary = material.summary;
    let targets = material.targets();
    let repeats = times(material.plan.repeats);
    let tests = number(summary.tests.len());
    let plural = if summary.tests.len() == 1 { "test" } else { "tests" };
    let head = match targets.len() {
        1 => Text::new().code(targets[0]).plain(" was measured"),
        _ => words::names(targets).plain(" were measured"),
    };
    let how =
        if summary.targets.len() > 1 && summary.options.together { ", all at the same time" } else { "" };
    head.plain(format!(" with {tests} {plural}, each run {repeats}{how}."))
}

/// A single target's figures: all, or the first of each test if too many.
fn figures_of(material: &Material<'_>, target: &str) -> Text {
    let mut named = material.all_headlines();
    let all = named.len();
    if all > MOST_FIGURES {
        named.dedup_by_key(|(test, _)| *test);
        named.truncate(MOST_FIGURES);
    }
    let mut parts = Vec::new();
    for (test, name) in &named {
        if let Some(figure) = material.figure(test, target, name) {
            let value = figure.unit.show(figure.spread.median);
            parts.push(Text::new().code(*test).plain(format!(": {} ", words_of_figure(name))).strong(value));
        }
    }
    let mut text = Text::new();
    for (i, part) in parts.into_iter().enumerate() {
        text = text.plain(if i == 0 { "" } else { "; " });
        text.0.extend(part.0);
    }
    match (text.is_empty(), named.len() < all) {
        (true, _) => text,
        (false, true) => text.plain(". The table below has all figures."),
        (false, false) => text.plain("."),
    }
}

/// Limit of each test of a single target, if that is the suite's question.
fn limited(material: &Material<'_>) -> Text {
    if material.plan.suite != "vm" {
        return Text::new();
    }
    let of = |limits: &crate::analysis::Limits| {
        let by: Vec<&str> = limits.limited_by().iter().map(|part| part.resource.name()).collect();
        let by = if by.is_empty() { "unknown".to_owned() } else { by.join(" and ") };
        Text::new().code(&limits.test).plain(format!(": {by}"))
    };
    let each: Vec<Text> = material.analysis.limits.iter().map(of).collect();
    if each.is_empty() {
        return Text::new();
    }
    let mut text = Text::from("Limits: ");
    text.0.extend(words::list(&each).0);
    text.plain(".")
}

/// Number of operations in flight that a sweep of depths found to be enough.
fn borne(material: &Material<'_>, document: &mut Document) {
    let measurements = material.runs.iter().map(|run| &run.measurement);
    let item = |sweep: &crate::advice::facts::Workers| {
        let text = Text::new().code(&sweep.target).plain(format!(", {}: ", sweep.work));
        match sweep.bears() {
            Bears::Enough { enough, most } => Some(text.plain(format!(
                "{} operations in flight are enough: {} at {}, {} at {}.",
                enough.in_flight,
                crate::unit::Unit::PerSecond.show(enough.iops),
                enough.in_flight,
                crate::unit::Unit::PerSecond.show(most.iops),
                most.in_flight
            ))),
            Bears::More { most } => Some(text.plain(format!(
                "throughput still grows at {} operations in flight; more may be faster.",
                most.in_flight
            ))),
            Bears::NoSweep { .. } => None,
        }
    };
    let items: Vec<Text> = sweeps(material.plan, measurements).iter().filter_map(item).collect();
    document.list(items);
}

/// Winners, and the number of figures in which each is best.
fn ranking(material: &Material<'_>) -> Text {
    let headlines = material.all_headlines();
    let standings: Vec<Standing<'_>> =
        headlines.iter().filter_map(|(test, figure)| material.standing(test, figure)).collect();
    let judged = standings.len();
    if judged == 0 {
        return Text::new();
    }
    let alone = |target: &str| {
        standings.iter().filter(|standing| standing.winner().is_some_and(|f| f.target == target)).count()
    };
    let mut wins: Vec<(&str, usize)> =
        material.targets().into_iter().map(|t| (t, alone(t))).filter(|w| w.1 > 0).collect();
    wins.sort_by_key(|win| std::cmp::Reverse(win.1));
    let all = if judged == 1 { "the one figure".into() } else { format!("all {judged} figures") };
    match wins.as_slice() {
        [] => Text::new().strong("No target is clearly best: ").plain(match too_few(material) {
            Some(why) => why,
            None => format!("in {all} the repeats cannot separate the leaders."),
        }),
        [(winner, n)] if *n == judged => Text::new().code(*winner).plain(format!(" is best in {all}.")),
        wins => {
            let shared = judged - wins.iter().map(|win| win.1).sum::<usize>();
            let part = |(at, (target, n)): (usize, &(&str, usize))| {
                let is = if at == 0 { " is best" } else { "" };
                let of = if at == 0 { format!(" of {judged} figures") } else { String::new() };
                Text::new().code(*target).plain(format!("{is} in {}{of}", number(*n)))
            };
            let parts: Vec<Text> = wins.iter().enumerate().map(part).collect();
            let text = words::list(&parts);
            match shared {
                0 => text.plain("."),
                n => text.plain(format!("; in {} the repeats cannot separate the leaders.", number(n))),
            }
        }
    }
}

/// Why this number of repeats can decide nothing, if so.
fn too_few(material: &Material<'_>) -> Option<String> {
    let mut headline =
        material.analysis.comparisons.iter().filter(|c| c.kind == FigureKind::Headline).peekable();
    let many = headline.peek()?.judged;
    if !headline.all(|c| matches!(c.verdict, Verdict::LargeButFew | Verdict::Unclear | Verdict::Equal)) {
        return None;
    }
    let needed = repeats_for(many);
    let done = times(material.plan.repeats);
    let comparisons = words::count(many, "comparison");
    (u32::try_from(needed).is_ok_and(|needed| needed > material.plan.repeats)).then(|| {
        format!(
            "each test ran {done}, which is too few to distinguish a difference from chance in {comparisons} \
             (--repeats {needed} would suffice)."
        )
    })
}

/// Number of comparisons, and the correction for it.
fn compared(material: &Material<'_>) -> Text {
    let count = |kind: FigureKind| material.analysis.comparisons.iter().filter(|c| c.kind == kind).count();
    match (count(FigureKind::Headline), count(FigureKind::P99)) {
        (0, _) => Text::new(),
        (many, 0) => format!("{}; p values are corrected for that number (Holm).", made(many, "")).into(),
        (many, p99) => format!(
            "{}, and {p99} of 99th percentiles; p values are corrected for these numbers (Holm).",
            made(many, " of headline figures")
        )
        .into(),
    }
}

fn made(many: usize, of: &str) -> String {
    let were = if many == 1 { "was" } else { "were" };
    format!("{}{of} {were} made", words::count(many, "comparison"))
}

/// Largest difference between best and worst of any headline, in the words of the comparison.
fn widest_gap(material: &Material<'_>) -> Text {
    let far = |c: &&Comparison| c.difference.ratio.is_some_and(|r| r > 0.0);
    let headlines = material.all_headlines();
    let of_headline = material
        .analysis
        .comparisons
        .iter()
        .filter(|c| headlines.iter().any(|(t, f)| c.test == *t && c.figure == *f));
    let size = |c: &&Comparison| c.difference.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    // Supported differences come before those that may be chance.
    let rank = |c: &&Comparison| (c.verdict == Verdict::Supported, size(c));
    let widest = of_headline.filter(far).max_by(|a, b| {
        let (a, b) = (rank(a), rank(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    widest.map_or_else(Text::new, |c| format!("The widest gap: {}", c.sentence).into())
}

/// Findings that a hurried reader must see: warnings first, each kind once.
fn worth_saying<'a>(material: &Material<'a>) -> Vec<&'a Finding> {
    let mut chosen: Vec<&Finding> = Vec::new();
    for finding in material.findings("") {
        // The ranking has just been given, and unknown limits do not belong in a summary.
        let known = chosen.iter().any(|c| c.id == finding.id)
            || ["compare.ranking", "compare.far_behind", "limit.unknown"].contains(&finding.id.as_str())
            || FIRST.contains(&finding.id.as_str());
        if finding.severity >= Severity::Notice && !known && chosen.len() < MOST_FINDINGS {
            chosen.push(finding);
        }
    }
    chosen
}

fn cautions(material: &Material<'_>) -> Vec<Text> {
    let summary = material.summary;
    let first = FIRST.iter().flat_map(|id| material.findings(id));
    let mut cautions: Vec<Text> = first.map(|finding| finding.sentence.as_str().into()).collect();
    if summary.options.quick {
        cautions.push(
            "This was a quick run, with smaller data, shorter tests and fewer repeats than the full suite. \
             It shows orders of magnitude; base decisions on a full run."
                .into(),
        );
    }
    if !summary.complete {
        let (done, planned) = (summary.runs, summary.planned);
        cautions.push(format!("The run is incomplete: it has {done} of {planned} measurements.").into());
    }
    cautions
}

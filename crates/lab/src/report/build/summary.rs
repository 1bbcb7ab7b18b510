//! The summary: what was asked, the answer with the numbers that carry it, and what changes how far it can be trusted.

use super::material::Material;
use super::words;
use crate::analysis::{Finding, Severity};
use crate::measurement::words_of_figure;
use crate::report::document::{Block, Document, Note, Text};
use crate::unit::{number, times};

/// More than that is no summary.
const MOST_FINDINGS: usize = 4;
/// Figures of a single target in a sentence.
const MOST_FIGURES: usize = 4;

pub fn write(material: &Material<'_>, document: &mut Document) {
    document.section("Summary");
    document.paragraph(asked(material));
    match material.summary.targets.as_slice() {
        [] => {}
        [only] => document.paragraph(figures_of(material, &only.name)),
        _ => {
            document.paragraph(ranking(material));
            document.paragraph(widest_gap(material));
        }
    }
    let found = worth_saying(material);
    if !found.is_empty() {
        let items = found.into_iter().map(|finding| finding.sentence.as_str().into()).collect();
        document.blocks.push(Block::List { ordered: false, items });
    }
    for caution in cautions(material) {
        document.note(Note::Caution, caution);
    }
}

/// How much was measured.
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
    head.plain(format!(" with {tests} {plural}, each done {repeats}{how}."))
}

/// A single target's figures.
fn figures_of(material: &Material<'_>, target: &str) -> Text {
    let mut parts = Vec::new();
    for (test, name) in material.all_headlines() {
        if let Some(figure) = material.figure(test, target, name) {
            let value = figure.unit.show(figure.spread.median);
            parts.push(Text::new().code(test).plain(format!(": {} ", words_of_figure(name))).strong(value));
        }
    }
    if parts.len() > MOST_FIGURES {
        return Text::new();
    }
    let mut text = Text::new();
    for (i, part) in parts.into_iter().enumerate() {
        text = text.plain(if i == 0 { "" } else { "; " });
        text.0.extend(part.0);
    }
    if text.is_empty() { text } else { text.plain(".") }
}

/// Who is best in how many figures.
fn ranking(material: &Material<'_>) -> Text {
    let headlines = material.all_headlines();
    let leaders: Vec<Vec<&str>> =
        headlines.iter().map(|(test, figure)| material.leaders(test, figure)).collect();
    let judged = leaders.iter().filter(|l| !l.is_empty()).count();
    let alone = |target: &str| leaders.iter().filter(|l| l.as_slice() == [target]).count();
    let mut wins: Vec<(&str, usize)> =
        material.targets().into_iter().map(|t| (t, alone(t))).filter(|w| w.1 > 0).collect();
    wins.sort_by_key(|win| std::cmp::Reverse(win.1));
    if judged == 0 {
        return Text::new();
    }
    if let [(winner, all)] = wins.as_slice()
        && *all == judged
    {
        let of = if judged == 1 { "the one figure".into() } else { format!("all {judged} figures") };
        return Text::new().code(*winner).plain(format!(" came out best in {of}."));
    }
    let shared = judged - wins.iter().map(|win| win.1).sum::<usize>();
    let mut parts: Vec<Text> =
        wins.iter().map(|(target, n)| Text::new().code(*target).plain(format!(" in {n}"))).collect();
    if shared > 0 {
        parts.push(format!("several alike, as far as the repeats tell, in {shared}").into());
    }
    let mut text = Text::from(format!("Best of {}: ", words::count(judged, "figure")));
    text.0.extend(words::list(&parts).0);
    text.plain(".")
}

/// The largest difference between best and worst of any headline, as the comparison puts it.
fn widest_gap(material: &Material<'_>) -> Text {
    let far = |c: &&crate::analysis::Comparison| c.difference.ratio.is_some_and(|r| r > 0.0);
    let headlines = material.all_headlines();
    let of_headline = material
        .analysis
        .comparisons
        .iter()
        .filter(|c| headlines.iter().any(|(t, f)| c.test == *t && c.figure == *f));
    let size = |c: &&crate::analysis::Comparison| c.difference.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    let widest = of_headline.filter(far).max_by(|a, b| size(a).total_cmp(&size(b)));
    widest.map_or_else(Text::new, |c| format!("The widest gap: {}", c.sentence).into())
}

/// Findings that a hurried reader must see: warnings first, each kind once.
fn worth_saying<'a>(material: &Material<'a>) -> Vec<&'a Finding> {
    let mut chosen: Vec<&Finding> = Vec::new();
    for finding in material.findings("") {
        // Who is ahead of whom by how much was said just before; what can't be said is no summary.
        let known = chosen.iter().any(|c| c.id == finding.id)
            || ["compare.ranking", "compare.far_behind", "limit.unknown"].contains(&finding.id.as_str());
        if finding.severity >= Severity::Notice && !known && chosen.len() < MOST_FINDINGS {
            chosen.push(finding);
        }
    }
    chosen
}

/// What must be known before any figure is used.
fn cautions(material: &Material<'_>) -> Vec<Text> {
    let summary = material.summary;
    let mut cautions = Vec::new();
    if summary.options.quick {
        cautions.push(
            "This was a quick run: smaller data, shorter tests and fewer repeats than the suite asks for. \
             It shows orders of magnitude; leave decisions to a full run."
                .into(),
        );
    }
    if !summary.complete {
        let (done, planned) = (summary.runs, summary.planned);
        cautions.push(format!("The run was not finished: {done} of {planned} measurements are here.").into());
    }
    cautions
}

//! `lab compare`: which result is faster, by how much, and whether the data support it.

use cenote_lab::analysis::report::{Column, Document, Note, Table};
use cenote_lab::analysis::{Comparison, FigureKind, Finding};
use cenote_lab::measurement::words_of_figure;
use serde::Serialize;

/// The JSON output.
#[derive(Debug, Serialize)]
pub struct Compared<'a> {
    /// Figures, pair by pair.
    pub comparisons: &'a [Comparison],
    /// Notable differences.
    pub findings: &'a [Finding],
}

/// How the figures changed between results, in one sentence; empty within one result.
fn answer(findings: &[Finding]) -> String {
    let count = |id: &str| findings.iter().filter(|finding| finding.id == id).count();
    match (count("compare.better"), count("compare.worse"), count("compare.same")) {
        (0, 0, 0) => String::new(),
        (0, 0, all) => format!("No change is certain: all {all} headline figures may differ by chance."),
        (better, worse, same) => {
            format!(
                "Of {} headline figures {better} improved, {worse} got worse, {same} may differ by chance.",
                better + worse + same
            )
        }
    }
}

/// The answer, notable findings, then a table for each pair.
pub fn document(Compared { comparisons, findings }: &Compared<'_>) -> Document {
    let mut document = Document { title: "Comparison".into(), ..Document::default() };
    document.paragraph(answer(findings));
    let (cautions, others): (Vec<&Finding>, Vec<&Finding>) = findings
        .iter()
        .partition(|finding| ["compare.options", "compare.alone"].contains(&finding.id.as_str()));
    for caution in cautions {
        document.note(Note::Caution, caution.sentence.as_str());
    }
    if !others.is_empty() {
        document.part("What stands out");
        document.list(others.iter().map(|finding| finding.sentence.as_str().into()).collect());
    }
    let judged = |kind: FigureKind| comparisons.iter().find(|c| c.kind == kind).map_or(0, |c| c.judged);
    document.paragraph(format!(
        "Compared {} headline figures and {} 99th percentiles, with p values corrected for that (Holm).",
        judged(FigureKind::Headline),
        judged(FigureKind::P99)
    ));
    for of_pair in comparisons.chunk_by(|one, other| (&one.a, &one.b) == (&other.a, &other.b)) {
        let (a, b) = (of_pair[0].a.as_str(), of_pair[0].b.as_str());
        document.part(format!("{a} and {b}"));
        let row = |c: &Comparison| {
            let values = [&c.a_spread, &c.b_spread].map(|spread| c.unit.show(spread.median));
            let [of_a, of_b] = values;
            let figure = words_of_figure(&c.figure);
            let cells = [&c.test, &figure, &of_a, &of_b, &c.b_from_a, &c.a_from_b];
            let mut row: Vec<_> = cells.map(|cell| cell.as_str().into()).into();
            row.push(c.support().into());
            row
        };
        document.table(Table {
            columns: vec![
                Column::words("Test"),
                Column::words("Figure"),
                Column::numbers(a),
                Column::numbers(b),
                Column::words(format!("{b} is")),
                Column::words(format!("{a} is")),
                Column::words("The repeats"),
            ],
            rows: of_pair.iter().map(row).collect(),
            ..Table::default()
        });
    }
    document
}

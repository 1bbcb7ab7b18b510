//! `cenote lab compare`: which result is faster, by how much, and whether the data support it.

use std::path::PathBuf;

use cenote_lab::analysis::report::{self, Column, Document, Note, Table};
use cenote_lab::analysis::{Comparison, FigureKind, Finding, Setting, Source, compare_results};
use cenote_lab::measurement::words_of_figure;
use cenote_lab::result::ResultFolder;
use clap::Args;
use serde::Serialize;

use super::failed;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print_bytes, print_json};

/// `cenote lab compare`
#[derive(Debug, Args)]
#[command(after_help = "Compares the targets of one result. Of several results, compares targets of the \
    same name, or all targets if no names match.\n\n\
    Example: cenote lab compare pools-20261122T101500Z pools-20261129T101500Z")]
pub struct Compare {
    /// Folders of results
    #[arg(required = true)]
    pub results: Vec<PathBuf>,
    /// Compare all figures, not only throughput and the 99th percentile
    #[arg(long)]
    pub all: bool,
}

impl Compare {
    /// Runs the command.
    pub fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (mut comparisons, findings) = compare_results(&sources(&self.results)?).map_err(failed)?;
        if !self.all {
            comparisons.retain(|c| {
                [".iops", ".bandwidth", ".p99", ".rate", ".time"].iter().any(|end| c.figure.ends_with(end))
            });
        }
        if session.json() {
            print_json(&Compared { comparisons: &comparisons, findings: &findings })?;
        } else {
            print_bytes(report::text(&document(&comparisons, &findings), super::show::style()))?;
        }
        Ok(Outcome::Done)
    }
}

/// The JSON output.
#[derive(Debug, Serialize)]
struct Compared<'a> {
    comparisons: &'a [Comparison],
    findings: &'a [Finding],
}

/// The contribution of each result to the comparison.
fn sources(results: &[PathBuf]) -> Result<Vec<Source>, CliError> {
    let source = |path: &PathBuf| {
        let folder = ResultFolder::open(path).map_err(failed)?;
        let setting = Setting::from_machine(folder.machine());
        let plan = folder.plan().clone();
        Ok(Source { name: folder.name(), figures: folder.summary().map_err(failed)?.figures, setting, plan })
    };
    results.iter().map(source).collect()
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
fn document(comparisons: &[Comparison], findings: &[Finding]) -> Document {
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

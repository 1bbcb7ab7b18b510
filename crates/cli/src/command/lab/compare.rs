//! `cenote lab compare`: which is faster, by how much, and whether the data support that.

use std::path::PathBuf;

use cenote_lab::analysis::{Comparison, Finding, Setting, Source, compare_results};
use cenote_lab::measurement::words_of_figure;
use cenote_lab::report::{self, Column, Document, Table};
use cenote_lab::result::ResultFolder;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

/// `cenote lab compare`
#[derive(Debug, Args)]
#[command(
    after_help = "One result: its targets with each other. Several: targets of one name in each of them, or all with each other where names differ.\n\n\
    Example: cenote lab compare pools-20261122T101500Z pools-20261129T101500Z"
)]
pub struct Compare {
    /// Results' folders
    #[arg(required = true)]
    pub results: Vec<PathBuf>,
    /// All figures, and not only throughput and the 99th percentile
    #[arg(long)]
    pub all: bool,
}

impl Compare {
    /// Runs the command.
    pub fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (mut comparisons, findings) = compare_results(&sources(&self.results)?);
        if comparisons.is_empty() {
            return Err(CliError::Refused("nothing to compare: no test was done on two of these".into()));
        }
        if !self.all {
            comparisons.retain(|c| {
                [".iops", ".bandwidth", ".p99", ".rate", ".time"].iter().any(|end| c.figure.ends_with(end))
            });
        }
        if session.json() {
            print_json(&comparisons)?;
        } else {
            print(report::text(&document(&comparisons, &findings), super::show::style()))?;
        }
        Ok(Outcome::Done)
    }
}

/// What is compared of each result.
fn sources(results: &[PathBuf]) -> Result<Vec<Source>, CliError> {
    let source = |path: &PathBuf| {
        let folder = ResultFolder::open(path)?;
        let setting = Setting::from_machine(folder.machine());
        Ok(Source { name: folder.name(), figures: folder.summary()?.figures, setting })
    };
    results.iter().map(source).collect()
}

/// A table for each pair of sides, and what stands out.
fn document(comparisons: &[Comparison], findings: &[Finding]) -> Document {
    let mut document = Document { title: "Comparison".into(), ..Document::default() };
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
    if !findings.is_empty() {
        document.part("What stands out");
        document.list(findings.iter().map(|finding| finding.sentence.as_str().into()).collect());
    }
    document
}

//! The method: the work, the tools, the repeats, and missing samples.

use super::material::Material;
use super::words;
use crate::analysis::report::document::{Block, Column, Document, Table, Text};
use crate::load::job::Job;
use crate::load::suite::{Test, Work};
use crate::unit::Unit;

pub fn write(material: &Material<'_>, document: &mut Document) {
    document.section("Method");
    document.paragraph(material.plan.method.as_str());
    document.table(tests(material));
    document.paragraph(how_figures_come(material));
    sampling(material, document);
    if !material.summary.notes.is_empty() {
        document.paragraph("Notes from the runs:");
        let items = material.summary.notes.iter().map(|note| note.as_str().into()).collect();
        document.blocks.push(Block::List { ordered: false, items });
    }
}

fn tests(material: &Material<'_>) -> Table {
    let rows: Vec<Vec<Text>> = material.plan.tests.iter().map(row).collect();
    let mut columns = vec![Column::words("Test"), Column::words("Description"), Column::words("Operations")];
    columns.extend(["Size", "Workers × depth", "Time"].map(Column::numbers));
    // Omit columns that only I/O jobs fill, if none.
    let used = (0..columns.len())
        .filter(|&i| i < 2 || rows.iter().any(|row| !row[i].is_empty()))
        .collect::<Vec<_>>();
    Table {
        caption: Text::new(),
        columns: used.iter().map(|&i| columns[i].clone()).collect(),
        rows: rows.into_iter().map(|row| used.iter().map(|&i| row[i].clone()).collect()).collect(),
    }
}

fn row(test: &Test) -> Vec<Text> {
    let jobs: &[Job] = match &test.work {
        Work::Io(jobs) => &jobs.0,
        _ => &[],
    };
    let join = |of: &dyn Fn(&Job) -> String| {
        let mut each: Vec<String> = jobs.iter().map(of).collect();
        each.dedup();
        Text::from(each.join("; "))
    };
    vec![
        Text::new().code(&test.name),
        test.about.as_str().into(),
        join(&operations),
        join(&|job| Unit::Bytes.show(job.size_bytes as f64)),
        join(&|job| format!("{} × {}", job.workers, job.queue_depth)),
        join(&|job| {
            job.runtime_ns.map_or_else(|| "until done".into(), |ns| Unit::Nanoseconds.show(ns as f64))
        }),
    ]
}

/// `random read 4 KiB, direct`.
fn operations(job: &Job) -> String {
    let order = if job.pattern.random { "random" } else { "sequential" };
    let size = |sizes: &crate::load::job::BlockSizes| Unit::Bytes.show(f64::from(sizes.largest()));
    let kind = match job.pattern.read_percent {
        100 => format!("read {}", size(&job.block_sizes.read)),
        0 => format!("write {}", size(&job.block_sizes.write)),
        reads => format!(
            "{reads}% read {}, {}% write {}",
            size(&job.block_sizes.read),
            100 - reads,
            size(&job.block_sizes.write)
        ),
    };
    format!("{order} {kind}, {}", if job.direct { "direct" } else { "buffered" })
}

fn how_figures_come(material: &Material<'_>) -> Text {
    if material.summary.figures.is_empty() {
        return Text::new();
    }
    let confidence =
        material.summary.figures.iter().filter_map(|f| f.spread.interval).map(|i| i.confidence).next();
    match (material.plan.repeats, confidence) {
        (1, _) => "Each test ran once, so the variation of its figures is unknown.".into(),
        (n, None) => format!("Figures are means of {n} repeats, which are too few for an interval.").into(),
        (n, Some(confidence)) => format!(
            "Figures are medians of {n} repeats, followed by the bootstrap interval of the median (with so \
             few repeats, its confidence is at most {}). A figure whose repeats vary by more than 10% \
             (standard deviation divided by mean) is marked unstable. No outlier was dropped.",
            Unit::Percent.show(confidence * 100.0)
        )
        .into(),
    }
}

fn sampling(material: &Material<'_>, document: &mut Document) {
    let sampled = &material.summary.sampled;
    if !sampled.is_empty() {
        let names = words::names(sampled.iter().map(String::as_str));
        let mut text = Text::from("Sampled during each test: ");
        text.0.extend(names.0);
        document.paragraph(text.plain("."));
    }
    let row = |m: &crate::load::samples::Missing| vec![Text::new().code(&m.source), m.why.as_str().into()];
    document.table(Table {
        caption: "Sources that could not be sampled.".into(),
        columns: vec![Column::words("Source"), Column::words("Reason")],
        rows: material.summary.missing.iter().map(row).collect(),
    });
}

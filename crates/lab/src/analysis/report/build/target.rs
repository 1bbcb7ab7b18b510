//! One target: its figures and percentiles, observations, then each test with its plots.

use super::material::Material;
use super::{across, plots, sampled, words};
use crate::analysis::report::document::{Block, Column, Document, Table, Text};
use crate::load::measurement::words_of_figure;
use crate::unit::Unit;

pub fn write(material: &Material<'_>, target: &str, document: &mut Document) {
    if !material.summary.figures.iter().any(|f| f.target == target) {
        return;
    }
    document.section(Text::from("Target ").code(target));
    document.table(results(material, target));
    document.table(others(material, target));
    document.table(percentiles(material, target));
    let observed = material.findings("").into_iter().filter(|f| f.target.as_deref() == Some(target));
    let items: Vec<Text> = observed
        .filter(|f| !across::is_told_elsewhere(&f.id))
        .map(|f| about_test(f.test.as_deref(), &f.sentence))
        .collect();
    if !items.is_empty() {
        document.part(Text::from("Observations on ").code(target));
        document.blocks.push(Block::List { ordered: false, items });
    }
    for test in material.tests() {
        write_test(material, target, test, document);
    }
}

/// A sentence, prefixed with its test if it does not name it.
pub fn about_test(test: Option<&str>, sentence: &str) -> Text {
    match test {
        Some(test) if !sentence.contains(test) => Text::new().code(test).plain(format!(": {sentence}")),
        _ => sentence.into(),
    }
}

fn write_test(material: &Material<'_>, target: &str, test: &str, document: &mut Document) {
    let repeats = material.repeats(test, target);
    let Some(typical) = material.typical(test, target) else { return };
    let mut drawn: Vec<_> = plots::over_time(test, typical).into_iter().collect();
    drawn.extend(plots::distributions(test, &repeats, &material.operations(test)));
    drawn.extend(sampled::panels(test, typical));
    if drawn.is_empty() {
        return;
    }
    document.blocks.push(Block::Heading(3, Text::new().code(test).plain(" on ").code(target)));
    for plot in drawn {
        document.figure(plot, Text::new());
    }
}

/// Rates, bandwidths and mean latencies, one row for each operation of a test.
fn results(material: &Material<'_>, target: &str) -> Table {
    let mut rows = Vec::new();
    for test in material.tests() {
        for operation in material.operations(test) {
            let cell = |which: &str| {
                words::cell(material.figure(test, target, &format!("{operation}.{which}")), false)
            };
            let moved = moved(material, test, target, operation);
            rows.push(vec![
                Text::new().code(test),
                operation.into(),
                cell("bandwidth"),
                cell("iops"),
                cell("mean"),
                moved,
            ]);
        }
    }
    let mut columns = vec![Column::words("Test"), Column::words("Operation")];
    columns.extend(["Bandwidth", "Operations", "Mean latency", "Data per run"].map(Column::numbers));
    Table { caption: Text::new(), columns, rows }
}

fn moved(material: &Material<'_>, test: &str, target: &str, operation: &str) -> Text {
    let streams = material
        .typical(test, target)
        .map(|run| run.measurement.outcome.streams.as_slice())
        .unwrap_or_default();
    let bytes: u64 = streams.iter().filter(|s| s.operation == operation).map(|s| s.bytes).sum();
    if bytes > 0 { Unit::Bytes.show(bytes as f64).into() } else { Text::new().dim("–") }
}

fn others(material: &Material<'_>, target: &str) -> Table {
    let mut rows = Vec::new();
    for test in material.tests() {
        for name in material.others(test) {
            let Some(figure) = material.figure(test, target, name) else { continue };
            let all: Vec<String> = figure.values.iter().map(|v| figure.unit.show(*v)).collect();
            rows.push(vec![
                Text::new().code(test),
                words::capital(&words_of_figure(name)).into(),
                words::cell(Some(figure), false),
                all.join(", ").into(),
            ]);
        }
    }
    let columns = vec![
        Column::words("Test"),
        Column::words("Figure"),
        Column::numbers("Median"),
        Column::words("All repeats"),
    ];
    Table { caption: Text::new(), columns, rows }
}

fn percentiles(material: &Material<'_>, target: &str) -> Table {
    const WHICH: [&str; 6] = ["p50", "p95", "p99", "p99.5", "p99.9", "max"];
    let mut rows = Vec::new();
    for test in material.tests() {
        for operation in material.operations(test) {
            let figure = |which: &&str| material.figure(test, target, &format!("{operation}.{which}"));
            if figure(&"p50").is_none() {
                continue;
            }
            let shown = |which: &&str| match figure(which) {
                Some(f) => Text::from(f.unit.show(f.spread.median)),
                None => Text::new().dim("–"),
            };
            let head = [Text::new().code(test), operation.into()];
            rows.push(head.into_iter().chain(WHICH.iter().map(shown)).collect());
        }
    }
    let mut columns = vec![Column::words("Test"), Column::words("Operation")];
    columns.extend(["p50", "p95", "p99", "p99.5", "p99.9", "Longest"].map(Column::numbers));
    Table { caption: "Latency percentiles: medians of the repeats.".into(), columns, rows }
}

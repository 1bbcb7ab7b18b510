//! All targets side by side: a table of figures, the same as bars, and latency distributions.

use super::material::Material;
use super::{plots, system, words};
use crate::analysis::plot::{Bar, Bars, Group, Plot, Point, Scatter, Shape};
use crate::analysis::report::document::{Block, Column, Document, Table, Text};
use crate::load::measurement::words_of_figure;
use crate::unit::{Better, Unit};

pub fn write(material: &Material<'_>, document: &mut Document) {
    if material.summary.figures.is_empty() {
        return;
    }
    let several = material.summary.targets.len() > 1;
    document.section(if several { "Results across targets" } else { "Results" });
    document.table(figures(material));
    if several {
        for (test, figure) in material.all_headlines() {
            document.figure(bars(material, test, figure), Text::new());
        }
        latencies(material, document);
        fills(material, document);
    }
    failures(material, document);
    let general =
        material.findings("").into_iter().filter(|f| f.target.is_none() && !is_told_elsewhere(&f.id));
    let items: Vec<Text> = general.map(|f| f.sentence.as_str().into()).collect();
    if !items.is_empty() {
        document.part("Observations");
        document.blocks.push(Block::List { ordered: false, items });
    }
}

fn failures(material: &Material<'_>, document: &mut Document) {
    let row = |f: &crate::load::result::Failure| {
        vec![
            Text::new().code(&f.test),
            Text::new().code(&f.target),
            f.repeat.to_string().into(),
            f.error.as_str().into(),
        ]
    };
    document.table(Table {
        caption: "Tests without a measurement.".into(),
        columns: vec![
            Column::words("Test"),
            Column::words("Target"),
            Column::numbers("Repeat"),
            Column::words("Why"),
        ],
        rows: material.summary.failures.iter().map(row).collect(),
    });
}

pub fn write_figures(material: &Material<'_>, document: &mut Document) {
    if !material.summary.figures.is_empty() {
        document.section("Figures");
        document.table(figures(material));
    }
}

/// Findings already covered by a table or the summary.
pub fn is_told_elsewhere(id: &str) -> bool {
    (id.starts_with("limit.") && id != "limit.cached") || id == "machine.busy" || id == "targets.shared"
}

fn figures(material: &Material<'_>) -> Table {
    let targets = material.targets();
    let mut columns = vec![Column::words("Test"), Column::words("Figure")];
    columns.extend(targets.iter().map(|target| Column::numbers(Text::new().code(*target))));
    let row = |(test, figure): (&str, &str)| {
        let leaders = material.leaders(test, figure);
        let cell =
            |target: &&str| words::cell(material.figure(test, target, figure), leaders.contains(target));
        let head = [Text::new().code(test), words::capital(&words_of_figure(figure)).into()];
        head.into_iter().chain(targets.iter().map(cell)).collect()
    };
    let rows: Vec<Vec<Text>> = material.all_headlines().into_iter().map(row).collect();
    let some = rows.iter().flatten().any(Text::has_strong);
    let caption = match some {
        true => "Bold: the best value of each row, and any that the repeats cannot separate from it.",
        false if targets.len() > 1 => {
            "Nothing is bold: in no row can the repeats separate the best from the others."
        }
        false => "",
    };
    Table { caption: caption.into(), columns, rows }
}

fn bars(material: &Material<'_>, test: &str, figure: &str) -> Plot {
    let of_target = |(i, target): (usize, &&str)| {
        let summary = material.figure(test, target, figure)?;
        let spread = &summary.spread;
        Some((
            summary,
            Bar {
                name: (*target).to_owned(),
                colour: i,
                value: spread.median,
                interval: spread.interval.map(|i| (i.low, i.high)),
                repeats: summary.values.clone(),
                remark: if spread.unstable { "unstable".into() } else { String::new() },
            },
        ))
    };
    let all: Vec<_> = material.targets().iter().enumerate().filter_map(of_target).collect();
    let unit = all.first().map_or(Unit::Number, |one| one.0.unit);
    let better = match all.first().map(|one| one.0.better) {
        Some(Better::Lower) => ", lower is better",
        _ => "",
    };
    let groups = vec![Group { name: String::new(), bars: all.into_iter().map(|one| one.1).collect() }];
    let title = format!("{test}: {}{better}", words_of_figure(figure));
    Plot { title, shape: Shape::Bars(Bars { unit, groups }) }
}

/// Speed against fill, where a cliff was found.
fn fills(material: &Material<'_>, document: &mut Document) {
    let Some(machine) = system::machine(material) else { return };
    for finding in material.findings("fill.cliff") {
        let Some(test) = finding.test.as_deref() else { continue };
        let Some(figure) = material.headlines(test).into_iter().next() else { continue };
        let evidence = |name: &str| finding.evidence.iter().find(|e| e.name == name).map(|e| e.value);
        let Some(at) = evidence("below") else { continue };
        // The finding covers targets on one kind of disk: that of the target beyond the cliff.
        let full =
            |target: &str| system::fill_percent(&machine, target).filter(|fill| (fill - at).abs() < 0.5);
        let Some(beyond) = material.targets().into_iter().find(|target| full(target).is_some()) else {
            continue;
        };
        let medium = system::rotates(&machine, beyond);
        let point = |(i, target): (usize, &&str)| {
            let x = system::fill_percent(&machine, target)
                .filter(|_| system::rotates(&machine, target) == medium)?;
            let y = material.figure(test, target, figure)?.spread.median;
            Some(Point { name: (*target).to_owned(), colour: i, x, y })
        };
        let points: Vec<Point> = material.targets().iter().enumerate().filter_map(point).collect();
        let unit = material.best(test, figure).map_or(Unit::Number, |f| f.unit);
        let scatter = Scatter {
            x: ("full".into(), Unit::Percent),
            y: (words::capital(&words_of_figure(figure)), unit),
            points,
            fit: Vec::new(),
            mark: Some((at, "beyond the cliff".to_owned())),
        };
        let plot = Plot { title: format!("{test}: speed against fill"), shape: Shape::Scatter(scatter) };
        document.figure(plot, Text::new());
    }
}

fn latencies(material: &Material<'_>, document: &mut Document) {
    let mut drawn = Vec::new();
    for test in material.tests() {
        for operation in material.operations(test) {
            let of_target = |target: &&str| plots::spread(&material.repeats(test, target), operation, target);
            let spreads: Vec<_> = material.targets().iter().filter_map(of_target).collect();
            if spreads.len() > 1 {
                let title = format!("{test}: {operation} latency by target");
                drawn.push(Plot { title, shape: Shape::Percentiles(spreads) });
            }
        }
    }
    if !drawn.is_empty() {
        document.part("Latency across targets");
        document.paragraph(
            "Share of operations completed within a given time; each step upwards adds one nine. Further \
             left is faster.",
        );
    }
    for plot in drawn {
        document.figure(plot, Text::new());
    }
}

//! What follows: limits, projections, recommendations; and what lets others check it: the files and the commands.

use super::material::Material;
use super::words;
use crate::advice::{Advice, EvidenceValue, Risk};
use crate::analysis::{Limits, Projected, Projection, Role};
use crate::report::document::{Block, Column, Document, Note, Table, Text};
use crate::unit::{Unit, digits};

pub fn write(material: &Material<'_>, document: &mut Document) {
    limits(material, document);
    projections(material, document);
    recommendations(material, document);
    evidence(material, document);
}

/// All that was found, for a terminal.
pub fn write_findings(material: &Material<'_>, document: &mut Document) {
    let items: Vec<Text> = material.findings("").iter().map(|f| f.sentence.as_str().into()).collect();
    if !items.is_empty() {
        document.section("Findings");
        document.blocks.push(Block::List { ordered: false, items });
    }
    if !material.summary.notes.is_empty() {
        document.section("Notes");
        let items = material.summary.notes.iter().map(|note| note.as_str().into()).collect();
        document.blocks.push(Block::List { ordered: false, items });
    }
}

fn limits(material: &Material<'_>, document: &mut Document) {
    if material.analysis.limits.is_empty() {
        return;
    }
    document.section("What limited it");
    document.paragraph(
        "Argued from how busy each resource was and, where nothing was, from Little's law: operations in flight \
         divided by their latency are all that can be done. A resource that was not sampled is not excluded.",
    );
    for target in material.targets() {
        let of_target = material.analysis.limits.iter().filter(|l| l.target == target);
        let rows: Vec<Vec<Text>> = of_target.map(limit_row).collect();
        let columns = ["Test", "Limited by", "Because", "Had room"].map(Column::words);
        document.table(Table { caption: Text::new().code(target), columns: columns.into(), rows });
    }
}

fn limit_row(limits: &Limits) -> Vec<Text> {
    let with = |role: Role| limits.parts.iter().filter(move |part| part.role == role);
    let (limited, role) = match with(Role::Limit).next() {
        Some(_) => ("", Role::Limit),
        None => ("perhaps ", Role::Possible),
    };
    let names: Vec<Text> = with(role).map(|part| part.resource.name().into()).collect();
    let because: Vec<&str> = with(role).map(|part| part.argument.as_str()).collect();
    let free = with(Role::Free).map(|part| match part.used {
        Some(used) => format!("{} ({})", part.resource.name(), Unit::Percent.show(used * 100.0)),
        None => part.resource.name().to_owned(),
    });
    let by = if names.is_empty() { Text::from("can't be said") } else { Text::from(limited) };
    let mut by = by;
    by.0.extend(words::list(&names).0);
    vec![
        Text::new().code(&limits.test),
        by,
        because.join(" ").into(),
        free.collect::<Vec<_>>().join(", ").into(),
    ]
}

/// Less than this is no gain worth a new device.
const LEAST_GAIN: f64 = 1.1;

fn projections(material: &Material<'_>, document: &mut Document) {
    let all = &material.analysis.projections;
    let rows: Vec<Vec<Text>> =
        all.iter().flat_map(|p| p.projections.iter().filter_map(|one| projection_row(p, one))).collect();
    if rows.is_empty() {
        return;
    }
    document.section("Projections");
    let mut columns = ["Test", "Target", "With", "In place of"].map(Column::words).to_vec();
    columns.extend(["Operations", "Bandwidth", "At most"].map(Column::numbers));
    columns.push(Column::words("Then limited by"));
    let caption = "What other links and disks would give, from least to most, as far as the assumptions below hold. Only what would gain is listed.";
    document.table(Table { caption: caption.into(), columns, rows });
    let mut assumptions: Vec<&str> =
        all.iter().flat_map(|p| p.assumptions.iter().map(String::as_str)).collect();
    assumptions.sort_unstable();
    assumptions.dedup();
    document.list(assumptions.into_iter().map(Text::from).collect());
}

fn projection_row(of: &Projected, one: &Projection) -> Option<Vec<Text>> {
    let range = |unit: Unit, (low, high): (f64, f64)| match (low.is_finite(), high.is_finite()) {
        (true, true) if unit.show(low) == unit.show(high) => unit.show(low),
        (true, true) => format!("{} to {}", unit.show(low), unit.show(high)),
        _ => "–".into(),
    };
    (one.gain >= LEAST_GAIN).then(|| {
        vec![
            Text::new().code(&of.test),
            Text::new().code(&of.target),
            one.with.as_str().into(),
            one.instead_of.name().into(),
            range(Unit::PerSecond, one.iops).into(),
            range(Unit::BytesPerSecond, one.bandwidth).into(),
            format!("{}x", digits(one.gain)).into(),
            one.next_limit.name().into(),
        ]
    })
}

fn recommendations(material: &Material<'_>, document: &mut Document) {
    if material.advice.is_empty() {
        return;
    }
    document.section("Recommendations");
    let mut all: Vec<&Advice> = material.advice.iter().collect();
    all.sort_by_key(|advice| std::cmp::Reverse(advice.severity));
    for advice in all {
        recommendation(advice, document);
    }
}

fn recommendation(advice: &Advice, document: &mut Document) {
    document
        .blocks
        .push(Block::Heading(3, Text::new().code(&advice.subject).plain(format!(": {}", advice.summary))));
    let evidence: Vec<String> = advice
        .evidence
        .iter()
        .map(|e| match &e.value {
            EvidenceValue::Number { value, unit } => format!("{} {}", e.what, unit.show(*value)),
            EvidenceValue::Word { value } => format!("{} {value}", e.what),
        })
        .collect();
    let mut items = vec![
        Text::new().strong("Why: ").plain(advice.reason).dim(format!(" ({})", advice.sources.join("; "))),
    ];
    if !evidence.is_empty() {
        items.push(Text::new().strong("Evidence: ").plain(format!("{}.", evidence.join(", "))));
    }
    let risk = match advice.remedy.risk {
        Risk::None => "none",
        Risk::Low => "low",
        Risk::Medium => "medium",
        Risk::High => "high",
    };
    items.push(Text::new().strong("Risk: ").plain(format!("{risk}. {}", advice.remedy.caution)));
    items.push(
        Text::new().strong("Severity: ").plain(advice.severity.name()).plain(", rule ").code(advice.rule),
    );
    document.list(items);
    if !advice.remedy.commands.is_empty() {
        document.blocks.push(Block::Code(advice.remedy.commands.join("\n")));
    }
}

fn evidence(material: &Material<'_>, document: &mut Document) {
    let command = &material.plan.options.command;
    if material.files.is_empty() && command.is_empty() {
        return;
    }
    document.section("Evidence");
    let row = |file: &super::File| vec![Text::new().file(&file.path), file.about.as_str().into()];
    document.table(Table {
        caption: "All that this report rests on is in its folder.".into(),
        columns: vec![Column::words("File"), Column::words("What is in it")],
        rows: material.files.iter().map(row).collect(),
    });
    if !command.is_empty() {
        document.part("To repeat it");
        document.blocks.push(Block::Code(command.clone()));
        document.note(
            Note::Info,
            "Test files are made anew and removed; figures depend on how full and how warm the storage is.",
        );
    }
}

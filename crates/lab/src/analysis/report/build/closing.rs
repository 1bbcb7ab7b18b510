//! The conclusions: limits, projections, recommendations; and the evidence: files and commands.

use super::material::Material;
use super::words;
use crate::advice::{Advice, EvidenceValue, Risk};
use crate::analysis::report::document::{Block, Column, Document, Note, Table, Text};
use crate::analysis::{Limits, Projected, Projection, Role};
use crate::unit::{Unit, digits};

pub fn write(material: &Material<'_>, document: &mut Document) {
    limits(material, document);
    projections(material, document);
    recommendations(material, document);
    evidence(material, document);
}

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
    document.section("What limited each test");
    document.paragraph(
        "Each limit is inferred from how busy the resources were. If none was saturated, it is inferred from \
         Little's law: throughput is at most the operations in flight divided by their latency. A resource \
         that was not sampled is not ruled out.",
    );
    for target in material.targets() {
        let of_target = material.analysis.limits.iter().filter(|l| l.target == target);
        let rows: Vec<Vec<Text>> = of_target.map(limit_row).collect();
        let columns = ["Test", "Limited by", "Evidence", "Spare capacity"].map(Column::words);
        document.table(Table { caption: Text::new().code(target), columns: columns.into(), rows });
    }
}

fn limit_row(limits: &Limits) -> Vec<Text> {
    let with = |role: Role| limits.parts.iter().filter(move |part| part.role == role);
    let (limited, role, because) = match limits.limited_by().as_slice() {
        [] => {
            let possible: Vec<&str> = with(Role::Possible).map(|part| part.argument.as_str()).collect();
            ("perhaps ", Role::Possible, possible.join(" "))
        }
        _ => ("", Role::Limit, limits.verdict()),
    };
    let names: Vec<Text> = with(role).map(|part| part.resource.name().into()).collect();
    let free = with(Role::Free).map(|part| match part.used {
        Some(used) => format!("{} ({})", part.resource.name(), Unit::Percent.show(used * 100.0)),
        None => part.resource.name().to_owned(),
    });
    let is_crowded = limits.observed.cpu.is_some_and(|cpu| cpu.is_crowded());
    let by = match role {
        Role::Possible if names.is_empty() || is_crowded => Text::from("unknown"),
        _ => {
            let mut by = Text::from(limited);
            by.0.extend(words::list(&names).0);
            by
        }
    };
    vec![Text::new().code(&limits.test), by, because.into(), free.collect::<Vec<_>>().join(", ").into()]
}

/// A smaller gain is not worth a new device.
const LEAST_GAIN: f64 = 1.1;

fn projections(material: &Material<'_>, document: &mut Document) {
    let all = &material.analysis.projections;
    let rows: Vec<Vec<Text>> =
        all.iter().flat_map(|p| p.projections.iter().filter_map(|one| projection_row(p, one))).collect();
    if rows.is_empty() {
        return;
    }
    document.section("Projections");
    let mut columns = ["Test", "Target", "With", "Instead of"].map(Column::words).to_vec();
    columns.extend(["Measured", "Operations", "Bandwidth", "Gain"].map(Column::numbers));
    columns.push(Column::words("Next limit"));
    let caption = "Estimated results with other links and disks, minimum to maximum, under the assumptions \
        below. Listed are those that may be faster; where the gain begins below 1x, they may as well be \
        slower.";
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
            Unit::PerSecond.show(of.demands.measured()).into(),
            range(Unit::PerSecond, one.iops).into(),
            range(Unit::BytesPerSecond, one.bandwidth).into(),
            format!("{} to {}x", digits(one.least_gain), digits(one.gain)).into(),
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
        Text::new().strong("Why: ").plain(&*advice.reason).dim(format!(" ({})", advice.sources.join("; "))),
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
        Text::new().strong("Severity: ").plain(advice.severity.name()).plain(", rule ").code(&*advice.rule),
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
        caption: "The evidence for this report, in its folder.".into(),
        columns: vec![Column::words("File"), Column::words("Content")],
        rows: material.files.iter().map(row).collect(),
    });
    if !command.is_empty() {
        document.part("Repeating the study");
        document.blocks.push(Block::Code(command.clone()));
        document.note(
            Note::Info,
            "Test files are created for each run and removed afterwards. Figures depend on how full the \
             storage is and on what it has cached.",
        );
    }
}

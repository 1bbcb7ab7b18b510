//! Builds a [`Document`] from a result and its findings: its sections and their order.
//!
//! The answer comes first, with its numbers; then the system and the method, all targets side by side, each
//! target with its plots, the conclusions, and the evidence. Invariants: numbers are rounded only as in
//! tables; findings that the data do not support are marked; an empty section is left out, unless its
//! emptiness is news.

mod across;
mod closing;
mod comparisons;
mod files;
mod material;
mod method;
mod plots;
mod sampled;
mod summary;
mod system;
mod target;
#[cfg(test)]
mod tests;
mod words;

pub use files::files;
pub use material::{File, Material};

use super::document::{Document, Text};

/// Full report.
pub fn build(material: &Material<'_>) -> Document {
    let mut document =
        Document { title: material.summary.title.clone(), about: about(material), blocks: Vec::new() };
    summary::write(material, &mut document);
    system::write(material, &mut document);
    method::write(material, &mut document);
    across::write(material, &mut document);
    for target in &material.summary.targets {
        target::write(material, &target.name, &mut document);
    }
    comparisons::write(material, &mut document);
    closing::write(material, &mut document);
    document
}

/// Answer, the figures, the findings and the cautions, for a terminal.
pub fn essentials(material: &Material<'_>) -> Document {
    let mut document =
        Document { title: material.summary.title.clone(), about: about(material), blocks: Vec::new() };
    summary::write(material, &mut document);
    across::write_figures(material, &mut document);
    closing::write_findings(material, &mut document);
    document
}

fn about(material: &Material<'_>) -> Vec<(String, Text)> {
    let summary = material.summary;
    let names: Vec<Text> = summary.targets.iter().map(|t| Text::new().code(&t.name)).collect();
    let mut facts = vec![("Date".to_owned(), words::date(summary.created_unix_ns).into())];
    if let Some(machine) = system::machine(material) {
        facts.push(("Host".into(), machine.host.into()));
    }
    facts.push(("Targets".into(), words::list(&names)));
    facts.push(("Suite".into(), Text::new().code(&summary.suite)));
    let tools: Vec<Text> =
        summary.tools.iter().map(|t| format!("{} {}", t.name, t.version).trim().into()).collect();
    if !tools.is_empty() {
        facts.push(("Measured with".into(), words::list(&tools)));
    }
    facts
}

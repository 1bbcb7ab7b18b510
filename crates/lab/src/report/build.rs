//! From a result and what was found in it to a [`Document`]: which sections there are, in which order.
//!
//! Idea: a reader who stops early has the most. First the answer with the numbers that carry it, then what it was asked of and how, then all
//! targets side by side, then each by itself with its plots, then what follows from that; last what lets others check it.
//! Invariants: a number is written where it was measured or derived, never rounded further than tables show; what the data do not
//! support is said to be so; a section that would have nothing to say is left out, unless that it has nothing is news.

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

/// The whole report.
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

/// The essentials, for a terminal: the answer, the figures, what was found and what to mind.
pub fn essentials(material: &Material<'_>) -> Document {
    let mut document =
        Document { title: material.summary.title.clone(), about: about(material), blocks: Vec::new() };
    summary::write(material, &mut document);
    across::write_figures(material, &mut document);
    closing::write_findings(material, &mut document);
    document
}

/// The facts under the title.
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

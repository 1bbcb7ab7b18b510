//! Reports: what was found, written so that a reader needs nothing else to judge it.
//!
//! ```text
//! result, findings ──> build ──> Document ──┬──> markdown  + plots/*.svg
//!                                           ├──> html        one page that fetches nothing
//!                                           └──> text        for a terminal
//! ```
//!
//! A [`Document`] is a list of [`Block`]s and knows no format. Words in it are plain ([`Text`]); each renderer escapes all of them, because
//! names of pools, files, disks and hosts are whatever somebody made them.

mod build;
mod document;
pub(crate) mod escape;
mod html;
mod markdown;
#[cfg(test)]
mod tests;
mod text;

use build::files;
pub use build::{File, Material, build, essentials};
pub use document::{Align, Block, Cell, Column, Document, Figure, Note, Span, Table, Text};
pub use html::html;
pub use markdown::{Markdown, markdown};
pub use text::{Style, text};

use std::fs;
use std::path::Path;

use crate::advice::Advice;
use crate::analysis::analyse;
use crate::result::ResultFolder;
use crate::{LabError, Result};

/// Names of a report's files in its folder.
pub const MARKDOWN: &str = "report.md";
/// The page.
pub const HTML: &str = "report.html";

/// Reads a result, analyses it, and gives `shape` ([`build`] or [`essentials`]) what it needs: all that was measured, what should be done
/// about it, and the commands that repeat it.
///
/// # Errors
/// A run can't be read.
pub fn of_result(
    folder: &ResultFolder,
    advice: &[Advice],
    commands: &[String],
    shape: fn(&Material<'_>) -> Document,
) -> Result<Document> {
    let runs = folder.runs().collect::<Result<Vec<_>>>()?;
    let material = Material {
        summary: &folder.summary()?,
        plan: folder.plan(),
        machine: folder.machine(),
        runs: &runs,
        analysis: &analyse(folder)?,
        advice,
        files: &files(folder),
        commands,
    };
    Ok(shape(&material))
}

/// Writes the report into `folder` as Markdown with its plots, and as a page. What an earlier report left there is replaced: all of it
/// is derived from what is beside it.
///
/// # Errors
/// Something can't be written.
pub fn write(document: &Document, folder: &Path) -> Result<()> {
    let put = |path: &Path, content: &str| {
        fs::write(path, content).map_err(LabError::io(format!("{}: can't be written", path.display())))
    };
    let plots = folder.join("plots");
    fs::create_dir_all(&plots).map_err(LabError::io(format!("{}: can't be made", plots.display())))?;
    let markdown = markdown(document);
    for (path, svg) in &markdown.plots {
        put(&folder.join(path), svg)?;
    }
    put(&folder.join(MARKDOWN), &markdown.text)?;
    put(&folder.join(HTML), &html(document))
}

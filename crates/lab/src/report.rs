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

use crate::advice::{Advice, Facts, review};
use crate::analysis::{Analysis, Setting, analyse_runs};
use crate::result::{ResultFolder, Run, Summary};
use crate::{LabError, Result};

/// Names of a report's files in its folder.
pub const MARKDOWN: &str = "report.md";
/// The page.
pub const HTML: &str = "report.html";

/// A result, read once, with all that follows from it: what documents are written from.
#[derive(Debug)]
pub struct Study<'a> {
    folder: &'a ResultFolder,
    runs: Vec<Run>,
    summary: Summary,
    analysis: Analysis,
    advice: Vec<Advice>,
}

impl<'a> Study<'a> {
    /// Reads a result and analyses it. Memory: all its runs.
    ///
    /// # Errors
    /// A run can't be read, or the machine's description is of another version.
    pub fn read(folder: &'a ResultFolder) -> Result<Study<'a>> {
        let runs = folder.runs().collect::<Result<Vec<_>>>()?;
        let setting = Setting::from_machine(folder.machine());
        Ok(Study {
            folder,
            summary: folder.summary_of(&runs)?,
            analysis: analyse_runs(folder.plan(), &setting, runs.iter().map(Ok))?,
            advice: review(&Facts::of_runs(folder, runs.iter().map(Ok))?).advice,
            runs,
        })
    }

    /// A document of such a shape about it: [`build`] or [`essentials`].
    pub fn document(&self, shape: fn(&Material<'_>) -> Document) -> Document {
        shape(&Material {
            summary: &self.summary,
            plan: self.folder.plan(),
            machine: self.folder.machine(),
            runs: &self.runs,
            analysis: &self.analysis,
            advice: &self.advice,
            files: &files(self.folder),
        })
    }
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

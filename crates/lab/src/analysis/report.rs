//! Reports: the findings, with everything a reader needs to judge them.
//!
//! ```text
//! result, findings ──> build ──> Document ──┬──> markdown  + plots/*.svg
//!                                           ├──> html        one page that fetches nothing
//!                                           └──> text        for a terminal
//! ```
//!
//! A [`Document`] is a list of [`Block`]s, independent of any format. Its text is plain ([`Text`]); each
//! renderer escapes all, because names of pools, files, disks and hosts may contain anything.

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
use crate::load::result::{ResultFolder, Run, Summary};
use crate::{LabError, Result};

/// Name of the Markdown report in its folder.
pub const MARKDOWN: &str = "report.md";
/// Name of the HTML report.
pub const HTML: &str = "report.html";

/// An analysed result: the input of documents.
#[derive(Debug)]
pub struct Study<'a> {
    folder: &'a ResultFolder,
    runs: Vec<Run>,
    summary: Summary,
    analysis: Analysis,
    advice: Vec<Advice>,
}

impl<'a> Study<'a> {
    /// Reads and analyses a result, with all its runs in memory.
    ///
    /// # Errors
    /// A run cannot be read, or the machine's description has another version.
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

    /// Makes a document: [`build`] or [`essentials`].
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

/// Writes the report into `folder`, as Markdown with plots and as an HTML page. It replaces an earlier
/// report: all is derived from the files beside it.
///
/// # Errors
/// A file cannot be written.
pub fn write(document: &Document, folder: &Path) -> Result<()> {
    let put = |path: &Path, content: &str| {
        fs::write(path, content).map_err(LabError::io(format!("cannot write {}", path.display())))
    };
    let plots = folder.join("plots");
    fs::create_dir_all(&plots).map_err(LabError::io(format!("cannot create {}", plots.display())))?;
    let markdown = markdown(document);
    for (path, svg) in &markdown.plots {
        put(&folder.join(path), svg)?;
    }
    put(&folder.join(MARKDOWN), &markdown.text)?;
    put(&folder.join(HTML), &html(document))
}

//! How a study is written down: words and tables, in the order in which they are read.
//!
//! Idea: words are Markdown; tables stay rows of cells, so that whoever shows the report lays out their
//! columns as in all its other tables.

/// A report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report(pub Vec<Part>);

/// A part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Markdown, its ends of lines included.
    Text(String),
    /// Columns.
    Table(Table),
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// What is above the columns.
    pub heads: Vec<&'static str>,
    /// How many columns, from the left, are words; the others are numbers.
    pub words: usize,
    /// As many cells each as there are heads.
    pub rows: Vec<Vec<String>>,
}

/// A file that goes with a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Its name, beside the report.
    pub name: String,
    /// Its content: a header, and columns separated by tabs.
    pub text: String,
}

impl Report {
    /// Adds words.
    pub(crate) fn text(&mut self, text: String) {
        self.0.push(Part::Text(text));
    }

    /// Adds a table.
    pub(crate) fn table<const N: usize>(
        &mut self,
        words: usize,
        heads: [&'static str; N],
        rows: impl Iterator<Item = [String; N]>,
    ) {
        let rows = rows.map(Vec::from).collect();
        self.0.push(Part::Table(Table { heads: heads.into(), words, rows }));
    }
}

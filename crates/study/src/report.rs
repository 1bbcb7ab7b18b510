//! Report of a study: text and tables in reading order.
//!
//! Idea: text is Markdown. Tables stay rows of cells, which the caller lays out like its other tables.

/// Parts in reading order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report(pub Vec<Part>);

/// Part of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Markdown with line breaks.
    Text(String),
    /// Rows and columns.
    Table(Table),
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Column headings.
    pub heads: Vec<&'static str>,
    /// Number of text columns, from the left; all others are numeric.
    pub words: usize,
    /// Rows with one cell per heading.
    pub rows: Vec<Vec<String>>,
}

/// A file beside a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// File name.
    pub name: String,
    /// Header line and tab-separated columns.
    pub text: String,
}

impl Report {
    pub(crate) fn text(&mut self, text: String) {
        self.0.push(Part::Text(text));
    }

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

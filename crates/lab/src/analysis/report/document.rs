//! The elements of a report, independent of format.

use crate::analysis::plot::Plot;

/// A report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Document {
    /// Title of the page.
    pub title: String,
    /// Short facts below the title: date, host, tool.
    pub about: Vec<(String, Text)>,
    /// Content in order.
    pub blocks: Vec<Block>,
}

/// Element of a report.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// A heading: level 1 for sections, 2 and 3 for their parts.
    Heading(u8, Text),
    /// A paragraph.
    Paragraph(Text),
    /// A list.
    List {
        /// Numbered.
        ordered: bool,
        /// Items in order.
        items: Vec<Text>,
    },
    /// A table.
    Table(Table),
    /// A plot.
    Figure(Figure),
    /// Literal lines: commands, output.
    Code(String),
    /// A paragraph that must not be overlooked.
    Note(Note, Text),
}

/// Importance of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// Good to know.
    Info,
    /// Changes how to read the figures.
    Caution,
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// Explains how to read the table; may be empty.
    pub caption: Text,
    /// Properties of each column.
    pub columns: Vec<Column>,
    /// Rows with a cell per column.
    pub rows: Vec<Vec<Cell>>,
}

/// Properties of a column's cells.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Heading of the column.
    pub title: Text,
    /// Alignment of its cells.
    pub align: Align,
}

/// Alignment of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Content of a cell.
pub type Cell = Text;

/// A plot with its caption.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Plot to draw.
    pub plot: Plot,
    /// Explains how to read the plot; may be empty.
    pub caption: Text,
}

/// Running text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text(pub Vec<Span>);

/// A run of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Span {
    /// Unformatted.
    Plain(String),
    /// Highlighted: the best of a row.
    Strong(String),
    /// Names of files, commands, properties.
    Code(String),
    /// Less important: an interval after a median.
    Dim(String),
    /// A file beside the report, by its relative path.
    File(String),
}

impl Span {
    /// The text.
    pub fn words(&self) -> &str {
        match self {
            Span::Plain(w) | Span::Strong(w) | Span::Code(w) | Span::Dim(w) | Span::File(w) => w,
        }
    }
}

impl Text {
    /// Whether any span is highlighted.
    pub fn has_strong(&self) -> bool {
        self.0.iter().any(|span| matches!(span, Span::Strong(_)))
    }

    /// Empty text.
    pub fn new() -> Text {
        Text::default()
    }

    /// Appends plain text.
    #[must_use]
    pub fn plain(self, words: impl Into<String>) -> Text {
        self.with(Span::Plain(words.into()))
    }

    /// Appends highlighted text.
    #[must_use]
    pub fn strong(self, words: impl Into<String>) -> Text {
        self.with(Span::Strong(words.into()))
    }

    /// Appends a name or command.
    #[must_use]
    pub fn code(self, words: impl Into<String>) -> Text {
        self.with(Span::Code(words.into()))
    }

    /// Appends less important text.
    #[must_use]
    pub fn dim(self, words: impl Into<String>) -> Text {
        self.with(Span::Dim(words.into()))
    }

    /// Appends a link to a file beside the report.
    #[must_use]
    pub fn file(self, path: impl Into<String>) -> Text {
        self.with(Span::File(path.into()))
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|span| span.words().is_empty())
    }

    /// All text without formatting.
    pub fn words(&self) -> String {
        self.0.iter().map(Span::words).collect()
    }

    fn with(mut self, span: Span) -> Text {
        if !span.words().is_empty() {
            self.0.push(span);
        }
        self
    }
}

impl From<&str> for Text {
    fn from(words: &str) -> Text {
        Text::new().plain(words)
    }
}

impl From<String> for Text {
    fn from(words: String) -> Text {
        Text::new().plain(words)
    }
}

impl Column {
    /// A column of text.
    pub fn words(title: impl Into<Text>) -> Column {
        Column { title: title.into(), align: Align::Left }
    }

    /// A column of numbers.
    pub fn numbers(title: impl Into<Text>) -> Column {
        Column { title: title.into(), align: Align::Right }
    }
}

impl Document {
    /// Starts a section.
    pub fn section(&mut self, title: impl Into<Text>) {
        self.blocks.push(Block::Heading(1, title.into()));
    }

    /// Starts a part of a section.
    pub fn part(&mut self, title: impl Into<Text>) {
        self.blocks.push(Block::Heading(2, title.into()));
    }

    /// Appends a paragraph, unless empty.
    pub fn paragraph(&mut self, text: impl Into<Text>) {
        let text = text.into();
        if !text.is_empty() {
            self.blocks.push(Block::Paragraph(text));
        }
    }

    /// Appends an unnumbered list, unless empty.
    pub fn list(&mut self, items: Vec<Text>) {
        if !items.is_empty() {
            self.blocks.push(Block::List { ordered: false, items });
        }
    }

    /// Appends a table, unless it has no rows.
    pub fn table(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.blocks.push(Block::Table(table));
        }
    }

    /// Appends a plot.
    pub fn figure(&mut self, plot: Plot, caption: impl Into<Text>) {
        self.blocks.push(Block::Figure(Figure { plot, caption: caption.into() }));
    }

    /// Appends a note.
    pub fn note(&mut self, note: Note, text: impl Into<Text>) {
        self.blocks.push(Block::Note(note, text.into()));
    }
}

//! What a report is made of, without a format.

use crate::plot::Plot;

/// A report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Document {
    /// Its title.
    pub title: String,
    /// When, where, by what: short facts under the title.
    pub about: Vec<(String, Text)>,
    /// All that follows.
    pub blocks: Vec<Block>,
}

/// A piece of a report.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// A heading: level 1 for sections, 2 and 3 for what is in them.
    Heading(u8, Text),
    /// A paragraph.
    Paragraph(Text),
    /// A list.
    List {
        /// Numbered.
        ordered: bool,
        /// Its items.
        items: Vec<Text>,
    },
    /// A table.
    Table(Table),
    /// A plot.
    Figure(Figure),
    /// Lines as they are: commands, output.
    Code(String),
    /// A paragraph that must not be missed.
    Note(Note, Text),
}

/// How much a note matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// Good to know.
    Info,
    /// Changes how the figures are to be read.
    Caution,
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// What is seen, and how to read it; may be empty.
    pub caption: Text,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, each with a cell per column.
    pub rows: Vec<Vec<Cell>>,
}

/// What all cells of a column share.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its heading.
    pub title: Text,
    /// How its cells are set.
    pub align: Align,
}

/// How cells are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// What is in a cell.
pub type Cell = Text;

/// A plot and what it shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The plot.
    pub plot: Plot,
    /// What is seen, and how to read it; may be empty.
    pub caption: Text,
}

/// Running text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text(pub Vec<Span>);

/// A piece of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Span {
    /// As it is.
    Plain(String),
    /// Stands out: the best of a row.
    Strong(String),
    /// Names of files, commands, properties.
    Code(String),
    /// Less important: an interval behind a median.
    Dim(String),
    /// A file beside the report, by its relative path.
    File(String),
}

impl Span {
    /// The words in it.
    pub fn words(&self) -> &str {
        match self {
            Span::Plain(w) | Span::Strong(w) | Span::Code(w) | Span::Dim(w) | Span::File(w) => w,
        }
    }
}

impl Text {
    /// Nothing.
    pub fn new() -> Text {
        Text::default()
    }

    /// Plain words behind it.
    #[must_use]
    pub fn plain(self, words: impl Into<String>) -> Text {
        self.with(Span::Plain(words.into()))
    }

    /// Words that stand out behind it.
    #[must_use]
    pub fn strong(self, words: impl Into<String>) -> Text {
        self.with(Span::Strong(words.into()))
    }

    /// A name or command behind it.
    #[must_use]
    pub fn code(self, words: impl Into<String>) -> Text {
        self.with(Span::Code(words.into()))
    }

    /// Less important words behind it.
    #[must_use]
    pub fn dim(self, words: impl Into<String>) -> Text {
        self.with(Span::Dim(words.into()))
    }

    /// A file beside the report behind it.
    #[must_use]
    pub fn file(self, path: impl Into<String>) -> Text {
        self.with(Span::File(path.into()))
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|span| span.words().is_empty())
    }

    /// All words, without how they are set.
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
    /// A column of words.
    pub fn words(title: impl Into<Text>) -> Column {
        Column { title: title.into(), align: Align::Left }
    }

    /// A column of numbers.
    pub fn numbers(title: impl Into<Text>) -> Column {
        Column { title: title.into(), align: Align::Right }
    }
}

impl Document {
    /// A section.
    pub fn section(&mut self, title: impl Into<Text>) {
        self.blocks.push(Block::Heading(1, title.into()));
    }

    /// A part of a section.
    pub fn part(&mut self, title: impl Into<Text>) {
        self.blocks.push(Block::Heading(2, title.into()));
    }

    /// A paragraph; nothing if it is empty.
    pub fn paragraph(&mut self, text: impl Into<Text>) {
        let text = text.into();
        if !text.is_empty() {
            self.blocks.push(Block::Paragraph(text));
        }
    }

    /// A list without numbers; nothing if it is empty.
    pub fn list(&mut self, items: Vec<Text>) {
        if !items.is_empty() {
            self.blocks.push(Block::List { ordered: false, items });
        }
    }

    /// A table; nothing if it has no rows.
    pub fn table(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.blocks.push(Block::Table(table));
        }
    }

    /// A plot.
    pub fn figure(&mut self, plot: Plot, caption: impl Into<Text>) {
        self.blocks.push(Block::Figure(Figure { plot, caption: caption.into() }));
    }

    /// A note.
    pub fn note(&mut self, note: Note, text: impl Into<Text>) {
        self.blocks.push(Block::Note(note, text.into()));
    }
}

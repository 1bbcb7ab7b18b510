//! Renders a document as plain text for a terminal: text wrapped, tables in columns, plots omitted.

use super::document::{Align, Block, Document, Span, Table, Text};
use super::escape::visible;
use super::markdown::label;

/// Layout of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Bold and dim text by escape codes.
    pub colour: bool,
    /// Characters per line.
    pub width: usize,
}

const BOLD: &str = "\u{1b}[1m";
const DIM: &str = "\u{1b}[2m";
const END: &str = "\u{1b}[0m";
const BETWEEN_COLUMNS: &str = "  ";

/// Renders the document.
pub fn text(document: &Document, style: Style) -> String {
    let mut out = String::new();
    let mut say = |lines: &str| {
        out.push_str(lines);
        out.push('\n');
    };
    say(&style.bold(&visible(&document.title)));
    for (name, value) in &document.about {
        say(&format!("{}: {}", visible(name), style.inline(value)));
    }
    for block in &document.blocks {
        let lines = match block {
            Block::Heading(1, text) => style.bold(&visible(&text.words()).to_uppercase()),
            Block::Heading(_, text) => style.bold(&visible(&text.words())),
            Block::Paragraph(text) => style.wrap(text, "", ""),
            Block::List { items, .. } => {
                items.iter().map(|item| style.wrap(item, "- ", "  ")).collect::<Vec<_>>().join("\n")
            }
            Block::Table(t) => style.table(t),
            Block::Code(code) => {
                code.lines().map(|l| format!("  {}", visible(l))).collect::<Vec<_>>().join("\n")
            }
            Block::Note(note, text) => style.wrap(text, &format!("{}: ", label(*note)), "  "),
            Block::Figure(_) => continue,
        };
        say("");
        say(&lines);
    }
    out
}

impl Style {
    fn bold(self, words: &str) -> String {
        if self.colour { format!("{BOLD}{words}{END}") } else { words.to_owned() }
    }

    fn span(self, span: &Span) -> String {
        let words = visible(span.words());
        match span {
            Span::Strong(_) => self.bold(&words),
            Span::Dim(_) if self.colour => format!("{DIM}{words}{END}"),
            _ => words,
        }
    }

    fn inline(self, text: &Text) -> String {
        text.0.iter().map(|span| self.span(span)).collect()
    }

    /// Wraps to lines of `self.width` characters; the first starts with `first`, all others with `others`.
    fn wrap(self, text: &Text, first: &str, others: &str) -> String {
        let words = visible(&text.words());
        let mut lines = vec![first.to_owned()];
        let mut empty = true;
        for word in words.split(' ').filter(|word| !word.is_empty()) {
            let Some(line) = lines.last_mut() else { break };
            if !empty && length(line) + 1 + length(word) > self.width {
                lines.push(format!("{others}{word}"));
                continue;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
        lines.join("\n")
    }

    fn table(self, table: &Table) -> String {
        let cells = |row: &[Text]| row.iter().map(|cell| length(&visible(&cell.words()))).collect::<Vec<_>>();
        let heads: Vec<Text> = table.columns.iter().map(|c| c.title.clone()).collect();
        let mut widths = cells(&heads);
        for row in &table.rows {
            for (width, cell) in widths.iter_mut().zip(cells(row)) {
                *width = (*width).max(cell);
            }
        }
        let line = |row: &[Text], bold: bool| {
            let mut line = String::new();
            for ((cell, width), column) in row.iter().zip(&widths).zip(&table.columns) {
                let padding = " ".repeat(width - length(&visible(&cell.words())).min(*width));
                let words = if bold { self.bold(&visible(&cell.words())) } else { self.inline(cell) };
                line.push_str(&match column.align {
                    Align::Left => format!("{words}{padding}"),
                    Align::Right => format!("{padding}{words}"),
                });
                line.push_str(BETWEEN_COLUMNS);
            }
            line.trim_end().to_owned()
        };
        let caption = (!table.caption.is_empty()).then(|| self.wrap(&table.caption, "", ""));
        let rows = table.rows.iter().map(|row| line(row, false));
        caption.into_iter().chain([line(&heads, true)]).chain(rows).collect::<Vec<_>>().join("\n")
    }
}

/// Number of characters, as most terminals count them.
fn length(words: &str) -> usize {
    words.chars().count()
}

//! Renders a document as Markdown (GitHub's flavour), with its plots as separate files.

use super::document::{Align, Block, Document, Figure, Note, Span, Table, Text};
use super::escape;
use crate::analysis::plot::SvgPlace;

/// Rendered document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Markdown {
    /// Markdown source.
    pub text: String,
    /// Linked files: (relative path, content).
    pub plots: Vec<(String, String)>,
}

/// Renders the document.
pub fn markdown(document: &Document) -> Markdown {
    let mut out =
        Markdown { text: format!("# {}\n\n", escape::markdown(&document.title)), plots: Vec::new() };
    for (name, value) in &document.about {
        out.text.push_str(&format!("- **{}:** {}\n", escape::markdown(name), inline(value)));
    }
    if !document.about.is_empty() {
        out.text.push('\n');
    }
    for block in &document.blocks {
        let text = match block {
            Block::Heading(level, text) => {
                format!("{} {}", "#".repeat(usize::from(*level).clamp(1, 5) + 1), inline(text))
            }
            Block::Paragraph(text) => inline(text),
            Block::List { ordered, items } => list(*ordered, items),
            Block::Table(t) => table(t),
            Block::Figure(f) => figure(f, &mut out.plots),
            Block::Code(code) => fenced(code),
            Block::Note(note, text) => format!("> **{}:** {}", label(*note), inline(text)),
        };
        out.text.push_str(&text);
        out.text.push_str("\n\n");
    }
    out.text.truncate(out.text.trim_end().len());
    out.text.push('\n');
    out
}

pub fn label(note: Note) -> &'static str {
    match note {
        Note::Info => "Note",
        Note::Caution => "Caution",
    }
}

fn inline(text: &Text) -> String {
    let span = |span: &Span| match span {
        Span::Plain(words) | Span::Dim(words) => escape::markdown(words),
        Span::Strong(words) => around("**", words),
        Span::Code(words) => escape::markdown_code(words),
        Span::File(path) => format!("[{}](<{}>)", escape::markdown_code(path), link(path)),
    };
    text.0.iter().map(span).collect()
}

/// Emphasis marks must touch words: `** a**` is not bold.
fn around(mark: &str, words: &str) -> String {
    let inner = words.trim();
    if inner.is_empty() {
        return words.to_owned();
    }
    let (before, after) = words.split_once(inner).unwrap_or_default();
    format!("{before}{mark}{}{mark}{after}", escape::markdown(inner))
}

/// A relative path as a link target within angle brackets.
fn link(path: &str) -> String {
    escape::visible(path)
        .replace('%', "%25")
        .replace('<', "%3C")
        .replace('>', "%3E")
        .replace('\\', "%5C")
        .replace('|', "%7C")
}

fn list(ordered: bool, items: &[Text]) -> String {
    let line = |(i, item): (usize, &Text)| match ordered {
        true => format!("{}. {}", i + 1, inline(item)),
        false => format!("- {}", inline(item)),
    };
    items.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

fn table(table: &Table) -> String {
    let row = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let rule = |align: Align| if align == Align::Right { "---:" } else { ":---" }.to_owned();
    let mut lines = Vec::new();
    if !table.caption.is_empty() {
        lines.extend([inline(&table.caption), String::new()]);
    }
    let cell = |text: &Text| escape::markdown_cell(&inline(text));
    lines.push(row(table.columns.iter().map(|c| cell(&c.title)).collect()));
    lines.push(row(table.columns.iter().map(|c| rule(c.align)).collect()));
    lines.extend(table.rows.iter().map(|cells| row(cells.iter().map(cell).collect())));
    lines.join("\n")
}

fn figure(figure: &Figure, plots: &mut Vec<(String, String)>) -> String {
    let path = format!("plots/{:02}-{}.svg", plots.len() + 1, slug(&figure.plot.title));
    let image = format!("![{}]({path})", escape::markdown(&figure.plot.title));
    plots.push((path, figure.plot.svg(SvgPlace::File)));
    if figure.caption.is_empty() { image } else { format!("{image}\n\n{}", inline(&figure.caption)) }
}

fn fenced(code: &str) -> String {
    let fence = "`".repeat((escape::longest_run(code, '`') + 1).max(3));
    let lines: Vec<String> = code.lines().map(escape::visible).collect();
    format!("{fence}\n{}\n{fence}", lines.join("\n"))
}

/// Text as a name of a file or anchor: lower-case letters, digits and dashes, never empty.
pub fn slug(words: &str) -> String {
    let dashed: String =
        words.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let parts: Vec<&str> = dashed.split('-').filter(|part| !part.is_empty()).collect();
    let slug: String = parts.join("-").chars().take(48).collect();
    if slug.is_empty() { "x".into() } else { slug }
}

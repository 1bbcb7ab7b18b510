//! Renders a document as one self-contained HTML page: style and plots are embedded, and its content policy
//! forbids fetching anything.
//!
//! Every tag is closed: the tests parse it as XML.

use super::document::{Align, Block, Document, Figure, Note, Span, Table, Text};
use super::escape::{xml, xml_lines};
use super::markdown::{label, slug};
use crate::analysis::plot::{self, SvgPlace};

const PAGE: &str = include_str!("html/page.css");

/// Renders the document.
pub fn html(document: &Document) -> String {
    let title = xml(&document.title);
    let style = format!("{PAGE}{}", plot::STYLE);
    let (contents, body) = (contents(document), body(document));
    let about = about(&document.about);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'; img-src data:\"/>\n\
         <link rel=\"icon\" href=\"data:,\"/>\n\
         <title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{contents}\
         <main>\n<header>\n<h1>{title}</h1>\n{about}</header>\n{body}</main>\n</body>\n</html>\n"
    )
}

fn about(facts: &[(String, Text)]) -> String {
    if facts.is_empty() {
        return String::new();
    }
    let one = |(name, value): &(String, Text)| {
        format!("<div><dt>{}</dt><dd>{}</dd></div>\n", xml(name), inline(value))
    };
    format!("<dl class=\"about\">\n{}</dl>\n", facts.iter().map(one).collect::<String>())
}

/// Anchor of heading `index`, unique even if headings are not.
fn anchor(index: usize, text: &Text) -> String {
    format!("s{index}-{}", slug(&text.words()))
}

fn contents(document: &Document) -> String {
    let headings = document.blocks.iter().enumerate().filter_map(|(i, block)| match block {
        Block::Heading(level, text) if *level <= 2 => Some((i, *level, text)),
        _ => None,
    });
    let items: String = headings
        .map(|(i, level, text)| {
            format!("<li class=\"l{level}\"><a href=\"#{}\">{}</a></li>\n", anchor(i, text), inline(text))
        })
        .collect();
    if items.is_empty() {
        return String::new();
    }
    format!(
        "<nav aria-label=\"Contents\">\n<details \
         open=\"open\"><summary>Contents</summary>\n<ul>\n{items}</ul>\n</details>\n</nav>\n"
    )
}

/// All blocks. Consecutive figures stand side by side where space permits.
fn body(document: &Document) -> String {
    let numbered: Vec<(usize, &Block)> = document.blocks.iter().enumerate().collect();
    let is_figure = |block: &Block| matches!(block, Block::Figure(_));
    let mut out = String::new();
    for run in numbered.chunk_by(|a, b| is_figure(a.1) && is_figure(b.1)) {
        let inner: String = run.iter().map(|(i, b)| block(*i, b)).collect();
        match run.first() {
            Some((_, Block::Figure(_))) => out.push_str(&format!("<div class=\"figures\">\n{inner}</div>\n")),
            _ => out.push_str(&inner),
        }
    }
    out
}

fn block(index: usize, block: &Block) -> String {
    match block {
        Block::Heading(level, text) => {
            let h = (*level).clamp(1, 5) + 1;
            format!("<h{h} id=\"{}\">{}</h{h}>\n", anchor(index, text), inline(text))
        }
        Block::Paragraph(text) => format!("<p>{}</p>\n", inline(text)),
        Block::List { ordered, items } => {
            let tag = if *ordered { "ol" } else { "ul" };
            let items: String = items.iter().map(|item| format!("<li>{}</li>\n", inline(item))).collect();
            format!("<{tag}>\n{items}</{tag}>\n")
        }
        Block::Table(t) => table(t),
        Block::Figure(f) => figure(f),
        Block::Code(code) => format!("<pre tabindex=\"0\"><code>{}</code></pre>\n", xml_lines(code)),
        Block::Note(note, text) => {
            let class = if *note == Note::Caution { "caution" } else { "info" };
            format!("<p class=\"note {class}\"><strong>{}.</strong> {}</p>\n", label(*note), inline(text))
        }
    }
}

fn inline(text: &Text) -> String {
    let span = |span: &Span| match span {
        Span::Plain(words) => xml(words),
        Span::Strong(words) => format!("<strong>{}</strong>", xml(words)),
        Span::Code(words) => format!("<code>{}</code>", xml(words)),
        Span::Dim(words) => format!("<small>{}</small>", xml(words)),
        Span::File(path) => format!("<a href=\"./{}\"><code>{}</code></a>", relative(path), xml(path)),
    };
    text.0.iter().map(span).collect()
}

fn relative(path: &str) -> String {
    let letter = |c: char| match c {
        '%' => "%25".into(),
        '?' => "%3F".into(),
        '#' => "%23".into(),
        c => c.to_string(),
    };
    xml(&path.chars().map(letter).collect::<String>())
}

fn table(table: &Table) -> String {
    let class = |align: Align| if align == Align::Right { " class=\"n\"" } else { "" };
    let heads: String = table
        .columns
        .iter()
        .map(|c| format!("<th scope=\"col\"{}>{}</th>", class(c.align), inline(&c.title)))
        .collect();
    let row = |cells: &Vec<Text>| {
        let cell = |(cell, column): (&Text, &super::Column)| {
            format!("<td{}>{}</td>", class(column.align), inline(cell))
        };
        format!("<tr>{}</tr>\n", cells.iter().zip(&table.columns).map(cell).collect::<String>())
    };
    let rows: String = table.rows.iter().map(row).collect();
    let caption = match table.caption.is_empty() {
        true => String::new(),
        false => format!("<p class=\"caption\">{}</p>\n", inline(&table.caption)),
    };
    format!(
        "{caption}<div class=\"scroll\" tabindex=\"0\">\n<table>\n\
         <thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
    )
}

fn figure(figure: &Figure) -> String {
    let caption = match figure.caption.is_empty() {
        true => String::new(),
        false => format!("<figcaption>{}</figcaption>\n", inline(&figure.caption)),
    };
    format!("<figure>\n{}\n{caption}</figure>\n", figure.plot.svg(SvgPlace::Page))
}

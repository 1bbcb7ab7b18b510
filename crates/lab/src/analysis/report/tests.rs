//! Reports with awkward names stay valid in each format, fetch nothing, and show the names unchanged.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag};

use super::*;
use crate::analysis::plot::{Line, Panel, Plot, Shape};
use crate::unit::Unit;

/// Every kind of block, with the name wherever one can appear.
fn document(name: &str) -> Document {
    let panel = Panel {
        name: name.into(),
        unit: Unit::Count,
        log: false,
        lines: vec![Line { name: name.into(), points: vec![(0, 1.0), (5, 2.0)] }],
    };
    let every = Text::new().plain(name).strong(name).code(name).dim(name).file(name);
    let mut document =
        Document { title: name.into(), about: vec![(name.into(), every.clone())], blocks: vec![] };
    document.section(name);
    document.part(every.clone());
    document.paragraph(every.clone());
    document.list(vec![every.clone(), name.into()]);
    document.table(Table {
        caption: every.clone(),
        columns: vec![Column::words(name), Column::numbers("n")],
        rows: vec![vec![every.clone(), "1".into()], vec![name.into(), Text::new().strong(name)]],
    });
    document.figure(Plot { title: name.into(), shape: Shape::OverTime(vec![panel]) }, every.clone());
    document.blocks.push(Block::Code(format!("{name}\n{name}")));
    document.note(Note::Caution, every);
    document
}

/// Scripts, and attributes that make a browser fetch something.
fn fetched(page: &str) -> Vec<String> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let tree = roxmltree::Document::parse_with_options(page, options).unwrap();
    let mut found = Vec::new();
    for node in tree.descendants().filter(|n| n.is_element()) {
        if ["script", "iframe", "img", "object", "embed"].contains(&node.tag_name().name()) {
            found.push(node.tag_name().name().to_owned());
        }
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            let local = value.starts_with('#') || value.starts_with("./") || value == "data:,";
            if name.starts_with("on") || (["src", "href", "srcset", "action"].contains(&name) && !local) {
                found.push(format!("{name}={value}"));
            }
        }
    }
    found
}

const HOSTILE: [&str; 8] = [
    "</style></svg><script>alert(1)</script>",
    "\" onload=\"alert(1)",
    "a|b|c\n| --- |\n# title",
    "![x](http://example.org/x.png) <img src=http://example.org> https://example.org www.example.org",
    "``` `` ` **b** _i_ ~~s~~ $x$ &amp; \\",
    "\u{1b}[31mred\u{0}\u{202e}gnp.exe\u{feff}",
    "]]> <!-- -- --> javascript:alert(1)",
    "- 1. > + # =",
];

#[test]
fn hostile_names_stay_text() {
    for name in HOSTILE {
        let page = html(&document(name));
        assert_eq!(fetched(&page), Vec::<String>::new(), "{name:?}");
        assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'), "{name:?}");
        for (path, svg) in markdown(&document(name)).plots {
            assert!(path.starts_with("plots/01-") && path.ends_with(".svg"), "{path}");
            assert_eq!(fetched(&svg), Vec::<String>::new(), "{name:?}");
        }
        let lines = text(&document(name), Style { colour: false, width: 80 });
        assert!(lines.chars().all(|c| c == '\n' || !c.is_control()), "{lines:?}");
    }
}

/// Cells of all tables in the Markdown, as a reader sees them; panics on constructs that reports do not use.
fn cells(markdown: &str) -> Vec<String> {
    let (mut cells, mut within) = (Vec::new(), None);
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
        match event {
            Event::Start(Tag::TableCell) => within = Some(String::new()),
            Event::End(pulldown_cmark::TagEnd::TableCell) => cells.extend(within.take()),
            Event::Text(words) | Event::Code(words) => {
                if let Some(cell) = &mut within {
                    cell.push_str(&words);
                }
            }
            Event::Html(_) | Event::InlineHtml(_) => panic!("HTML in {markdown}"),
            Event::Start(Tag::Image { dest_url, .. }) => {
                assert!(dest_url.starts_with("plots/"), "{dest_url}")
            }
            Event::Start(Tag::Strikethrough | Tag::Emphasis) => panic!("caused by a name in {markdown}"),
            _ => {}
        }
    }
    cells
}

#[test]
fn markdown_tables_keep_their_cells() {
    for name in HOSTILE {
        let mut document = Document { title: "t".into(), ..Document::default() };
        let columns = vec![Column::words(name), Column::numbers("n")];
        let rows =
            vec![vec![Text::from(name), Text::new().strong(name)], vec![Text::new().code(name), Text::new()]];
        document.table(Table { caption: Text::new(), columns, rows });
        let seen = escape::visible(name);
        // A code span keeps spaces; other text loses those at the ends of a cell.
        let words = seen.trim();
        assert_eq!(
            cells(&markdown(&document).text),
            [words, "n", words, words, &seen, ""],
            "{}",
            markdown(&document).text
        );
    }
}

proptest! {
    #[test]
    fn reports_are_whole_for_any_names(name in "\\PC{0,60}|.{0,60}|[-`*_|<>&#\\\\ \\[\\]!~a]{0,30}") {
        prop_assert_eq!(fetched(&html(&document(&name))), Vec::<String>::new());
        cells(&markdown(&document(&name)).text);
    }
}

#[test]
fn equal_headings_are_linked_from_the_contents() {
    let mut document = Document { title: "t".into(), ..Document::default() };
    document.section("Results");
    document.section("Results");
    let page = html(&document);
    for anchor in ["s0-results", "s1-results"] {
        assert!(
            page.contains(&format!("href=\"#{anchor}\"")) && page.contains(&format!("id=\"{anchor}\"")),
            "{page}"
        );
    }
}

#[test]
fn terminals_show_tables_in_columns_and_wrap_words() {
    let mut document = Document { title: "Title".into(), ..Document::default() };
    document.table(Table {
        caption: Text::new(),
        columns: vec![Column::words("target"), Column::numbers("IOPS")],
        rows: vec![vec!["nvme".into(), "21.5 k/s".into()], vec!["data0".into(), "419 /s".into()]],
    });
    document.note(Note::Caution, "one two three four five six");
    let lines = text(&document, Style { colour: false, width: 20 });
    let expected = "Title\n\ntarget      IOPS\nnvme    21.5 k/s\ndata0     419 /s\n\nCaution: one \
        two\n  three four five\n  six\n";
    assert_eq!(lines, expected);
    let coloured = text(&document, Style { colour: true, width: 20 });
    assert!(coloured.starts_with("\u{1b}[1mTitle\u{1b}[0m"), "{coloured:?}");
}

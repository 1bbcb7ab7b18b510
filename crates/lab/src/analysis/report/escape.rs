//! Makes outside text harmless in each format.
//!
//! Control characters, and those that change the direction of text, are shown as their code: they could
//! disguise a name, and XML forbids most of them.

use std::fmt::Write;

/// Text with invisible characters made visible: `a\u{1b}[31m`.
pub fn visible(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    for letter in words.chars() {
        let hidden = matches!(u32::from(letter),
            0x61c | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff | 0xfff0..=0xffff);
        if letter.is_control() || hidden {
            let _ = write!(out, "{}", letter.escape_unicode());
        } else {
            out.push(letter);
        }
    }
    out
}

/// Escapes text and quoted attributes of HTML and XML.
pub fn xml(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    for letter in visible(words).chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter => out.push(letter),
        }
    }
    out
}

/// As [`xml`], but keeps line breaks: for text in `<pre>`.
pub fn xml_lines(words: &str) -> String {
    words.lines().map(xml).collect::<Vec<_>>().join("\n")
}

/// Escapes running text of Markdown, including table cells.
pub fn markdown(words: &str) -> String {
    let visible = visible(words);
    let mut out = String::with_capacity(visible.len());
    let mut before = ' ';
    let mut letters = visible.chars().peekable();
    while let Some(letter) = letters.next() {
        let special = match letter {
            '\\' | '`' | '*' | '[' | ']' | '<' | '|' | '~' | '&' | '$' => true,
            // Within a word, an underscore has no meaning.
            '_' => !(before.is_alphanumeric() && letters.peek().is_some_and(|c| c.is_alphanumeric())),
            // These have a meaning only at the start of a line, or before a bracket.
            '#' | '+' | '-' | '>' | '=' => out.is_empty(),
            // A following link would become an image.
            '!' => letters.peek().is_none_or(|&c| c == '['),
            // A number and a dot start a list.
            '.' | ')' => {
                let ends = letters.peek().is_none_or(|c| c.is_whitespace());
                ends && !out.is_empty() && out.chars().all(|c| c.is_ascii_digit())
            }
            // `://` starts a link.
            ':' => letters.peek() == Some(&'/'),
            _ => false,
        };
        if special {
            out.push('\\');
        }
        out.push(letter);
        before = letter;
    }
    out
}

/// A Markdown code span, fenced by more backticks than it contains.
pub fn markdown_code(words: &str) -> String {
    let visible = visible(words);
    let fence = "`".repeat(longest_run(&visible, '`') + 1);
    let space = if fence.len() > 1 || visible.trim() != visible || visible.is_empty() { " " } else { "" };
    format!("{fence}{space}{visible}{space}{fence}")
}

/// Escapes a finished Markdown table cell: tables are split at bars before anything else is parsed, even
/// within code.
pub fn markdown_cell(cell: &str) -> String {
    let mut out = String::with_capacity(cell.len());
    let mut escaped = false;
    for letter in cell.chars() {
        if letter == '|' && !escaped {
            out.push('\\');
        }
        escaped = letter == '\\' && !escaped;
        out.push(letter);
    }
    out
}

pub fn longest_run(words: &str, letter: char) -> usize {
    words.split(|c| c != letter).map(str::len).max().unwrap_or(0)
}

//! Words from outside, made harmless in each format.
//!
//! Control characters, and those that change the direction of writing, are shown as their code: they could hide what a name says, and
//! XML does not allow most of them.

use std::fmt::Write;

/// The words with what can't be seen made visible: `a\u{1b}[31m`.
pub fn visible(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    for letter in words.chars() {
        let hidden = matches!(u32::from(letter),
            0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff | 0xfff0..=0xffff);
        if letter.is_control() || hidden {
            let _ = write!(out, "{}", letter.escape_unicode());
        } else {
            out.push(letter);
        }
    }
    out
}

/// For text and quoted attributes of HTML and XML.
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

/// As [`xml`], but with line ends kept: for text in `<pre>`.
pub fn xml_lines(words: &str) -> String {
    words.lines().map(xml).collect::<Vec<_>>().join("\n")
}

/// For running text of Markdown, table cells included.
pub fn markdown(words: &str) -> String {
    let visible = visible(words);
    let mut out = String::with_capacity(visible.len());
    let mut before = ' ';
    let mut letters = visible.chars().peekable();
    while let Some(letter) = letters.next() {
        let special = match letter {
            '\\' | '`' | '*' | '[' | ']' | '<' | '|' | '~' | '&' | '$' => true,
            // Within a word an underscore means nothing.
            '_' => !(before.is_alphanumeric() && letters.peek().is_some_and(|c| c.is_alphanumeric())),
            // These mean something at the beginning of a line only, or before a bracket.
            '#' | '+' | '-' | '>' | '=' => out.is_empty(),
            // What follows may be a link, which this would make an image.
            '!' => letters.peek().is_none_or(|&c| c == '['),
            // A number and a dot make a list of what follows.
            '.' | ')' => {
                let ends = letters.peek().is_none_or(|c| c.is_whitespace());
                ends && !out.is_empty() && out.chars().all(|c| c.is_ascii_digit())
            }
            // `://` makes a link of what follows.
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

/// A code span of Markdown: fenced by more backticks than are in it.
pub fn markdown_code(words: &str) -> String {
    let visible = visible(words);
    let fence = "`".repeat(longest_run(&visible, '`') + 1);
    let space = if fence.len() > 1 || visible.trim() != visible || visible.is_empty() { " " } else { "" };
    format!("{fence}{space}{visible}{space}{fence}")
}

/// A cell of a table, once it is Markdown: tables are split at bars before anything else is looked at, even within code.
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

/// The longest run of a letter.
pub fn longest_run(words: &str, letter: char) -> usize {
    words.split(|c| c != letter).map(str::len).max().unwrap_or(0)
}

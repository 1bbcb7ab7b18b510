//! Escapes text from disks and errors so that printing it is harmless. Names meant to be typed again are
//! quoted instead: see [`super::quoted`].

use cenote_format::unseen::is_unseen;

/// Bytes as one line of text: invalid UTF-8 becomes `\xNN`, invisible characters become `\xNN`, `\uNNNN` or
/// `\UNNNNNNNN`.
pub fn escape_terminal(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push_visible(&mut out, c));
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out
}

/// Text of several lines and columns, with invisible characters escaped.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c => push_visible(&mut out, c),
        }
    }
    out
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn push_visible(out: &mut String, c: char) {
    if !is_unseen(c) {
        return out.push(c);
    }
    match u32::from(c) {
        code @ ..=0x7f => out.push_str(&format!("\\x{code:02x}")),
        code @ ..=0xffff => out.push_str(&format!("\\u{code:04x}")),
        code => out.push_str(&format!("\\U{code:08x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_get_nothing_that_is_not_seen() {
        let text = b"a\\b\t\x1b[31m\xc3\xa9\xff\xe2\x80\xae";
        assert_eq!(escape_terminal(text), "a\\b\\x09\\x1b[31m\u{e9}\\xff\\u202e");
        assert_eq!(visible("a\nb\u{9b}c\u{e9}\u{e0041}"), "a\nb\\u009bc\u{e9}\\U000e0041");
    }
}

//! Prints names, which are bytes, in a form that can be typed back, and parses it.
//!
//! ```text
//!   notes.txt               printed literally: input is taken byte for byte
//!   $'a\tb\\c\xff'          contains bytes that are invisible or would be lost: quoted as bash and `ls` do
//! ```
//!
//! Idea: shells understand the form, so a pasted name arrives as its bytes. No dataset name begins with `$'`,
//! so a whole target in this form is unambiguous.

use std::fmt::Write;

use cenote_format::unseen::is_unseen;

/// A name or target for a line of text: literal, or quoted if its bytes require it.
pub fn quoted(name: &[u8]) -> String {
    if let Some(text) = plain(name) {
        return text.to_owned();
    }
    let mut out = String::from("$'");
    for chunk in name.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push_quoted(&mut out, c));
        chunk.invalid().iter().for_each(|&byte| push_byte(&mut out, byte));
    }
    out.push('\'');
    out
}

/// A name as a JSON string: its text; quoted if it is not text or could be mistaken for a quoted name.
pub fn json_name(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if !text.starts_with("$'") => text.to_owned(),
        _ => quoted(name),
    }
}

fn plain(name: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(name).ok()?;
    let is_odd = text.contains(|c| c == '\\' || is_unseen(c)) || text.contains("$'");
    (!is_odd && !text.starts_with(' ') && !text.ends_with(' ')).then_some(text)
}

fn push_quoted(out: &mut String, c: char) {
    match c {
        '\\' | '\'' => out.extend(['\\', c]),
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        c if is_unseen(c) => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_byte(out, byte)),
        c => out.push(c),
    }
}

fn push_byte(out: &mut String, byte: u8) {
    let _ = write!(out, "\\x{byte:02x}");
}

/// Expands a word as a shell would if it contains `$'...'`. `None` if it has none, if one is unterminated, or
/// if one contains a NUL byte.
pub fn unquoted(word: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    let mut found = false;
    while let Some(at) = rest.windows(2).position(|two| two == b"$'") {
        out.extend_from_slice(&rest[..at]);
        rest = read_quoted(&rest[at + 2..], &mut out)?;
        found = true;
    }
    out.extend_from_slice(rest);
    (found && !out.contains(&0)).then_some(out)
}

/// Reads up to the closing quote; returns the rest.
fn read_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\'', after @ ..] => return Some(after),
            [b'\\', after @ ..] => rest = read_escape(after, out)?,
            [byte, after @ ..] => {
                out.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

/// Reads an escape sequence after its backslash, as bash does.
fn read_escape<'a>(rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (&kind, after) = rest.split_first()?;
    let (code, after) = match kind {
        b'x' => number(after, 16, 2)?,
        b'0'..=b'7' => number(rest, 8, 3)?,
        b'u' | b'U' => {
            let (code, after) = number(after, 16, if kind == b'u' { 4 } else { 8 })?;
            out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(after);
        }
        b'a' => (0x07, after),
        b'b' => (0x08, after),
        b'e' | b'E' => (0x1b, after),
        b'f' => (0x0c, after),
        b'n' => (b'\n'.into(), after),
        b'r' => (b'\r'.into(), after),
        b't' => (b'\t'.into(), after),
        b'v' => (0x0b, after),
        b'\\' | b'\'' | b'"' | b'?' => (kind.into(), after),
        _ => {
            out.push(b'\\');
            (kind.into(), after)
        }
    };
    out.push(code as u8);
    Some(after)
}

/// A number of 1 to `most` digits.
fn number(rest: &[u8], base: u32, most: usize) -> Option<(u32, &[u8])> {
    let digit = |byte: &u8| char::from(*byte).to_digit(base);
    let digits = rest.iter().take(most).map_while(digit).collect::<Vec<u32>>();
    let value = digits.iter().fold(0u32, |value, digit| value.wrapping_mul(base) + digit);
    (!digits.is_empty()).then_some((value, &rest[digits.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_hide_nothing_stay_as_they_are() {
        for name in ["notes.txt", "a b", "it's", "100%", "$HOME", "caf\u{e9}", "-n", "*", "\"x\"", "a\u{a0}b"]
        {
            assert_eq!(quoted(name.as_bytes()), name);
        }
    }

    #[test]
    fn odd_names_are_quoted_as_bash_does() {
        for (name, expected) in [
            (&b"a\tb\nc"[..], r"$'a\tb\nc'"),
            (b"\xff\xfe1", r"$'\xff\xfe1'"),
            (b"back\\slash", r"$'back\\slash'"),
            ("\u{202e}fdp.exe".as_bytes(), r"$'\xe2\x80\xaefdp.exe'"),
            (b"\x1b[31m'", r"$'\x1b[31m\''"),
            (b"$'x'", r"$'$\'x\''"),
            (b" lead", "$' lead'"),
        ] {
            assert_eq!(quoted(name), expected);
            assert_eq!(unquoted(expected.as_bytes()).as_deref(), Some(name));
        }
    }

    #[test]
    fn what_is_read_back_is_what_was_quoted() {
        for first in 1..=255u8 {
            for name in [
                vec![first],
                vec![first, b'0'],
                vec![b'\\', first],
                vec![0xe2, 0x80, first],
                vec![b'$', first, b'\''],
            ] {
                let shown = quoted(&name);
                let read = unquoted(shown.as_bytes()).unwrap_or_else(|| shown.clone().into_bytes());
                assert_eq!(read, name, "{shown}");
                assert!(!shown.contains(is_unseen));
            }
        }
    }

    #[test]
    fn parts_are_read_as_in_a_shell() {
        assert_eq!(
            unquoted(br"tank:/a/$'\x41\102\u00e9'/b").as_deref(),
            Some("tank:/a/AB\u{e9}/b".as_bytes())
        );
        for word in [&b"tank:/plain"[..], b"tank:/$'open", br"tank:/$'\x00'", br"$'\x'", br"$'\ud800'"] {
            assert_eq!(unquoted(word), None);
        }
    }
}

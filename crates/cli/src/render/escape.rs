//! Names are bytes. Two ways to print them without harm.

/// For files: printable ASCII as it is; everything else, tab and backslash as `\xNN`. Unambiguous.
pub fn escape_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b' '..=b'~' if byte != b'\\' => out.push(byte.into()),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out
}

/// For terminals: valid UTF-8 as it is, but control characters (which could drive the terminal) escaped.
pub fn escape_terminal(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                c.to_string().bytes().for_each(|b| out.push_str(&format!("\\x{b:02x}")));
            } else {
                out.push(c);
            }
        }
        chunk.invalid().iter().for_each(|b| out.push_str(&format!("\\x{b:02x}")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_get_pure_ascii_and_terminals_get_no_control_characters() {
        let name = b"a\\b\t\x1b[31m\xc3\xa9\xff";
        assert_eq!(escape_bytes(name), "a\\x5cb\\x09\\x1b[31m\\xc3\\xa9\\xff");
        assert_eq!(escape_terminal(name), "a\\b\\x09\\x1b[31m\u{e9}\\xff");
    }
}

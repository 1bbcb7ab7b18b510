//! Names are bytes. How to print them without harm.

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
    fn terminals_get_no_control_characters() {
        let name = b"a\\b\t\x1b[31m\xc3\xa9\xff";
        assert_eq!(escape_terminal(name), "a\\b\\x09\\x1b[31m\u{e9}\\xff");
    }
}

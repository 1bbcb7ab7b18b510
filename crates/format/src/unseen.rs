//! Invisible characters. Printed raw, on-disk names could hide or reorder text or control the terminal.
//!
//! Source: Unicode 16, `General_Category` Cc, Cf, Zl, Zp and `Default_Ignorable_Code_Point`.

/// Whether this is a control, format (bidirectional overrides, zero-width), filler or line separator
/// character, or a variation selector.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Writes invisible characters of a JSON text as `\uNNNN`. JSON is ASCII outside strings, so its meaning
/// stays.
pub fn visible_json(text: String) -> String {
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte) || *byte == b'\n';
    if text.as_bytes().iter().all(is_plain) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        // Line ends occur only between values; strings escape them.
        if c == '\n' || !is_unseen(c) {
            out.push(c);
            continue;
        }
        let mut units = [0; 2];
        c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_is_left_alone() {
        assert!("aZ~ \u{e9}\u{a0}\u{4e2d}\u{1f600}\u{301}\u{fffd}".chars().all(|c| !is_unseen(c)));
        assert!("\0\n\t\u{7f}\u{80}\u{9b}\u{61c}\u{200b}\u{200d}\u{200f}".chars().all(is_unseen));
        assert!("\u{202e}\u{2066}\u{2069}\u{feff}\u{e0041}".chars().all(is_unseen));
    }

    #[test]
    fn json_means_the_same_and_hides_nothing() {
        let text = "{\"a\": \"\u{202e}b\u{9b}\u{7f}\u{e0041}\u{e9}\"}\n".to_owned();
        assert_eq!(visible_json(text), "{\"a\": \"\\u202eb\\u009b\\u007f\\udb40\\udc41\u{e9}\"}\n");
    }
}

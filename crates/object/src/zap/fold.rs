//! Folding names, by case and Unicode normalization, for the hashes and comparisons of a ZAP.
//!
//! Idea: OpenZFS upper-cases each valid character whose upper case is one character, then normalizes;
//! non-UTF-8 bytes stay as they are. Its tables are those of Unicode 5.0, ours are newer: a character that
//! gained a case or decomposition since may hash differently. Lookups of names beyond ASCII therefore fall
//! back to comparing with every entry.
//!
//! Source: OpenZFS `u8_textprep.h`.

use unicode_normalization::UnicodeNormalization;

/// Upper case.
pub const U8_TEXTPREP_TOUPPER: u64 = 0x2;
/// Alone: NFD.
pub const U8_CANON_DECOMP: u64 = 0x10;
/// Alone: NFKD.
pub const U8_COMPAT_DECOMP: u64 = 0x20;
/// Composes after decomposition: NFC or NFKC.
pub const U8_CANON_COMP: u64 = 0x40;

/// Folds a name by these `U8_*` flags.
pub fn fold(name: &[u8], flags: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        fold_text(chunk.valid(), flags, &mut out);
        out.extend_from_slice(chunk.invalid());
    }
    out
}

fn fold_text(text: &str, flags: u64, out: &mut Vec<u8>) {
    let upper = flags & U8_TEXTPREP_TOUPPER != 0;
    let cased = text.chars().map(|c| if upper { simple_upper(c) } else { c });
    let mut push = |c: char| out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    match (flags & U8_COMPAT_DECOMP != 0, flags & U8_CANON_DECOMP != 0, flags & U8_CANON_COMP != 0) {
        (true, _, true) => cased.nfkc().for_each(&mut push),
        (true, _, false) => cased.nfkd().for_each(&mut push),
        (false, _, true) => cased.nfc().for_each(&mut push),
        (false, true, false) => cased.nfd().for_each(&mut push),
        (false, false, false) => cased.for_each(&mut push),
    }
}

/// Only single characters: folding must not lengthen names.
fn simple_upper(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(single), None) => single,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_name_fold_together() {
        let flags = U8_TEXTPREP_TOUPPER | U8_CANON_DECOMP;
        assert_eq!(fold("Ärger".as_bytes(), flags), fold("a\u{308}RGER".as_bytes(), flags));
        assert_ne!(fold("Ärger".as_bytes(), 0), fold("ärger".as_bytes(), 0));
        assert_eq!(fold("straße".as_bytes(), flags), "STRAßE".as_bytes());
        assert_eq!(fold("ﬁ".as_bytes(), U8_COMPAT_DECOMP), b"fi");
        assert_eq!(fold("e\u{301}".as_bytes(), U8_CANON_DECOMP | U8_CANON_COMP), "é".as_bytes());
    }

    #[test]
    fn bytes_that_are_no_text_stay() {
        assert_eq!(fold(b"a\xff\xfeb", U8_TEXTPREP_TOUPPER), b"A\xff\xfeB");
    }
}

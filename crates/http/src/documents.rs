//! Splits command output, which arrives in pieces, into JSON documents.
//!
//! Idea: documents are on separate lines, but one may span many lines (a list written as it is found). JSON
//! ignores newlines within a document, so they are dropped.

/// State of the parser between pieces.
#[derive(Debug, Default)]
pub struct Documents {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    is_within: bool,
}

/// A parser event.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Start of a document.
    Begin,
    /// Text of the document, without newlines.
    Text(&'a [u8]),
    /// End of the document.
    End,
}

impl Documents {
    /// Whether the parser is inside a document.
    pub fn is_within(&self) -> bool {
        self.is_within
    }

    /// Parses the next piece of output.
    pub fn read<'a>(&mut self, piece: &'a [u8], mut part: impl FnMut(Part<'a>)) {
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            let (text, has_end) = match line.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (line, false),
            };
            if !text.is_empty() {
                if !self.is_within {
                    self.is_within = true;
                    part(Part::Begin);
                }
                text.iter().for_each(|byte| self.step(*byte));
                part(Part::Text(text));
            }
            if has_end && self.is_within && self.depth == 0 {
                // A string cannot span lines, so the open text was not JSON.
                *self = Documents::default();
                part(Part::End);
            }
        }
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            (self.is_escaped, self.in_string) = match byte {
                _ if self.is_escaped => (false, true),
                b'\\' => (true, true),
                b'"' => (false, false),
                _ => (false, true),
            };
            return;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses text in pieces of some size; returns one document per line.
    fn read(text: &str, piece_bytes: usize) -> String {
        let (mut documents, mut out) = (Documents::default(), String::new());
        for piece in text.as_bytes().chunks(piece_bytes) {
            documents.read(piece, |part| match part {
                Part::Begin => out.push('<'),
                Part::Text(text) => out.push_str(&String::from_utf8_lossy(text)),
                Part::End => out.push_str(">\n"),
            });
        }
        out
    }

    #[test]
    fn documents_are_told_apart_wherever_pieces_end() {
        let text = "[\n{\"a\":\"]}\\\"\\\\\"},\n{\"b\":[1]}\n]\n{\"c\":2}\n\n3\n";
        let wanted = "<[{\"a\":\"]}\\\"\\\\\"},{\"b\":[1]}]>\n<{\"c\":2}>\n<3>\n";
        for piece_bytes in 1..=text.len() {
            assert_eq!(read(text, piece_bytes), wanted, "{piece_bytes}");
        }
    }
}

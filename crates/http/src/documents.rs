//! Finds where the JSON documents of a command's output begin and end, as it comes in pieces.
//!
//! Idea: documents follow each other on lines of their own, but one may take many lines (a list that is
//! written as it is found). A line's end within a document says nothing in JSON, so it is left out.

/// Where in the output the last piece ended.
#[derive(Debug, Default)]
pub struct Documents {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    is_within: bool,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A document begins.
    Begin,
    /// Some of its text, without ends of lines.
    Text(&'a [u8]),
    /// It ends.
    End,
}

impl Documents {
    /// Whether a document has begun and not ended.
    pub fn is_within(&self) -> bool {
        self.is_within
    }

    /// Goes through the next piece of output.
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
                // A string can't go beyond a line: what was open was no JSON.
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

    /// Documents in lines of their own, whatever pieces the text comes in.
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

//! Paragraphs as `zpool status` prints them.

/// A labelled paragraph, wrapped at 80 columns; lines after the first are indented by a tab.
pub fn paragraph(label: &str, text: &str) -> String {
    const TAB_COLUMNS: usize = 8;
    const COLUMNS: usize = 80;
    let (mut out, mut column) = (format!("{label}:"), label.len() + 1);
    for (i, word) in text.split_whitespace().enumerate() {
        if i > 0 && column + 1 + word.len() > COLUMNS {
            out.push_str("\n\t");
            column = TAB_COLUMNS;
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.len();
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_wrapped_and_indented() {
        let text = "word ".repeat(30);
        let out = paragraph("status", &text);
        assert!(out.lines().all(|line| line.replace('\t', "        ").len() <= 80), "{out}");
        assert!(out.lines().skip(1).all(|line| line.starts_with('\t')) && out.starts_with("status: word"));
        assert_eq!(out.split_whitespace().count(), 31);
    }
}

//! How wide words are: nobody lays out an SVG's text for us, so widths are estimated, rather too wide than too narrow.

/// Size of ordinary letters in plots.
pub const SIZE: f64 = 11.0;
/// Size of a title's letters.
pub const TITLE_SIZE: f64 = 13.0;

/// About how wide the text is, in letters of that size.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(relative_width).sum::<f64>() * size
}

/// The text, cut to fit `room` units, with an ellipsis where something is missing.
pub fn fit(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut taken = relative_width('…') * size;
    let mut cut = String::new();
    for letter in text.chars() {
        taken += relative_width(letter) * size;
        if taken > room {
            break;
        }
        cut.push(letter);
    }
    cut.push('…');
    cut
}

/// Width of a letter of size 1 in the widest of the usual sans-serif faces.
fn relative_width(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | '!' => 0.30,
        ' ' | 'f' | 't' | 'r' | '/' | '(' | ')' | '[' | ']' | '-' => 0.38,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 0.95,
        'A'..='Z' | '&' => 0.70,
        c if c.is_ascii() => 0.58,
        // Wide scripts take a whole square.
        c if u32::from(c) >= 0x1100 => 1.05,
        _ => 0.70,
    }
}

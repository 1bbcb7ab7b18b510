//! Text widths. No engine lays out the text of an SVG, so widths are estimated, too wide rather than too
//! narrow.

pub const SIZE: f64 = 11.0;
pub const TITLE_SIZE: f64 = 13.0;

pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(relative_width).sum::<f64>() * size
}

/// Text truncated to `room` units, with an ellipsis if cut.
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

/// Width of a character at size 1 in the widest common sans-serif font.
fn relative_width(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | '!' => 0.30,
        ' ' | 'f' | 't' | 'r' | '/' | '(' | ')' | '[' | ']' | '-' => 0.38,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 0.95,
        'A'..='Z' | '&' => 0.70,
        c if c.is_ascii() => 0.58,
        // Wide scripts use a full square.
        c if u32::from(c) >= 0x1100 => 1.05,
        _ => 0.70,
    }
}

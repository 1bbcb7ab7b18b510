//! The only module that writes SVG: elements, numbers, escaped text, and the header and legend that all plots
//! share.

use std::fmt::Write;

use super::text::{self, SIZE, TITLE_SIZE};
use crate::analysis::report::escape;

/// Style sheet of all plots, with colours for light and dark mode.
pub const STYLE: &str = include_str!("style.css");

/// Plot width in SVG units, roughly pixels.
pub const WIDTH: f64 = 480.0;

/// Destination of an SVG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SvgPlace {
    /// Its own file, with the style sheet and a background.
    File,
    /// A page that includes [`STYLE`].
    Page,
}

pub const MARGIN: f64 = 10.0;
/// Number of colours; further lines are dashed.
const COLOURS: usize = 6;

/// Position of a text relative to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Starts at the point.
    Start,
    /// Centred on the point.
    Middle,
    /// Ends at the point.
    End,
}

/// An SVG, drawn from top to bottom.
#[derive(Debug)]
pub struct Svg {
    body: String,
    /// Where the next element may start.
    pub y: f64,
}

/// Classes of series `index`: its colour, and a dash once colours repeat.
pub fn colour(index: usize) -> String {
    let dash = if (index / COLOURS) % 2 == 1 { " dash" } else { "" };
    format!("c{}{dash}", index % COLOURS)
}

impl Svg {
    pub fn new(title: &str) -> Svg {
        let mut svg = Svg { body: String::new(), y: 30.0 };
        let title = text::fit(title, TITLE_SIZE, WIDTH - 2.0 * MARGIN);
        svg.text(MARGIN, 20.0, Anchor::Start, "title", &title);
        svg
    }

    /// Complete element; `self.y` is its height.
    pub fn finish(self, title: &str, description: &str, place: SvgPlace) -> String {
        let height = number(self.y);
        let (label, about) = (escape::xml(title), escape::xml(description));
        let (style, size) = match place {
            SvgPlace::File => {
                (format!("<style>{STYLE}</style>"), format!(" width=\"{WIDTH}\" height=\"{height}\""))
            }
            SvgPlace::Page => (String::new(), String::new()),
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" role=\"img\" aria-label=\"{label}\" \
             viewBox=\"0 0 {WIDTH} {height}\"{size}><title>{label}</title><desc>{about}</desc>{style}<rect \
             class=\"paper\" width=\"100%\" height=\"100%\" rx=\"6\"/>{}</svg>",
            self.body
        )
    }

    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            "<path class=\"{class}\" d=\"M{} {}L{} {}\"/>",
            number(x1),
            number(y1),
            number(x2),
            number(y2)
        ));
    }

    /// A line through points; closed down to `floor`, as an area, if given.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)], floor: Option<f64>) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        let mut d = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            let command = if i == 0 { 'M' } else { 'L' };
            let _ = write!(d, "{command}{} {}", number(*x), number(*y));
        }
        if let Some(floor) = floor {
            let _ = write!(d, "V{}H{}V{}Z", number(floor), number(first.0), number(first.1));
        } else if points.len() == 1 {
            // A round cap turns a line of no length into a dot.
            let _ = write!(d, "L{} {}", number(last.0), number(last.1));
        }
        self.put(format_args!("<path class=\"{class}\" d=\"{d}\"/>"));
    }

    pub fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            number(x),
            number(y),
            number(width.max(0.0)),
            number(height)
        ));
    }

    /// A small disc, with text that appears on hover.
    pub fn dot(&mut self, class: &str, at: (f64, f64), radius: f64, about: &str) {
        let (x, y, about) = (number(at.0), number(at.1), escape::xml(about));
        self.put(format_args!(
            "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{}\"><title>{about}</title></circle>",
            number(radius)
        ));
    }

    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let (x, y, words) = (number(x), number(y), escape::xml(words));
        self.put(format_args!("<text x=\"{x}\" y=\"{y}\"{anchor}{class}>{words}</text>"));
    }

    /// A heading at the left, then the names of series in their colours, on as many lines as needed. A single
    /// unnamed series needs no legend.
    pub fn legend(&mut self, head: &str, class: &str, names: &[&str]) {
        const KEY: f64 = 16.0;
        const GAP: f64 = 12.0;
        const LINE: f64 = 15.0;
        let right = WIDTH - MARGIN;
        self.text(MARGIN, self.y + 10.0, Anchor::Start, class, head);
        // Headings may be bold, which is wider.
        let mut x = MARGIN + if head.is_empty() { 0.0 } else { text::width(head, SIZE) * 1.12 + GAP };
        for (i, name) in names.iter().enumerate().filter(|(_, name)| names.len() > 1 || !name.is_empty()) {
            let name = text::fit(name, SIZE, right - MARGIN - KEY - 4.0);
            let wide = KEY + 4.0 + text::width(&name, SIZE);
            if x + wide > right {
                self.y += LINE;
                x = MARGIN;
            }
            self.line(&format!("line {}", colour(i)), (x, self.y + 6.5), (x + KEY, self.y + 6.5));
            self.text(x + KEY + 4.0, self.y + 10.0, Anchor::Start, "value", &name);
            x += wide + GAP;
        }
        self.y += LINE + 2.0;
    }

    pub fn nothing(&mut self) {
        self.text(MARGIN, self.y + 14.0, Anchor::Start, "", "no data");
        self.y += 26.0;
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }
}

/// A coordinate rounded to a tenth, the limit of the eye; non-finite values become 0.
fn number(value: f64) -> String {
    let tenths = if value.is_finite() { (value * 10.0).round() / 10.0 } else { 0.0 };
    if tenths == 0.0 { "0".into() } else { format!("{tenths}") }
}

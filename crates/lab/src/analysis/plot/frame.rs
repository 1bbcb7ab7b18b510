//! The rectangle that holds the marks: between two axes, with grid and labels.

use super::axis::Axis;
use super::svg::{Anchor, MARGIN, Svg, WIDTH};
use super::text::{self, SIZE};

const GAP: f64 = 6.0;

#[derive(Debug)]
pub struct Frame {
    x: Axis,
    y: Axis,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Frame {
    /// A frame `height` high from `top`, with `left` units for the labels at its left.
    pub fn new(x: Axis, y: Axis, top: f64, height: f64, left: f64) -> Frame {
        // Half of the last label on the horizontal axis sticks out at the right.
        let last = x.ticks.last().map_or(0.0, |tick| text::width(&word(&x, x.ticks.len() - 1, tick), SIZE));
        let right = WIDTH - MARGIN - (last / 2.0).max(4.0);
        Frame { x, y, left, right, top: top + 5.0, bottom: top + 5.0 + height }
    }

    pub fn room(y: &Axis) -> f64 {
        MARGIN + GAP + y.ticks.iter().map(|tick| text::width(&tick.1, SIZE)).fold(0.0, f64::max)
    }

    pub fn x(&self, value: f64) -> f64 {
        self.left + self.x.part(value) * (self.right - self.left)
    }

    pub fn y(&self, value: f64) -> f64 {
        self.bottom - self.y.part(value) * (self.bottom - self.top)
    }

    pub fn at(&self, point: (f64, f64)) -> (f64, f64) {
        (self.x(point.0), self.y(point.1))
    }

    pub fn sides(&self) -> (f64, f64) {
        (self.left, self.right)
    }

    pub fn ends(&self) -> (f64, f64) {
        (self.top, self.bottom)
    }

    /// Draws grid and labels, those of the horizontal axis only if `words_below`. Moves `svg.y` below them.
    pub fn draw(&self, svg: &mut Svg, words_below: bool) {
        for (i, (value, words)) in self.y.ticks.iter().enumerate() {
            let y = self.y(*value);
            svg.line(if i == 0 { "axis" } else { "rule" }, (self.left, y), (self.right, y));
            svg.text(self.left - GAP, y + 3.8, Anchor::End, "", words);
        }
        for (i, tick) in self.x.ticks.iter().enumerate() {
            let x = self.x(tick.0);
            svg.line("axis", (x, self.bottom), (x, self.bottom + 3.0));
            if words_below {
                svg.text(x, self.bottom + 15.0, Anchor::Middle, "", &word(&self.x, i, tick));
            }
        }
        svg.y = self.bottom + if words_below { 24.0 } else { 10.0 };
    }
}

/// Label of a horizontal tick; the last one includes the unit.
fn word(axis: &Axis, index: usize, tick: &(f64, String)) -> String {
    match axis.unit.as_str() {
        "" => tick.1.clone(),
        "%" => format!("{}%", tick.1),
        unit if index + 1 == axis.ticks.len() => format!("{} {unit}", tick.1),
        _ => tick.1.clone(),
    }
}

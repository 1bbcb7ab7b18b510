//! One value against another: fill against speed, workers against throughput; with a fitted line and a mark.

use super::axis::Axis;
use super::frame::Frame;
use super::svg::{Anchor, MARGIN, Svg, WIDTH, colour};
use super::text::{self, SIZE};
use crate::unit::Unit;

/// One point.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Label; may be empty.
    pub name: String,
    /// Colour of its series.
    pub colour: usize,
    /// Horizontal value.
    pub x: f64,
    /// Vertical value.
    pub y: f64,
}

/// Points, a line through them, and a mark.
#[derive(Debug, Clone, PartialEq)]
pub struct Scatter {
    /// Horizontal label and unit.
    pub x: (String, Unit),
    /// Vertical label and unit.
    pub y: (String, Unit),
    /// All points.
    pub points: Vec<Point>,
    /// A fitted line in ascending order of x; may be empty.
    pub fit: Vec<(f64, f64)>,
    /// Horizontal position to mark, and its name: a cliff.
    pub mark: Option<(f64, String)>,
}

const HEIGHT: f64 = 190.0;
const WORD: f64 = 12.0;

/// Left, top, right, bottom.
type Area = (f64, f64, f64, f64);

pub(super) fn draw(scatter: &Scatter, svg: &mut Svg) {
    let finite = |p: &&Point| p.x.is_finite() && p.y.is_finite();
    let points: Vec<&Point> = scatter.points.iter().filter(finite).collect();
    if points.is_empty() {
        return svg.nothing();
    }
    let marked = scatter.mark.iter().map(|mark| mark.0);
    let x = Axis::around(scatter.x.1, points.iter().map(|p| p.x).chain(marked), 5);
    let y = Axis::around(scatter.y.1, points.iter().map(|p| p.y), 4);
    svg.legend(&head(&scatter.y.0, &y.unit), "", &[]);
    let left = Frame::room(&y);
    let frame = Frame::new(x, y, svg.y, HEIGHT, left);
    frame.draw(svg, true);
    svg.text(WIDTH - MARGIN, svg.y + 6.0, Anchor::End, "", &scatter.x.0);
    svg.y += 16.0;
    let mut taken: Vec<Area> = Vec::new();
    if let Some((at, name)) = &scatter.mark {
        let ((top, bottom), x) = (frame.ends(), frame.x(*at));
        svg.line("mark", (x, top), (x, bottom));
        let wide = text::width(name, SIZE);
        let (anchor, left) =
            if x - wide - 4.0 > frame.sides().0 { (Anchor::End, x - wide - 4.0) } else { (Anchor::Start, x) };
        svg.text(if anchor == Anchor::End { x - 4.0 } else { x + 4.0 }, top + 9.0, anchor, "", name);
        taken.extend([(left, top, left + wide + 4.0, top + WORD), (x - 1.0, top, x + 1.0, bottom)]);
    }
    let fit: Vec<_> = scatter.fit.iter().map(|&p| frame.at(p)).collect();
    svg.path("line dash c5", &fit, None);
    let places: Vec<(f64, f64)> = points.iter().map(|p| frame.at((p.x, p.y))).collect();
    taken.extend(places.iter().map(|&(x, y)| (x - 4.0, y - 4.0, x + 4.0, y + 4.0)));
    for (point, &place) in points.iter().zip(&places) {
        let about = format!("{} {}, {}", point.name, scatter.x.1.show(point.x), scatter.y.1.show(point.y));
        svg.dot(&format!("dot {}", colour(point.colour)), place, 4.0, about.trim());
        draw_name(&point.name, place, &frame, &mut taken, svg);
    }
}

/// Draws a name beside its point where it covers nothing, or omits it. Hovering over the point still shows
/// it.
fn draw_name(name: &str, (x, y): (f64, f64), frame: &Frame, taken: &mut Vec<Area>, svg: &mut Svg) {
    let wide = text::width(name, SIZE);
    let lefts = [x + 7.0, x - 7.0 - wide, x - wide / 2.0];
    let tops = [y - WORD / 2.0, y - WORD - 5.0, y + 5.0];
    let boxes = tops.iter().flat_map(|&top| lefts.iter().map(move |&l| (l, top, l + wide, top + WORD)));
    let ((left, _), (top, bottom)) = (frame.sides(), frame.ends());
    let within = |b: &Area| b.0 >= left && b.2 <= WIDTH - 2.0 && b.1 >= top - 4.0 && b.3 <= bottom;
    let apart = |a: &Area, b: &Area| a.2 <= b.0 || b.2 <= a.0 || a.3 <= b.1 || b.3 <= a.1;
    let free = boxes.into_iter().find(|b| within(b) && taken.iter().all(|t| apart(b, t)));
    if let Some(free) = free.filter(|_| !name.is_empty()) {
        svg.text(free.0, free.1 + 9.5, Anchor::Start, "value", name);
        taken.push(free);
    }
}

fn head(name: &str, unit: &str) -> String {
    if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") }
}

pub(super) fn describe(scatter: &Scatter) -> String {
    let point = |p: &Point| format!("{} {}: {}", p.name, scatter.x.1.show(p.x), scatter.y.1.show(p.y));
    let all = scatter.points.iter().map(point).collect::<Vec<_>>().join("; ");
    let mark =
        scatter.mark.as_ref().map_or(String::new(), |m| format!(" {} at {}.", m.1, scatter.x.1.show(m.0)));
    format!("{} against {}: {all}.{mark}", scatter.y.0, scatter.x.0)
}

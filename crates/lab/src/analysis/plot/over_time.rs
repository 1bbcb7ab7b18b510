//! Values over time: one panel, or several stacked panels that share the time axis.

use super::axis::Axis;
use super::frame::Frame;
use super::svg::{Svg, colour};
use super::thin::thin;
use crate::unit::Unit;

/// One value over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// (nanoseconds since the start, value), in time order.
    pub points: Vec<(u64, f64)>,
}

/// Lines with the same unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Heading; may be empty if the plot's title is enough.
    pub name: String,
    /// Unit of all lines.
    pub unit: Unit,
    /// Logarithmic axis, for latencies that span powers of ten.
    pub log: bool,
    /// Lines of the panel.
    pub lines: Vec<Line>,
}

/// Height of a single panel, and of one of several.
const HEIGHT: f64 = 150.0;
const HEIGHT_OF_SEVERAL: f64 = 62.0;

impl Panel {
    fn values(&self) -> impl Iterator<Item = f64> + Clone + '_ {
        self.lines.iter().flat_map(|line| line.points.iter().map(|p| p.1)).filter(|v| v.is_finite())
    }

    fn axis(&self, about: usize) -> Axis {
        let above_zero = || self.values().filter(|&v| v > 0.0);
        if self.log && above_zero().next().is_some() {
            let (low, high) = (above_zero().fold(f64::MAX, f64::min), above_zero().fold(0.0, f64::max));
            return Axis::log(self.unit, low, high).sparse(about + 2);
        }
        Axis::around(self.unit, self.values(), about)
    }

    fn head(&self, axis: &Axis) -> String {
        match (self.name.as_str(), axis.unit.as_str()) {
            (name, "") => name.to_owned(),
            ("", unit) => unit.to_owned(),
            (name, unit) => format!("{name}, {unit}"),
        }
    }
}

pub(super) fn draw(panels: &[Panel], svg: &mut Svg) {
    let panels: Vec<&Panel> = panels.iter().filter(|panel| panel.values().next().is_some()).collect();
    let times = panels.iter().flat_map(|p| &p.lines).filter_map(|line| line.points.last());
    let end = times.map(|p| p.0).max().unwrap_or(0).max(1) as f64;
    let (height, about) = if panels.len() > 1 { (HEIGHT_OF_SEVERAL, 2) } else { (HEIGHT, 4) };
    let axes: Vec<Axis> = panels.iter().map(|panel| panel.axis(about)).collect();
    let left = axes.iter().map(Frame::room).fold(0.0, f64::max);
    if panels.is_empty() {
        svg.nothing();
    }
    for (i, (panel, axis)) in panels.iter().zip(axes).enumerate() {
        let names: Vec<&str> = panel.lines.iter().map(|line| line.name.as_str()).collect();
        // A single line named like its panel needs no legend.
        let names = if panels.len() > 1 && names == [panel.name.as_str()] { vec![] } else { names };
        svg.legend(&panel.head(&axis), if panels.len() > 1 { "head" } else { "" }, &names);
        let frame = Frame::new(Axis::elapsed(end), axis, svg.y, height, left);
        frame.draw(svg, i + 1 == panels.len());
        for (series, line) in panel.lines.iter().enumerate() {
            let finite = line.points.iter().filter(|p| p.1.is_finite()).map(|p| (p.0 as f64, p.1));
            let points: Vec<(f64, f64)> =
                thin(&finite.collect::<Vec<_>>()).into_iter().map(|p| frame.at(p)).collect();
            svg.path(&format!("line {}", colour(series)), &points, None);
        }
    }
}

pub(super) fn describe(panels: &[Panel]) -> String {
    let line = |panel: &Panel, line: &Line| {
        let values = || line.points.iter().map(|p| p.1).filter(|v| v.is_finite());
        let name = if line.name.is_empty() { &panel.name } else { &line.name };
        let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
        (low <= high).then(|| format!("{name} from {} to {}", panel.unit.show(low), panel.unit.show(high)))
    };
    let all = panels.iter().flat_map(|panel| panel.lines.iter().filter_map(move |l| line(panel, l)));
    format!("Over time: {}.", all.collect::<Vec<_>>().join("; "))
}

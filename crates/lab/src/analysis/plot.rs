//! Plots as SVG, drawn here, since a report is one page that fetches nothing and reads well in light and dark
//! mode.
//!
//! A [`Plot`] is data and a title; [`Plot::svg`] lays it out: grid, marks, words. All are [`svg::WIDTH`]
//! units wide: two fit side by side on a page, and one on a phone with legible text.
//!
//! ```text
//! title
//! unit   ── series ── series        legend, only if there are several series
//!   2 ┤
//!   1 ┤    marks                    values start at zero, unless the axis is logarithmic
//!   0 ┼──────────────
//!     0    10   20 s
//! ```
//!
//! Invariants: [`svg::Svg`] alone writes XML, and escapes all outside text. Coordinates are finite and lie
//! within the plot. A line has at most a few hundred points ([`thin`]). One style sheet ([`STYLE`]) has the
//! colours. No element has an `id`, because many plots share a page.

mod axis;
mod bars;
mod distribution;
mod frame;
mod over_time;
mod scatter;
mod svg;
#[cfg(test)]
mod tests;
mod text;
mod thin;

pub use bars::{Bar, Bars, Group};
pub use distribution::Spread;
pub use over_time::{Line, Panel};
pub use scatter::{Point, Scatter};
pub use svg::{STYLE, SvgPlace};

use svg::Svg;

/// Data of a plot and its title.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// Describes the plot without the unit: "Random reads over time".
    pub title: String,
    /// Kind of plot, with the data.
    pub shape: Shape,
}

/// Kinds of plots.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// Values over time: one panel, or several that share the time axis.
    OverTime(Vec<Panel>),
    /// Frequency of latencies (or sizes) on a logarithmic axis.
    Histogram(Vec<Spread>),
    /// Share of operations that took no longer: percentiles, with one more nine at each step upwards.
    Percentiles(Vec<Spread>),
    /// Values side by side, with their intervals.
    Bars(Bars),
    /// One value against another, with a fitted line.
    Scatter(Scatter),
}

impl Plot {
    /// Renders an SVG element.
    pub fn svg(&self, place: SvgPlace) -> String {
        let mut svg = Svg::new(&self.title);
        match &self.shape {
            Shape::OverTime(panels) => over_time::draw(panels, &mut svg),
            Shape::Histogram(spreads) => distribution::draw_histogram(spreads, &mut svg),
            Shape::Percentiles(spreads) => distribution::draw_percentiles(spreads, &mut svg),
            Shape::Bars(bars) => bars::draw(bars, &mut svg),
            Shape::Scatter(scatter) => scatter::draw(scatter, &mut svg),
        }
        svg.finish(&self.title, &self.description(), place)
    }

    /// Text for readers who can't see the plot.
    pub fn description(&self) -> String {
        match &self.shape {
            Shape::OverTime(panels) => over_time::describe(panels),
            Shape::Histogram(spreads) | Shape::Percentiles(spreads) => distribution::describe(spreads),
            Shape::Bars(bars) => bars::describe(bars),
            Shape::Scatter(scatter) => scatter::describe(scatter),
        }
    }
}

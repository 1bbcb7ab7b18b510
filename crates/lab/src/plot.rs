//! Plots as SVG: drawn by us, because a report must be one page that fetches nothing and reads well in light and in dark.
//!
//! A [`Plot`] is data and a title; [`Plot::svg`] lays it out. All plots are [`WIDTH`] units wide: two fit side by side on a page, and one on
//! a telephone, with letters that can still be read. Each draws in the same order: grid, marks, words.
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
//! Invariants: every word from outside is escaped by [`svg::Svg`], which alone writes XML. Coordinates are finite and lie within the plot.
//! A line has at most some hundred points ([`thin`]). Colours are custom properties of one style sheet ([`STYLE`]), which
//! a file carries with it and a page has once. Nothing has an `id`: many plots stand in one page.

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

use svg::Svg;

/// The style sheet of all plots: colours for light and dark.
pub const STYLE: &str = include_str!("plot/style.css");

/// Width of every plot, in units of the SVG: about pixels.
pub const WIDTH: f64 = 480.0;

/// What is to be drawn, under which title.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// Says what is seen, without the unit: "Random reads over time".
    pub title: String,
    /// How it is drawn.
    pub shape: Shape,
}

/// The kinds of plots.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// Values over time: one panel, or several that share the axis of time.
    OverTime(Vec<Panel>),
    /// How often which latency (or size) was met, on a logarithmic axis.
    Histogram(Vec<Spread>),
    /// Which part of all operations took no longer: percentiles, with a nine more at each step upwards.
    Percentiles(Vec<Spread>),
    /// Values side by side, with their intervals.
    Bars(Bars),
    /// One value against another, with a fit.
    Scatter(Scatter),
}

/// Where an SVG goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A file of its own: carries the style sheet and a background.
    File,
    /// In a page that has [`STYLE`].
    Page,
}

impl Plot {
    /// The plot as an SVG element.
    pub fn svg(&self, place: Place) -> String {
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

    /// What the plot says, in words, for those who don't see it.
    pub fn description(&self) -> String {
        match &self.shape {
            Shape::OverTime(panels) => over_time::describe(panels),
            Shape::Histogram(spreads) | Shape::Percentiles(spreads) => distribution::describe(spreads),
            Shape::Bars(bars) => bars::describe(bars),
            Shape::Scatter(scatter) => scatter::describe(scatter),
        }
    }
}

//! Values side by side as horizontal bars from zero, each with its interval and every repeat as a dot:
//! outliers are shown, not dropped.

use super::axis::Axis;
use super::svg::{Anchor, MARGIN, Svg, WIDTH, colour};
use super::text::{self, SIZE};
use crate::unit::Unit;

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Label: a target.
    pub name: String,
    /// A target has the same colour in all plots.
    pub colour: usize,
    /// A median.
    pub value: f64,
    /// Interval of the median.
    pub interval: Option<(f64, f64)>,
    /// Repeats behind the median, if several.
    pub repeats: Vec<f64>,
    /// A word or two after the value: "unstable".
    pub remark: String,
}

/// Bars under a heading.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// May be empty with only one group.
    pub name: String,
    /// Bars of the group.
    pub bars: Vec<Bar>,
}

/// All bars of a plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// Unit of all values.
    pub unit: Unit,
    /// Bars, by group.
    pub groups: Vec<Group>,
}

/// Distance between bars, and their thickness.
const ROW: f64 = 24.0;
const THICK: f64 = 11.0;
/// Longer names are truncated.
const LONGEST_NAME: f64 = 120.0;

impl Bar {
    fn values(&self) -> impl Iterator<Item = f64> + Clone + '_ {
        let interval = self.interval.into_iter().flat_map(|(low, high)| [low, high]);
        [self.value].into_iter().chain(interval).chain(self.repeats.iter().copied())
    }

    fn words(&self, unit: Unit) -> String {
        let space = if self.remark.is_empty() { "" } else { " " };
        let words = format!("{}{space}{}", unit.show(self.value), self.remark);
        text::fit(&words, SIZE, LONGEST_NAME)
    }
}

pub(super) fn draw(bars: &Bars, svg: &mut Svg) {
    let all = || bars.groups.iter().flat_map(|group| &group.bars);
    if all().next().is_none() {
        return svg.nothing();
    }
    let named = all().map(|bar| text::width(&bar.name, SIZE)).fold(0.0, f64::max).min(LONGEST_NAME);
    let worded = all().map(|bar| text::width(&bar.words(bars.unit), SIZE)).fold(0.0, f64::max);
    let (left, right) = (MARGIN + named + 8.0, WIDTH - MARGIN - worded - 8.0);
    let axis = Axis::bare(all().flat_map(Bar::values));
    let x = |value: f64| left + axis.part(value) * (right - left).max(40.0);
    for group in &bars.groups {
        if !group.name.is_empty() {
            svg.text(
                MARGIN,
                svg.y + 11.0,
                Anchor::Start,
                "head",
                &text::fit(&group.name, SIZE, WIDTH - 2.0 * MARGIN),
            );
            svg.y += 17.0;
        }
        for bar in &group.bars {
            draw_bar(bar, bars.unit, left, &x, svg);
            svg.y += ROW;
        }
        svg.y += 4.0;
    }
    svg.y += 4.0;
}

fn draw_bar(bar: &Bar, unit: Unit, left: f64, x: &impl Fn(f64) -> f64, svg: &mut Svg) {
    let middle = svg.y + ROW / 2.0;
    let name = text::fit(&bar.name, SIZE, LONGEST_NAME);
    svg.text(left - 8.0, middle + 3.8, Anchor::End, "", &name);
    svg.rect(
        &format!("bar {}", colour(bar.colour)),
        x(0.0),
        middle - THICK / 2.0,
        x(bar.value) - x(0.0),
        THICK,
    );
    svg.line("axis", (x(0.0), middle - ROW / 2.0), (x(0.0), middle + ROW / 2.0));
    if let Some((low, high)) = bar.interval {
        let (low, high) = (x(low), x(high));
        svg.line("whisker", (low, middle), (high, middle));
        svg.line("whisker", (low, middle - 4.0), (low, middle + 4.0));
        svg.line("whisker", (high, middle - 4.0), (high, middle + 4.0));
    }
    for &repeat in bar.repeats.iter().filter(|_| bar.repeats.len() > 1) {
        svg.dot("repeat", (x(repeat), middle), 1.8, &unit.show(repeat));
    }
    let end = bar.values().map(x).fold(0.0, f64::max);
    svg.text(end + 7.0, middle + 3.8, Anchor::Start, "value", &bar.words(unit));
}

pub(super) fn describe(bars: &Bars) -> String {
    let group = |group: &Group| {
        let all = group.bars.iter().map(|bar| format!("{} {}", bar.name, bar.words(bars.unit)));
        let head = if group.name.is_empty() { String::new() } else { format!("{}: ", group.name) };
        format!("{head}{}", all.collect::<Vec<_>>().join(", "))
    };
    format!("{}.", bars.groups.iter().map(group).collect::<Vec<_>>().join("; "))
}

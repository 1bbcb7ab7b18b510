//! Formatting of numbers, names and lists, the same in all sections.

use chrono::DateTime;

use crate::analysis::report::document::Text;
use crate::load::result::FigureSummary;
use crate::stats::Interval;
use crate::unit::{Unit, digits};

/// A time in nanoseconds since 1970, as a date in UTC.
pub fn date(unix_ns: u64) -> String {
    DateTime::from_timestamp_nanos(unix_ns.cast_signed()).format("%Y-%m-%d %H:%M UTC").to_string()
}

pub fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// `a`, `a and b`, `a, b and c`.
pub fn list(items: &[Text]) -> Text {
    let mut all = Text::new();
    for (i, item) in items.iter().enumerate() {
        let between = match i {
            0 => "",
            i if i + 1 == items.len() => " and ",
            _ => ", ",
        };
        all = all.plain(between);
        all.0.extend(item.0.iter().cloned());
    }
    all
}

pub fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Text {
    list(&names.into_iter().map(|name| Text::new().code(name)).collect::<Vec<_>>())
}

/// `1 target`, `4 targets`.
pub fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// An interval in the unit of its median: `310–325`. None if too narrow to matter.
pub fn interval(unit: Unit, median: f64, interval: Option<Interval>) -> Option<String> {
    let interval = interval?;
    let (divisor, _) = unit.scale(median);
    let (low, high) = (digits(interval.low / divisor), digits(interval.high / divisor));
    (low != high).then(|| format!("{low}–{high}"))
}

/// Median in a table, with its interval, and a flag if repeats differ much.
pub fn cell(figure: Option<&FigureSummary>, strong: bool) -> Text {
    let Some(figure) = figure else { return Text::new().dim("–") };
    let median = figure.unit.show(figure.spread.median);
    let text = if strong { Text::new().strong(median) } else { Text::from(median) };
    let text = match interval(figure.unit, figure.spread.median, figure.spread.interval) {
        Some(interval) => text.dim(format!(" {interval}")),
        None => text,
    };
    if figure.spread.unstable { text.dim(" unstable") } else { text }
}

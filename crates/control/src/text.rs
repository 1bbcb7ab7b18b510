//! Values as text, and text as values: names, sizes, times, counts, as `zfs` and `zpool` write them.

mod count;
mod escape;
mod glob;
mod quote;
mod size;
mod time;

pub use count::{counted, counted_as};
pub use escape::{escape_terminal, hex, visible};
pub use glob::glob_matches;
pub use quote::{json_name, quoted, unquoted};
pub use size::{nice_bytes, nice_number, parse_bytes, time_span};
pub use time::{
    ctime, date, days_and_clock, dotted_time, duration, iso_utc, parse_date, short_time, short_time_seconds,
};

//! Turns values into text for people and programs: sizes, times, columns, escapes.
//!
//! Idea: commands build values and only this module formats them, so every command prints sizes, times and
//! tables the same way, and the way `zfs` and `zpool` do.

mod count;
mod escape;
mod glob;
mod json;
mod quote;
mod size;
mod table;
mod time;

pub use count::{counted, counted_as};
pub use escape::{escape_terminal, hex, visible};
pub use glob::glob_matches;
pub use json::{json_line, json_lines};
pub use quote::{json_name, quoted, unquoted};
pub use size::{nice_bytes, nice_number, parse_bytes, time_span};
pub use table::{Align, Table};
pub use time::{ctime, date, days_and_clock, dotted_time, duration, iso_utc, short_time, short_time_seconds};

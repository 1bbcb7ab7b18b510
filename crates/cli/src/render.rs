//! Turning values into what people and programs read: sizes, times, columns, escapes.
//!
//! Idea: commands build values; only here do they become text, so that every command prints a size, a
//! time or a table alike, and as `zfs` and `zpool` do.

mod escape;
mod glob;
mod size;
mod table;
mod time;

pub use escape::escape_terminal;
pub use glob::glob_matches;
pub use size::{nice_bytes, nice_number, parse_bytes};
pub use table::{Align, Table};
pub use time::{ctime, days_and_clock, dotted_time, duration, iso_utc, short_time, short_time_seconds};

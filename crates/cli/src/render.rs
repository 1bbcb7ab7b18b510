//! Turns values into text for people and programs: sizes, times, columns, escapes.
//!
//! Idea: commands build values and only this module formats them, so every command prints sizes, times and
//! tables the same way, and the way `zfs` and `zpool` do.

mod json;
mod paragraph;
mod table;

pub use cenote_control::text::{
    counted, counted_as, ctime, date, days_and_clock, dotted_time, duration, escape_terminal, hex, iso_utc,
    json_name, nice_bytes, nice_number, parse_bytes, quoted, short_time, short_time_seconds, time_span,
    visible,
};
pub use json::{json_line, json_lines};
pub use paragraph::paragraph;
pub use table::{Align, Table};

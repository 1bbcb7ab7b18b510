//! Answers as text and JSON: layout, columns, units, colours.
//!
//! ```text
//!   control: an answer ──┐
//!                        ├──> text (layout of zpool, zfs, ls ...) or JSON ──> cli: standard output
//!   cli: how to print ───┘
//! ```
//!
//! Idea: an answer has one module, named like its verb in `cenote_control`, with a function for its text and
//! one for its JSON. Options that shape the output are plain values; this crate knows neither the command
//! line nor the daemon. Listings of any length write to a [`std::io::Write`] as their parts arrive.
//!
//! [`numbers`], [`table`], [`property`] and [`json`] are the common parts: all answers print sizes, columns,
//! properties and documents as `zfs` and `zpool` do. Text keeps control characters from disks: the writer
//! escapes them (`cenote_control::text::visible`), except where a module escapes by itself because its output
//! has colours.

pub mod files;
pub mod inspect;
pub mod json;
pub mod lab;
pub mod numbers;
pub mod output;
mod paragraph;
pub mod progress;
pub mod property;
pub mod replicate;
pub mod running;
pub mod stream;
pub mod table;
pub mod trace;
pub mod volume;
pub mod zfs;
pub mod zpool;

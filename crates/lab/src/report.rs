//! Reports: what was found, written so that a reader needs nothing else to judge it.
//!
//! ```text
//! result, findings ──> build ──> Document ──┬──> markdown  + plots/*.svg
//!                                           ├──> html        one page that fetches nothing
//!                                           └──> text        for a terminal
//! ```
//!
//! A [`Document`] is a list of [`Block`]s and knows no format. Words in it are plain ([`Text`]); each renderer escapes all of them, because
//! names of pools, files, disks and hosts are whatever somebody made them.

mod document;
pub(crate) mod escape;
mod html;
mod markdown;
#[cfg(test)]
mod tests;
mod text;

pub use document::{Align, Block, Cell, Column, Document, Figure, Note, Span, Table, Text};
pub use html::html;
pub use markdown::{Markdown, markdown};
pub use text::{Style, text};

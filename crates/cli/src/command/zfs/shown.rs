//! Commands that show datasets: text and JSON of answers, with OpenZFS's layout.

pub(super) mod diff;
pub(super) mod get;
pub(super) mod holds;
pub(super) mod list;
pub(super) mod userspace;
pub(super) mod value;

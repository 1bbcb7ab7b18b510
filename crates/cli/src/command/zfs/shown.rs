//! Command lines of the verbs that show datasets.

pub(super) mod diff;
pub(super) mod get;
pub(super) mod holds;
pub(super) mod list;
pub(super) mod userspace;

//! Points in time: verbs that make, keep and name snapshots and bookmarks, and return to them.

pub mod bookmark;
pub mod diff;
pub mod hold;
pub mod holds;
pub mod redact;
pub mod release;
pub mod rollback;
pub mod snapshot;
mod tagged;

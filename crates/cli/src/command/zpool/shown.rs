//! Command lines of the verbs that show pools.

pub(super) mod events;
pub(super) mod get;
pub(super) mod history;
pub mod iostat;
pub(super) mod list;
pub mod repeat;
pub(super) mod status;

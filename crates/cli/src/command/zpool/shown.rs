//! Commands that show pools: text and JSON of answers, with OpenZFS's layout.

mod dedup;
pub(super) mod events;
mod expansion;
pub(super) mod get;
pub(super) mod history;
pub mod iostat;
pub(super) mod list;
mod pass_status;
pub(super) mod pool_json;
mod properties;
pub mod repeat;
mod scan_status;
mod scan_status_json;
pub(super) mod status;
pub mod tree;
pub(super) mod vdevs_json;
mod waiting;

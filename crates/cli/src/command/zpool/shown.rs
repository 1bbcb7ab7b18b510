//! Commands that show pools: text and JSON of answers, with OpenZFS's layout.

mod dedup;
pub(super) mod events;
mod expansion;
pub(super) mod get;
pub(super) mod history;
pub mod iostat;
mod leaf_work;
pub(super) mod list;
pub(super) mod pool_json;
mod properties;
pub mod repeat;
pub(super) mod status;
pub mod tree;
pub(super) mod vdevs_json;
mod waiting;
mod work;
mod work_json;

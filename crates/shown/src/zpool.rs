//! Answers about pools, with the layout of `zpool`.

pub mod events;
pub mod get;
mod head;
pub mod history;
pub mod import;
pub mod iostat;
pub mod layout;
pub mod list;
mod properties;
pub mod scripts;
pub mod status;
pub(crate) mod tree;
pub mod upgrade;
mod vdevs;
pub mod wait;
mod waiting;

pub use head::Keys;
pub use tree::Names;

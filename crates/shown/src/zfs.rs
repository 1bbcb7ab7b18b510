//! Answers about datasets, with the layout of `zfs`.

pub mod allow;
pub mod create;
pub mod destroy;
pub mod diff;
pub mod get;
mod head;
pub mod holds;
pub mod list;
pub mod mount;
pub mod program;
pub mod upgrade;
pub mod userspace;
mod value;

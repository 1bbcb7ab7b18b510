//! The verbs of `zfs`, a file each; and how they name datasets (`select`) and properties (`wanted`, `owner`).

pub mod get;
pub mod list;
pub mod owner;
pub mod parents;
pub mod receive;
pub mod select;
pub mod send;
mod shown;
pub mod wait;
pub mod wanted;

pub use shown::{Datasets, Shown};

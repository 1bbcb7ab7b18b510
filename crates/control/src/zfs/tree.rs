//! The tree of datasets: verbs that make them, move them about and destroy them.

pub mod above;
pub mod clone;
pub mod create;
pub mod dependents;
pub mod destroy;
pub mod fill;
pub mod promote;
mod ranges;
pub mod rename;

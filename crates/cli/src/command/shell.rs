//! Commands for shells and packages: completions and man pages, made from the description of the commands.

pub mod complete;
pub mod completions;
pub mod man;

//! The commands, one module each: its options, what it does with the engine, how it shows the result.

pub mod change;
pub mod completions;
pub mod cp;
pub mod demo;
pub mod dump;
pub mod files;
pub mod find;
mod form;
mod json;
pub mod lab;
pub mod rescue;
pub mod scan;
pub mod verify;
pub mod volume;
pub mod zfs;
pub mod zpool;

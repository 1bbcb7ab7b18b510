//! The commands, one module each: its options, the engine calls it makes, and its output.

pub mod demo;
pub mod files;
mod form;
pub mod guard;
pub mod inspect;
pub mod lab;
pub mod mount;
mod not_yet;
pub mod replicate;
pub mod running;
pub mod serve;
pub mod shell;
pub mod stream;
pub mod trace;
pub mod volume;
pub mod zfs;
pub mod zpool;

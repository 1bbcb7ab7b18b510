//! What explains a pool: `scan` (every file), `verify` (every block), `rescue` (what can be saved), `dump` (any structure);
//! `copy`, which gets files and volumes out of it, and `put`, which gets files into it.
//!
//! Idea: these read a whole pool, so they read it in disk order: pointers are collected, sorted by place and read with
//! their neighbours, instead of walking the tree block by block. Memory stays bounded whatever the pool's size: work goes
//! in windows, results leave as they are made.
#![forbid(unsafe_code)]

pub mod copy;
pub mod dump;
mod error;
pub mod put;
pub mod rescue;
pub mod scan;
pub mod verify;

pub use error::{InspectError, Result};

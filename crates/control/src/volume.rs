//! Volumes: one is copied out or in; the clients of those that are served.

pub mod clients;
pub mod copy;
mod into;

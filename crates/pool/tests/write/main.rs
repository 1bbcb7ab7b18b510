//! The write side on modelled disks: written blocks read back, survive tolerable losses, and are found again.
//!
//! All runs are simulations; a failure prints its seed.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod gang;
mod lab;
mod labels;
mod later;
mod log;
mod losses;
mod mirror;
mod mismatch;
mod round_trip;

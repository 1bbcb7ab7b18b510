//! Devices that go out of use, come back, or leave for good.

pub mod clear;
pub mod detach;
pub mod meant;
pub mod offline;
pub mod online;
pub mod remove;
pub mod reopen;

//! Devices that go out of use and come back, and that leave for good.

pub mod clear;
pub mod detach;
pub mod meant;
pub mod offline;
pub mod online;
pub mod remove;
pub mod reopen;

//! Devices that go out of use and come back.

pub mod clear;
pub mod meant;
pub mod offline;
pub mod online;
pub mod reopen;

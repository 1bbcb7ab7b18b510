//! Multihost protection: two machines on the same disks, under the virtual clock.
//!
//! | module | shows |
//! |---|---|
//! | `machine` | the machines, their disks, and an oracle of whose writes reach them |
//! | `beats` | heartbeats on disk, the property, suspension |
//! | `imports` | the watch, the claim, and their refusals |
//! | `takeover` | many seeds of machines that import, stall, crash and export: never two at once |

#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod beats;
mod imports;
mod machine;
mod takeover;

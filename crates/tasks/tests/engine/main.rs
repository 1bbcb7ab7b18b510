//! The engine: pools are created and changed, then reopened, also by `zdb`.

#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod accounts;
mod autotrim;
mod common;
mod datasets;
mod dedup;
mod expansion;
mod features;
mod freeing;
mod health;
mod limits;
mod many;
mod mend;
mod names;
mod removal;
mod space_log;
mod space_maps;
mod taking;
mod txgs;
mod vdev_tree;

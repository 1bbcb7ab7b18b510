//! Pools that the daemon can't open yet.
//!
//! OpenZFS lists a pool of its cache file that does not open as UNAVAIL.

use std::path::PathBuf;

use cenote_format::units::Guid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::session::Session;

/// A pool that waits to be opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waits {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: Guid,
    /// Why it does not open.
    pub why: String,
    /// Seconds waited so far.
    pub seconds: u64,
    /// Tries so far.
    pub tries: u32,
    /// Last paths of its devices.
    pub devices: Vec<PathBuf>,
}

/// Waiting pools with these names, or all.
pub fn waits(session: &Session, names: &[String]) -> Vec<Waits> {
    let now = session.runtime().now();
    let all = session.waiting(names).into_iter();
    let waits = all.map(|waiting| Waits {
        name: waiting.pool.name,
        guid: Guid(waiting.pool.guid),
        why: waiting.why,
        seconds: now.since(waiting.since).as_secs(),
        tries: waiting.tries,
        devices: waiting.pool.devices.into_iter().map(|device| device.path.shown()).collect(),
    });
    waits.collect()
}

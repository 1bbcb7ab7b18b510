//! `top`: pools, vdevs, classes of operations, latencies and caches of the daemon, live.

mod look;
mod view;

use serde_json::Value;

pub use look::Look;
pub use view::{fitted, text};

use crate::json::document;

/// As JSON.
pub fn json(look: &Look) -> Value {
    document("top", "pools", look.json())
}

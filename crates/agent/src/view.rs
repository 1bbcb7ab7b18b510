//! The agent's view of pools: documents that commands print.

use std::sync::Arc;

use cenote_serve::run::{Document, document};
use cenote_serve::socket::Serving;
use serde_json::Value;

/// Limit on a command's output.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;

/// Runs a command; returns its document.
pub async fn run(commands: &Arc<dyn Serving>, words: &[&str]) -> Document {
    document(commands, words.iter().copied(), DOCUMENT_BYTES_MAX).await
}

/// All vdevs below a pool or vdev of `zpool status -j`.
pub fn vdevs(of: &Value) -> Vec<&Value> {
    let groups = ["vdevs", "special", "dedup", "logs", "l2cache", "spares"];
    let below = groups.iter().filter_map(|group| of[*group].as_object()).flat_map(|vdevs| vdevs.values());
    below.flat_map(|vdev| std::iter::once(vdev).chain(vdevs(vdev))).collect()
}

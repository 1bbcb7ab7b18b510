//! The scan of an open pool (scrub, resilver), as far as it is in memory: whose turn it is, and how fast it
//! goes. What has been scanned is in the pool.
//!
//! Locking: `turn` is held by whoever scans; the others are locked for one look or change.

use std::sync::Arc;

use cenote_runtime::Instant;
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, watch};

use crate::engine::Engine;

/// What those who scan, start scans and look at them share.
pub(crate) struct Scanning {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Counts orders: scans that begin, pause, go on, end; devices that come back.
    orders: watch::Sender<u64>,
    pass: Mutex<Option<Pass>>,
}

impl Default for Scanning {
    fn default() -> Scanning {
        Scanning { turn: Arc::default(), orders: watch::Sender::new(0), pass: Mutex::default() }
    }
}

/// A scan that runs, since this engine began it or went on with it.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// When that was.
    pub since: Instant,
    /// Bytes scanned since.
    pub done_bytes: u64,
}

impl Engine {
    /// Waits until nobody else scans, and lets nobody else until this is dropped.
    pub async fn scan_turn(&self) -> OwnedMutexGuard<()> {
        self.0.scanning.turn.clone().lock_owned().await
    }

    /// There is something else to scan, or nothing any more: whoever scans looks again.
    pub fn order_scan(&self) {
        self.0.scanning.orders.send_modify(|orders| *orders += 1);
    }

    /// Hears of orders. It ends with the engine.
    pub fn scan_orders(&self) -> watch::Receiver<u64> {
        self.0.scanning.orders.subscribe()
    }

    /// The scan that runs.
    pub fn scan_pass(&self) -> Option<Pass> {
        *self.0.scanning.pass.lock()
    }

    /// How far the scan has come that runs; `None`: it has ended.
    pub fn set_scan_pass(&self, pass: Option<Pass>) {
        *self.0.scanning.pass.lock() = pass;
    }
}

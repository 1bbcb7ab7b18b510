//! Blocks being read ahead: a reader of such a block waits for that read.
//!
//! Idea: a window claims its blocks one by one, and releases each once cached, or when it ends. A waiting
//! reader then looks in the cache again, and reads a missing block itself.
//!
//! Locking: one mutex for the table, never held across an await.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::Semaphore;

use crate::identity::Key;

/// Gates by block; each opens after the read.
#[derive(Default)]
pub(crate) struct UnderWay(Mutex<FxHashMap<Key, Arc<Semaphore>>>);

/// Claimed blocks, in the order of reading.
pub(crate) struct Window<'a> {
    table: &'a UnderWay,
    claimed: VecDeque<Key>,
}

impl UnderWay {
    pub(crate) fn window(&self) -> Window<'_> {
        Window { table: self, claimed: VecDeque::new() }
    }

    pub(crate) fn is_claimed(&self, key: &Key) -> bool {
        self.0.lock().contains_key(key)
    }

    /// Waits until a block is no longer being read ahead. Returns whether it was.
    pub(crate) async fn wait(&self, key: &Key) -> bool {
        let Some(gate) = self.0.lock().get(key).cloned() else { return false };
        // It has no permits: it is only ever closed.
        drop(gate.acquire().await);
        true
    }

    fn open(&self, key: &Key) {
        if let Some(gate) = self.0.lock().remove(key) {
            gate.close();
        }
    }
}

impl Window<'_> {
    /// Claims a block. Returns false if another window has it.
    pub(crate) fn claim(&mut self, key: Key) -> bool {
        match self.table.0.lock().entry(key) {
            std::collections::hash_map::Entry::Occupied(_) => return false,
            std::collections::hash_map::Entry::Vacant(entry) => entry.insert(Arc::new(Semaphore::new(0))),
        };
        self.claimed.push_back(key);
        true
    }

    /// Releases the next block, whether its read succeeded or failed.
    pub(crate) fn next_is_done(&mut self) {
        if let Some(key) = self.claimed.pop_front() {
            self.table.open(&key);
        }
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        self.claimed.iter().for_each(|key| self.table.open(key));
    }
}

//! Blocks that are being read ahead: who wants one waits for that read.
//!
//! Idea: a window claims its blocks one by one and gives each back when it is in the cache, or all of them
//! when it ends, however it ends. Whoever waits looks for the block in the cache again, and reads it itself
//! if it is not there.
//!
//! Locking: one mutex for the table, never held across an await.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::Semaphore;

use crate::identity::Key;

/// Blocks being read ahead, by what they are called, and what opens when they are there.
#[derive(Default)]
pub(crate) struct UnderWay(Mutex<FxHashMap<Key, Arc<Semaphore>>>);

/// Some blocks that are being read ahead, in the order in which they are read.
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

    /// Waits until a block is no more being read ahead. Answers whether it was.
    pub(crate) async fn wait(&self, key: &Key) -> bool {
        let Some(gate) = self.0.lock().get(key).cloned() else { return false };
        // It has no permits: it is only closed.
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
    /// Claims a block. Answers whether nobody else has.
    pub(crate) fn claim(&mut self, key: Key) -> bool {
        match self.table.0.lock().entry(key) {
            std::collections::hash_map::Entry::Occupied(_) => return false,
            std::collections::hash_map::Entry::Vacant(entry) => entry.insert(Arc::new(Semaphore::new(0))),
        };
        self.claimed.push_back(key);
        true
    }

    /// The next block has been read, or can't be.
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

//! Clients of a pool's volumes.
//!
//! Idea: most clients use a volume while connected. A block device exists even when unused, so its entry is
//! asked whether the volume is in use ([`Presence`]).
//!
//! Locking: the table is locked for one look or change, and not while an entry is asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_boxed::boxed;
use cenote_runtime::Runtime;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cancel::Cancel;
use crate::pools::OpenPool;

/// A client of a volume.
#[derive(Debug, Clone)]
pub struct Client {
    /// The volume.
    pub volume: String,
    /// The protocol and the client's address: `NBD 192.0.2.7:40312`.
    pub who: String,
}

/// Tells whether a volume is in use. A plain string means: as long as it is recorded.
pub trait Presence: Send + Sync {
    /// The current client: protocol and address. `None`: unused, so the pool and volume are free to go.
    fn who(&self) -> Option<String>;

    /// The same, checked at this moment. Blocks.
    fn who_now(&self) -> Option<String> {
        self.who()
    }
}

impl Presence for String {
    fn who(&self) -> Option<String> {
        Some(self.clone())
    }
}

/// A pool's clients.
#[derive(Default)]
pub struct Clients {
    table: Mutex<BTreeMap<u64, Entry>>,
    next: AtomicU64,
    changed: Notify,
}

#[derive(Clone)]
struct Entry {
    volume: String,
    presence: Arc<dyn Presence>,
    cancel: Cancel,
}

impl Entry {
    fn asked(self, ask: impl Fn(&dyn Presence) -> Option<String>) -> Option<Client> {
        Some(Client { who: ask(&*self.presence)?, volume: self.volume })
    }
}

/// A client is recorded while this exists.
pub struct Noted {
    pub(super) pool: Arc<OpenPool>,
    id: u64,
}

impl Noted {
    /// Records a client; `cancel` disconnects it.
    pub fn new(pool: Arc<OpenPool>, volume: &str, presence: Arc<dyn Presence>, cancel: &Cancel) -> Noted {
        let id = pool.clients.next.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { volume: volume.into(), presence, cancel: cancel.clone() };
        pool.clients.table.lock().insert(id, entry);
        Noted { pool, id }
    }

    /// Renames the volume.
    pub fn rename(&self, volume: &str) {
        if let Some(entry) = self.pool.clients.table.lock().get_mut(&self.id) {
            entry.volume = volume.into();
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.pool.clients.table.lock().remove(&self.id);
        self.pool.clients.changed.notify_waiters();
    }
}

impl Clients {
    /// All current clients.
    pub fn list(&self) -> Vec<Client> {
        self.noted().into_iter().filter_map(|entry| entry.asked(|presence| presence.who())).collect()
    }

    /// One client using a volume at this moment.
    #[boxed]
    pub async fn in_the_way(&self, runtime: &Runtime) -> Option<Client> {
        let noted = self.noted();
        let asked = |entry: Entry| entry.asked(|presence| presence.who_now());
        runtime.blocking(move || noted.into_iter().rev().find_map(asked)).await
    }

    fn noted(&self) -> Vec<Entry> {
        self.table.lock().values().cloned().collect()
    }

    /// Asks all clients to disconnect, and waits until they have.
    #[boxed]
    pub async fn send_away(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let left = self.noted();
            if left.is_empty() {
                return;
            }
            left.iter().for_each(|entry| entry.cancel.cancel());
            changed.await;
        }
    }
}

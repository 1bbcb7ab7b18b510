//! Who uses the volumes of a pool.
//!
//! Idea: most clients use a volume as long as they are there, and then leave. A block device is there whether
//! somebody uses it or not: so those who are written down are asked who uses their volume ([`Presence`]).
//!
//! Locking: the table is locked for one look or change, and not while anybody is asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_boxed::boxed;
use cenote_runtime::Runtime;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cancel::Cancel;
use crate::pools::OpenPool;

/// Who uses a volume.
#[derive(Debug, Clone)]
pub struct Client {
    /// The volume.
    pub volume: String,
    /// The protocol and where the client is: `NBD 192.0.2.7:40312`.
    pub who: String,
}

/// Somebody who can tell whether a volume is in use. A name is of one who uses it as long as it is written
/// down.
pub trait Presence: Send + Sync {
    /// Who uses the volume at present: the protocol and where the client is. None: nobody does, so that
    /// nobody is in the way of whoever wants the pool, or the volume.
    fn who(&self) -> Option<String>;

    /// The same as of this very moment. Blocks.
    fn who_now(&self) -> Option<String> {
        self.who()
    }
}

impl Presence for String {
    fn who(&self) -> Option<String> {
        Some(self.clone())
    }
}

/// Who uses which volumes of a pool.
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

/// A client is written down while this is there.
pub struct Noted {
    pub(super) pool: Arc<OpenPool>,
    id: u64,
}

impl Noted {
    /// Writes a client down, who is asked to go by `cancel`.
    pub fn new(pool: Arc<OpenPool>, volume: &str, presence: Arc<dyn Presence>, cancel: &Cancel) -> Noted {
        let id = pool.clients.next.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { volume: volume.into(), presence, cancel: cancel.clone() };
        pool.clients.table.lock().insert(id, entry);
        Noted { pool, id }
    }

    /// The volume has another name.
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
    /// All who use a volume at present.
    pub fn list(&self) -> Vec<Client> {
        self.noted().into_iter().filter_map(|entry| entry.asked(|presence| presence.who())).collect()
    }

    /// One of those who use a volume at this very moment.
    #[boxed]
    pub async fn in_the_way(&self, runtime: &Runtime) -> Option<Client> {
        let noted = self.noted();
        let asked = |entry: Entry| entry.asked(|presence| presence.who_now());
        runtime.blocking(move || noted.into_iter().rev().find_map(asked)).await
    }

    fn noted(&self) -> Vec<Entry> {
        self.table.lock().values().cloned().collect()
    }

    /// Asks all to go, and waits until they have gone.
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

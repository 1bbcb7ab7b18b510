//! Waiting operations, and their interruption.
//!
//! ```text
//!   kill -9 of a process  --kernel--> INTERRUPT of its request
//!     the operation waits for devices that don't work (`Vfs::stuck`)   it is dropped: EINTR
//!     otherwise                                                        it goes on to its end, as on a disk
//! ```
//!
//! Idea: the kernel interrupts a request on any signal, and programs don't expect EINTR from files. So an
//! operation is dropped only if it could take forever.
//!
//! Operations that never wait are not in the table. For an interrupt that comes before its operation's entry,
//! the kernel is told to retry.
//!
//! Locking: one lock for the table, held for one look or change.
//!
//! Source: Linux `fs/fuse/dev.c` (`request_wait_answer`, `fuse_dev_do_write`: `-EAGAIN`).

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::channel::oneshot;
use parking_lot::Mutex;

/// By request number; `None`: interrupted.
#[derive(Debug, Default)]
pub struct Waiting(Mutex<BTreeMap<u64, Option<oneshot::Sender<()>>>>);

/// In the table until this is dropped.
#[derive(Debug)]
pub struct Entry {
    waiting: Arc<Waiting>,
    unique: u64,
    told: oneshot::Receiver<()>,
}

impl Waiting {
    pub fn enter(self: &Arc<Self>, unique: u64) -> Entry {
        let (tell, told) = oneshot::channel();
        self.0.lock().insert(unique, Some(tell));
        Entry { waiting: self.clone(), unique, told }
    }

    /// Interrupts an operation; returns whether it was in the table.
    pub fn interrupt(&self, unique: u64) -> bool {
        let mut table = self.0.lock();
        let known = table.get_mut(&unique);
        let is_known = known.is_some();
        if let Some(tell) = known.and_then(Option::take) {
            tell.send(()).ok();
        }
        is_known
    }

    pub fn is_interrupted(&self, unique: u64) -> bool {
        self.0.lock().get(&unique).is_some_and(|tell| tell.is_none())
    }
}

impl Entry {
    pub async fn interrupted(&mut self) {
        // The sender stays in the table until then.
        (&mut self.told).await.ok();
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.waiting.0.lock().remove(&self.unique);
    }
}

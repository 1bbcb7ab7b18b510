//! Progress of a RAID-Z expansion, and its exclusion of other I/O.
//!
//! ```text
//!   sectors of the vdev   |  at their new place  |  copied, or skipped  |  at their old place ...
//!                         0                    synced                  next
//!   read                          new           |          old         |          old
//!   write                         new           |     old and new      |          old
//! ```
//!
//! Idea: the uberblock on disk records `synced`, and after a power cut the pool is read by it. So sectors
//! beyond it are still read at their old place, and writes between `synced` and `next` go to both. A row not
//! wholly before `synced` is read at its old place. At its start an expansion would overwrite rows not yet
//! copied, so the first rows go to the scratch area, the boot area of each child, and are read there while
//! valid.
//!
//! Locking: I/O enters the range of its block. Copying a range, or moving `synced` or `next` over it,
//! requires exclusive access: it waits for the I/O inside and blocks other I/O only once granted, so a task
//! that holds some ranges may enter more. One exclusive access at a time. A mutex guards the table, never
//! across an await.
//!
//! Source: OpenZFS `vdev_raidz.c` (theory comment, `vre_rangelock`), `uberblock_impl.h` (`RRSS_*`).

use cenote_format::uberblock::Uberblock;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::Notify;

/// The states of the scratch area, `raidz_reflow_scratch_state_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Scratch {
    /// `RRSS_SCRATCH_VALID`: the first rows are read there.
    Valid = 1,
    /// `RRSS_SCRATCH_INVALID_SYNCED`: moved to their new place by the expansion's first task.
    Synced = 2,
    /// `RRSS_SCRATCH_INVALID_SYNCED_ON_IMPORT`: moved by an import.
    SyncedOnImport = 3,
    /// `RRSS_SCRATCH_INVALID_SYNCED_REFLOW`: moved, and recorded by a txg.
    SyncedReflow = 4,
}

/// Progress of an expansion.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Reflowed {
    /// Sectors before it have moved or are in the scratch area, per uberblock on disk; bytes of the vdev.
    pub synced_bytes: u64,
    /// Sectors before it are copied, perhaps unrecorded.
    pub next_bytes: u64,
    /// Sectors before `synced_bytes` are in the scratch area.
    pub scratch_is_valid: bool,
}

impl Reflowed {
    pub(crate) fn of(uberblock: &Uberblock) -> Reflowed {
        let synced_bytes = uberblock.reflow_offset_bytes();
        let scratch_is_valid = uberblock.reflow_scratch_state() == Scratch::Valid as u64;
        Reflowed { synced_bytes, next_bytes: synced_bytes, scratch_is_valid }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Reflow {
    table: Mutex<Table>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    at: Reflowed,
    inside: Vec<(u64, Range<u64>)>,
    entered: u64,
    alone: Option<Range<u64>>,
}

impl Table {
    fn is_free_of_io(&self, range: &Range<u64>) -> bool {
        self.alone.is_none() && !self.inside.iter().any(|(_, other)| overlap(other, range))
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Reflow {
    pub(crate) fn from(at: Reflowed) -> Reflow {
        Reflow { table: Mutex::new(Table { at, ..Table::default() }), changed: Notify::new() }
    }

    /// No tree refers to it yet.
    pub(crate) fn restart(&self) {
        self.table.lock().at = Reflowed::default();
    }

    /// Maps made from it stay valid while their range is entered.
    pub(crate) fn at(&self) -> Reflowed {
        self.table.lock().at
    }

    /// Enters a range for I/O, until dropped.
    pub(crate) async fn enter(self: &Arc<Self>, range: Range<u64>) -> Inside {
        self.when(|table| {
            if table.alone.as_ref().is_some_and(|alone| overlap(alone, &range)) {
                return None;
            }
            table.entered += 1;
            table.inside.push((table.entered, range.clone()));
            Some(Inside { reflow: self.clone(), entry: table.entered })
        })
        .await
    }

    /// Gets exclusive access to a range, until dropped.
    pub(crate) async fn alone(self: &Arc<Self>, range: Range<u64>) -> Alone {
        self.when(|table| {
            table.is_free_of_io(&range).then(|| {
                table.alone = Some(range.clone());
                Alone(self.clone())
            })
        })
        .await
    }

    async fn when<T>(&self, mut attempt: impl FnMut(&mut Table) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the check, or the last notification could fall between the two.
            changed.as_mut().enable();
            if let Some(done) = attempt(&mut self.table.lock()) {
                return done;
            }
            changed.await;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Inside {
    reflow: Arc<Reflow>,
    entry: u64,
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut table = self.reflow.table.lock();
        if let Some(index) = table.inside.iter().position(|(entry, _)| *entry == self.entry) {
            table.inside.swap_remove(index);
        }
        drop(table);
        self.reflow.changed.notify_waiters();
    }
}

pub(crate) struct Alone(Arc<Reflow>);

impl Alone {
    /// Only sectors in the held range may change their place.
    pub(crate) fn set(&self, at: Reflowed) {
        self.0.table.lock().at = at;
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.table.lock().alone = None;
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_runtime::{Runtime, SimConfig};
    use std::time::Duration;

    const WAIT: Duration = Duration::from_millis(1);

    #[test]
    fn who_is_alone_waits_for_those_inside_and_others_wait_only_while_it_works() {
        Runtime::simulate(SimConfig::default(), |rt| async move {
            let reflow = Arc::new(Reflow::default());
            let inside = reflow.enter(0..8).await;
            assert!(rt.timeout(WAIT, reflow.alone(4..12)).await.is_err(), "somebody is inside");
            // A pending exclusive access keeps no I/O out.
            let mut waiting = std::pin::pin!(reflow.alone(4..12));
            assert!(rt.timeout(WAIT, waiting.as_mut()).await.is_err());
            drop(reflow.enter(8..10).await);
            drop(inside);
            let alone = rt.timeout(WAIT, waiting).await.unwrap();
            drop(reflow.enter(12..20).await);
            assert!(rt.timeout(WAIT, reflow.enter(11..20)).await.is_err(), "it works there");
            assert!(rt.timeout(WAIT, reflow.alone(40..50)).await.is_err(), "one at a time");
            drop(alone);
            drop(reflow.enter(11..20).await);
        });
    }
}

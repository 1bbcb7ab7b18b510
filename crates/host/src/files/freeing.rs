//! Frees files without names once the kernel no longer refers to them.
//!
//! Idea: `rm -r` has the kernel forget thousands of files in a short time. One task frees all that wait, many
//! in one change: a task for each file would wake a thread for each.
//!
//! Locking: `Freeing` is locked for one look or change. The task holds `quiet` while it frees.

use cenote_engine::Need;
use cenote_format::units::ObjectId;
use parking_lot::Mutex;

use super::Files;

/// Most files freed under one hold: it keeps the txg open.
const FILES: usize = 64;

/// Files to free; `None`: no task is there to do it.
#[derive(Debug, Default)]
pub(super) struct Freeing(Mutex<Option<Vec<ObjectId>>>);

impl Freeing {
    /// Returns whether a task has to be started.
    fn add(&self, object: ObjectId) -> bool {
        let mut waiting = self.0.lock();
        let is_idle = waiting.is_none();
        waiting.get_or_insert_default().push(object);
        is_idle
    }

    /// For the task, which ends on `None`.
    fn next(&self) -> Option<Vec<ObjectId>> {
        let mut waiting = self.0.lock();
        let files = waiting.as_mut()?;
        if files.is_empty() {
            *waiting = None;
            return None;
        }
        let rest = files.split_off(files.len().min(FILES));
        Some(std::mem::replace(files, rest))
    }
}

impl Files {
    /// Frees a file without names; nobody waits for it.
    pub(super) fn free_soon(&self, object: ObjectId) {
        if self.0.freeing.add(object) {
            let files = self.clone();
            let work = async move {
                while let Some(objects) = files.0.freeing.next() {
                    let _busy = files.0.quiet.clone().read_owned().await;
                    files.free_all(objects).await;
                }
            };
            self.0.runtime.spawn(work).detach();
        }
    }

    async fn free_all(&self, objects: Vec<ObjectId>) {
        let freed = self.change(Need::Free, None, move |fs, change| {
            Box::pin(async move {
                let mut left = Vec::new();
                for object in objects {
                    if let Ok(false) = fs.free_unlinked(change, object).await {
                        left.push(object);
                    }
                }
                Ok(left)
            })
        });
        // Large files take more txgs.
        for object in freed.await.unwrap_or_default() {
            let files = self.clone();
            let work = async move {
                let _busy = files.0.quiet.clone().read_owned().await;
                if let Ok((engine, _)) = files.writer()
                    && engine.sync_all().await.is_ok()
                {
                    files.free_unlinked(object).await;
                }
            };
            self.0.runtime.spawn(work).detach();
        }
    }

    /// Frees a file without names, in as many txgs as needed. After an error the next [`Files::open`] does
    /// it.
    pub(super) async fn free_unlinked(&self, object: ObjectId) {
        let Ok((engine, _)) = self.writer() else { return };
        let step =
            async || self.change(Need::Free, None, move |fs, change| fs.free_unlinked(change, object)).await;
        while let Ok(false) = step().await {
            if engine.sync_all().await.is_err() {
                return;
            }
        }
    }
}

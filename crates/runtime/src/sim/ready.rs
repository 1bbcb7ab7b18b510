//! The list of ready tasks, and the wakers that add to it.
//!
//! Locking: wakers may run on any thread and under any lock, so this mutex is held only to push to the list
//! or to take from it, and no other lock is taken under it. `listed` keeps a task from being listed twice.

use super::TaskId;
use crate::rng::Rng;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

#[derive(Default)]
pub(super) struct ReadyList {
    tasks: Mutex<Vec<TaskId>>,
}

impl ReadyList {
    /// Each task with equal probability.
    pub(super) fn take(&self, rng: &mut Rng) -> Option<TaskId> {
        let mut tasks = self.tasks.lock();
        match tasks.len() {
            0 => None,
            1 => tasks.pop(),
            many => Some(tasks.swap_remove(rng.below(many as u64) as usize)),
        }
    }
}

pub(super) struct TaskWaker {
    task: TaskId,
    /// Waking twice counts once.
    listed: AtomicBool,
    list: Arc<ReadyList>,
}

impl TaskWaker {
    pub(super) fn new(task: TaskId, list: &Arc<ReadyList>) -> Arc<TaskWaker> {
        Arc::new(TaskWaker { task, listed: AtomicBool::new(false), list: list.clone() })
    }

    pub(super) fn ready(&self) {
        if !self.listed.swap(true, Ordering::AcqRel) {
            self.list.tasks.lock().push(self.task);
        }
    }

    /// About to be polled: from now on, waking lists it again.
    pub(super) fn running(&self) {
        self.listed.store(false, Ordering::Release);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready();
    }
}

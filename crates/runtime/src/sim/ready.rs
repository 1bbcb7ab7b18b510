//! The list of ready tasks, and the wakers that put tasks on it.

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
    /// Takes any one, all equally likely.
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
    /// On the list already: waking twice is waking once.
    listed: AtomicBool,
    list: Arc<ReadyList>,
}

impl TaskWaker {
    pub(super) fn new(task: TaskId, list: &Arc<ReadyList>) -> Arc<TaskWaker> {
        Arc::new(TaskWaker { task, listed: AtomicBool::new(false), list: list.clone() })
    }

    /// Puts the task on the list.
    pub(super) fn ready(&self) {
        if !self.listed.swap(true, Ordering::AcqRel) {
            self.list.tasks.lock().push(self.task);
        }
    }

    /// The task has been taken from the list and is about to be polled: from now on waking it lists it again.
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

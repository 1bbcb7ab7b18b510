//! The stack of directories and the workers that empty it.
//!
//! Every worker takes a share of the stack, lists those directories and puts the ones it finds back. A worker that finds
//! the stack empty waits until another puts something on it, or until all are waiting: then the walk is over.
//! A directory of millions of entries is cut into pieces that go on the stack too, so that all workers share it.

use std::sync::{Arc, Mutex, PoisonError};

use cenote_format::blkptr::Blkptr;
use cenote_format::units::ObjectId;
use cenote_runtime::Runtime;
use tokio::sync::{Notify, mpsc};

use super::hostile::Met;
use super::row::RowBatch;
use super::window::{self, Entries};
use super::{ScanNeeds, ScanTarget};
use crate::Result;

/// Directories that one worker takes at a time.
const WINDOW_DIRECTORIES: usize = 512;
/// Directories on the stack that may have their pointers with them: 16 MiB. More than these are looked up again.
const MOST_POINTERS: usize = 100_000;
/// Batches that may wait for the sink.
const WAITING_BATCHES: usize = 4;

/// A directory to be listed.
#[derive(Debug)]
pub(super) struct Directory {
    /// Its object.
    pub object: ObjectId,
    /// Its path; the root's is empty.
    pub path: Box<[u8]>,
    /// Where its names lie, if that is one block and known: its dnode need not be read once more.
    pub block: Option<Box<Blkptr>>,
}

/// Something on the stack.
#[derive(Debug)]
pub(super) enum Work {
    /// Directories to be listed.
    Directories(Vec<Directory>),
    /// Entries of a large directory, read already.
    Entries(Entries),
}

#[derive(Default)]
struct Stack {
    directories: Vec<Directory>,
    entries: Vec<Entries>,
    busy: usize,
    met: Met,
}

/// One scan under way.
pub(super) struct Walk {
    pub target: Arc<ScanTarget>,
    /// Where it begins.
    pub folder: ObjectId,
    pub needs: ScanNeeds,
    workers: usize,
    stack: Mutex<Stack>,
    changed: Notify,
}

impl Walk {
    pub fn new(target: ScanTarget, folder: ObjectId, needs: ScanNeeds) -> Walk {
        let workers = runtime(&target).parallelism().max(1);
        Walk {
            target: Arc::new(target),
            folder,
            needs,
            workers,
            stack: Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub async fn run<T, R, S>(self, render: R, mut sink: S) -> Result<()>
    where
        T: Send + 'static,
        R: Fn(&RowBatch) -> T + Send + Sync + 'static,
        S: FnMut(T) -> Result<()>,
    {
        let runtime = runtime(&self.target).clone();
        let walk = Arc::new(self);
        let render = Arc::new(render);
        let (sender, mut rendered) = mpsc::channel(WAITING_BATCHES);
        sender.send(render(&window::root(&walk).await?)).await.ok();
        walk.found(vec![Directory { object: walk.folder, path: Box::default(), block: None }]);
        let workers: Vec<_> = (0..walk.workers)
            .map(|_| {
                let (walk, render, sender) = (walk.clone(), render.clone(), sender.clone());
                runtime.spawn(async move { walk.work(&*render, sender).await }).abort_on_drop()
            })
            .collect();
        drop(sender);
        while let Some(result) = rendered.recv().await {
            sink(result)?;
        }
        for worker in workers {
            worker
                .await
                .map_err(|error| crate::InspectError::Request(format!("the scan stopped: {error}")))?;
        }
        Ok(())
    }

    async fn work<T>(&self, render: &impl Fn(&RowBatch) -> T, sender: mpsc::Sender<T>) {
        let mut batches = window::Batches::new(self, &sender, render);
        while let Some(work) = self.take().await {
            match work {
                Work::Directories(directories) => window::list(self, directories, &mut batches).await,
                Work::Entries(mut entries) => window::rows(self, &mut entries, &mut batches).await,
            }
            self.done();
            if sender.is_closed() {
                return;
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Stack> {
        // Nothing is left half done under the lock, so a panic elsewhere does no harm.
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next share of work; `None` when there is none and nobody is left who could find more.
    async fn take(&self) -> Option<Work> {
        loop {
            let changed = self.changed.notified();
            {
                let mut stack = self.lock();
                if let Some(entries) = stack.entries.pop() {
                    stack.busy += 1;
                    return Some(Work::Entries(entries));
                }
                if !stack.directories.is_empty() {
                    stack.busy += 1;
                    let waiting = stack.directories.len();
                    let share = waiting.div_ceil(self.workers).min(WINDOW_DIRECTORIES);
                    return Some(Work::Directories(stack.directories.split_off(waiting - share)));
                }
                if stack.busy == 0 {
                    drop(stack);
                    self.changed.notify_waiters();
                    return None;
                }
            }
            changed.await;
        }
    }

    fn done(&self) {
        self.lock().busy -= 1;
        self.changed.notify_waiters();
    }

    /// Puts directories on the stack.
    pub fn found(&self, mut directories: Vec<Directory>) {
        if directories.is_empty() {
            return;
        }
        let mut stack = self.lock();
        if stack.directories.len() > MOST_POINTERS {
            directories.iter_mut().for_each(|directory| directory.block = None);
        }
        stack.directories.extend(directories);
        drop(stack);
        self.changed.notify_waiters();
    }

    /// Whether this directory has not been met before.
    pub fn meets_first(&self, directory: ObjectId) -> bool {
        self.lock().met.first(directory)
    }

    /// Offers entries to workers that have nothing to do; gives them back if all are busy.
    pub fn share(&self, entries: Entries) -> Option<Entries> {
        let mut stack = self.lock();
        if stack.busy + stack.entries.len() >= self.workers {
            return Some(entries);
        }
        stack.entries.push(entries);
        drop(stack);
        self.changed.notify_waiters();
        None
    }
}

pub(super) fn runtime(target: &ScanTarget) -> &Runtime {
    target.filesystem.objset().pool().runtime()
}

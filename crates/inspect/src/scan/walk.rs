//! The stack of directories and the workers that empty it.
//!
//! Each worker takes directories from the stack, lists them and pushes the subdirectories. At an empty stack
//! it waits; once all wait, the walk is over. A directory with millions of entries is cut into pieces, which
//! all workers share.
//!
//! Locking: one mutex guards the stack, the count of busy workers and the directories met. Methods of
//! [`Walk`] take it for one operation, never across an await, and notify `changed` after its release.

use std::sync::{Arc, Mutex, PoisonError};

use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::ObjectId;
use cenote_runtime::Runtime;
use tokio::sync::{Notify, mpsc};

use super::hostile::Met;
use super::row::RowBatch;
use super::window::{self, Entries, SendBatch};
use super::{ScanNeeds, ScanTarget};
use crate::Result;

/// Directories that a worker takes at a time.
const WINDOW_DIRECTORIES: usize = 512;
/// Most directories on the stack with block pointers (16 MiB); the pointers of others are read again.
const MOST_POINTERS: usize = 100_000;
const WAITING_BATCHES: usize = 4;

#[derive(Debug)]
pub(super) struct Directory {
    /// Its object.
    pub object: ObjectId,
    /// Its path; the root's is empty.
    pub path: Box<[u8]>,
    /// The pointer to its entries, if they are one block and it is known: its dnode need not be read again.
    pub block: Option<Box<Blkptr>>,
}

#[derive(Debug)]
pub(super) enum Work {
    /// Directories to list.
    Directories(Vec<Directory>),
    /// Entries of a large directory, already read.
    Entries(Entries),
}

#[derive(Default)]
struct Stack {
    directories: Vec<Directory>,
    entries: Vec<Entries>,
    busy: usize,
    met: Met,
}

pub(super) struct Walk {
    pub target: Arc<ScanTarget>,
    /// The folder where it starts.
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
        let (sender, mut rendered) = mpsc::channel(WAITING_BATCHES);
        // The walk is compiled once: it knows neither the format of rows nor their destination.
        let send: Arc<SendBatch> = Arc::new(move |batch: &RowBatch| {
            let (rendered, sender) = (render(batch), sender.clone());
            Box::pin(async move { sender.send(rendered).await.is_ok() })
        });
        send(&window::root(&walk).await?).await;
        walk.found(vec![Directory { object: walk.folder, path: Box::default(), block: None }]);
        let workers: Vec<_> = (0..walk.workers)
            .map(|_| {
                let (walk, send) = (walk.clone(), send.clone());
                runtime.spawn(async move { walk.work(&*send).await }).abort_on_drop()
            })
            .collect();
        drop(send);
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

    #[boxed]
    async fn work(&self, send: &SendBatch) {
        let mut batches = window::Batches::new(self, send);
        while let Some(work) = self.take().await {
            match work {
                Work::Directories(directories) => window::list(self, directories, &mut batches).await,
                Work::Entries(mut entries) => window::rows(self, &mut entries, &mut batches).await,
            }
            self.done();
            if batches.is_closed() {
                return;
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Stack> {
        // No update under the lock can be left incomplete, so a panic elsewhere does no harm.
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next share of work; `None` if no worker can find more.
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

    /// Pushes directories on the stack.
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

    /// Whether this directory is met for the first time.
    pub fn meets_first(&self, directory: ObjectId) -> bool {
        self.lock().met.first(directory)
    }

    /// Offers entries to idle workers; returns them if all are busy.
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

//! Copy: files, trees and volumes out of a pool, as whole as the destination can hold them, and an account of what it could not.
//!
//! Idea: the pool's side is read ahead, in parallel, without blocking; the destination's side is plain system calls relative
//! to open folders. A file grows without a name (`O_TMPFILE`; where that is not known, under a temporary one), gets its
//! content, owner, extended attributes, mode and times in the order in which they don't undo each other, and only then appears under its
//! name. So an interrupted copy leaves no half files.
//!
//! ```text
//!   folders: depth first, one stack     files: up to FILES_AT_ONCE tasks, each   read ahead | write | dress | name
//!   a folder is dressed (mode, times) when the last task in it has ended
//! ```
//!
//! Names come from the pool and are hostile: a name that is not one component is refused, and nothing is ever opened through a
//! symbolic link, so what is written stays below the folder that the caller opened.
//!
//! What can't be kept is not an error but a [`Loss`], told to the caller as it happens and counted.
//!
//! Memory: a few windows of read-ahead for each large file under way ([`LARGE_AT_ONCE`]), at most [`LARGE_BYTES`] for each small one;
//! an entry for each file with several names; the names of subfolders of the folders on the stack.

mod content;
mod dress;
mod file;
mod folder;
mod links;
mod loss;
mod newfile;
mod special;
mod tree;
mod volume;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_format::units::ObjectId;
use cenote_fs::Filesystem;
use cenote_runtime::Runtime;
use tokio::sync::Semaphore;

pub use content::{Piece, Pieces, write_zeros};
pub use folder::{Folder, Name};
pub use loss::{Loss, LossKind, Reason};
pub use volume::VolumeSink;

/// Files that are copied at the same time.
const FILES_AT_ONCE: usize = 16;
/// Files larger than [`LARGE_BYTES`] that are copied at the same time.
const LARGE_AT_ONCE: usize = 3;
/// Files up to this size are read whole before they are written.
const LARGE_BYTES: u64 = 1 << 20;

/// How to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyOptions {
    /// Replace files that exist. Folders that exist are always entered.
    pub replace: bool,
    /// Restore owners, modes, times, extended attributes, ACLs and flags.
    pub metadata: bool,
    /// Where content can't be read, leave zeros and say so; otherwise such a file is not copied.
    pub partial: bool,
}

impl Default for CopyOptions {
    fn default() -> CopyOptions {
        CopyOptions { replace: false, metadata: true, partial: false }
    }
}

/// What is to be copied: a file, or a folder with all that is in it.
#[derive(Debug, Clone)]
pub struct CopySource {
    /// Where it is.
    pub filesystem: Filesystem,
    /// Which object.
    pub object: ObjectId,
    /// Its path, as losses shall show it; what is in it is shown below.
    pub path: Vec<u8>,
}

/// What was copied so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Further names of files with several.
    pub hard_links: u64,
    /// Symbolic links, fifos, sockets, devices.
    pub others: u64,
    /// Bytes of content, without holes.
    pub bytes: u64,
    /// Losses told.
    pub losses: u64,
}

/// Copies, counts, and tells losses. Cloning it costs an atomic increment.
#[derive(Clone)]
pub struct Copier(Arc<Shared>);

struct Shared {
    runtime: Runtime,
    options: CopyOptions,
    on_loss: Box<dyn Fn(Loss) + Send + Sync>,
    large: Semaphore,
    counters: Counters,
}

/// [`Copied`] while it grows.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) files: AtomicU64,
    pub(crate) folders: AtomicU64,
    pub(crate) hard_links: AtomicU64,
    pub(crate) others: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) losses: AtomicU64,
}

impl Counters {
    pub(crate) fn copied(&self) -> Copied {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Copied {
            files: get(&self.files),
            folders: get(&self.folders),
            hard_links: get(&self.hard_links),
            others: get(&self.others),
            bytes: get(&self.bytes),
            losses: get(&self.losses),
        }
    }
}

impl Copier {
    /// `on_loss` hears of everything that could not be kept, from several tasks at once.
    pub fn new(
        runtime: &Runtime,
        options: CopyOptions,
        on_loss: impl Fn(Loss) + Send + Sync + 'static,
    ) -> Copier {
        Copier(Arc::new(Shared {
            runtime: runtime.clone(),
            options,
            on_loss: Box::new(on_loss),
            large: Semaphore::new(LARGE_AT_ONCE),
            counters: Counters::default(),
        }))
    }

    /// What was copied so far; for progress, while copying goes on.
    pub fn copied(&self) -> Copied {
        self.0.counters.copied()
    }

    /// Copies a source to `name` in `folder`. A folder that exists there is entered.
    pub async fn copy(&self, source: &CopySource, folder: &Folder, name: &Name) {
        tree::copy(self, source, folder, name).await;
    }

    /// Copies what is in a source, a folder, into `folder`, and makes `folder` itself like it.
    pub async fn copy_into(&self, source: &CopySource, folder: &Folder) {
        tree::copy_into(self, source, folder).await;
    }

    /// Tells and counts a loss.
    pub(crate) fn lost(&self, loss: Loss) {
        self.count(|counters| &counters.losses, 1);
        (self.0.on_loss)(loss);
    }

    fn count(&self, which: impl Fn(&Counters) -> &AtomicU64, more: u64) {
        which(&self.0.counters).fetch_add(more, Ordering::Relaxed);
    }

    fn options(&self) -> CopyOptions {
        self.0.options
    }

    fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }
}

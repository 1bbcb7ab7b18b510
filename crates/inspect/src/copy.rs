//! Copies files, trees and volumes out of a pool, as completely as the destination allows, and accounts for
//! every loss.
//!
//! Idea: the pool is read ahead, in parallel; the destination is written by plain system calls relative to
//! open folders. A file is written without a name (`O_TMPFILE`, else under a temporary one). Content, owner,
//! extended attributes, mode and times follow in an order in which none undoes another; the name comes last,
//! so an interrupted copy leaves no partial files.
//!
//! ```text
//!   folders: depth first, one stack     files: up to FILES_AT_ONCE tasks,
//!                                              each   read ahead | write | dress | name
//!   a folder is dressed (mode, times) when the last task in it has ended
//! ```
//!
//! Names in the pool may be hostile: one that is not a single component is refused or replaced, and no
//! symbolic link is followed. So everything written stays below the caller's folder.
//!
//! An attribute or range that can't be preserved is a [`Loss`], not an error, and reported to an [`Account`]
//! at once; unreadable content before the file gets its name. So the account knows every file with zeros in
//! place of data, however the copy ends.
//!
//! Memory: a few windows of read-ahead per large file ([`LARGE_AT_ONCE`]), at most [`LARGE_BYTES`] per small
//! one; an entry per file with several names; the names of subfolders of the folders on the stack.
//!
//! Locking: any number of tasks may use and clone a [`Copier`]. The counters are relaxed atomics, exact once
//! the copy has ended. A semaphore limits large files; its permit is held for the whole file. The account is
//! called without locks.

mod account;
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

use cenote_boxed::boxed;
use cenote_format::units::ObjectId;
use cenote_fs::Filesystem;
use cenote_runtime::Runtime;
use rustix::io::Errno;
use tokio::sync::Semaphore;

pub use account::Account;
use account::Standing;
pub use content::{Piece, Pieces, write_zeros};
pub use folder::{Folder, Name};
pub(crate) use loss::POSIX_ACL_PREFIX;
pub use loss::{Loss, LossKind, Reason};
pub use volume::VolumeSink;

const FILES_AT_ONCE: usize = 16;
/// Of these, files larger than [`LARGE_BYTES`].
const LARGE_AT_ONCE: usize = 3;
/// Files up to this size are read completely before they are written.
const LARGE_BYTES: u64 = 1 << 20;

/// Options for copying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyOptions {
    /// Replace existing files. Existing folders are always entered.
    pub replace: bool,
    /// Restore owners, modes, times, extended attributes, ACLs and flags.
    pub metadata: bool,
    /// Write zeros for unreadable content and report it; otherwise such a file is not copied.
    pub partial: bool,
    /// Rename files if Linux can't store their names ([`Name::stand_in`]); otherwise skip them.
    pub stand_ins: bool,
}

impl Default for CopyOptions {
    fn default() -> CopyOptions {
        CopyOptions { replace: false, metadata: true, partial: false, stand_ins: false }
    }
}

/// A file, or a folder with all its contents.
#[derive(Debug, Clone)]
pub struct CopySource {
    /// Its file system.
    pub filesystem: Filesystem,
    /// Its object.
    pub object: ObjectId,
    /// Its path in reported losses; paths of its contents are appended.
    pub path: Vec<u8>,
}

/// Counts of everything copied so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Additional names of files with several names.
    pub hard_links: u64,
    /// Symbolic links, fifos, sockets, devices.
    pub others: u64,
    /// Bytes of content, without holes.
    pub bytes: u64,
    /// Losses reported.
    pub losses: u64,
}

/// Copies, counts, and reports losses. A clone costs two atomic increments.
#[derive(Clone)]
pub struct Copier {
    shared: Arc<Shared>,
    account: Arc<dyn Account>,
}

struct Shared {
    runtime: Runtime,
    options: CopyOptions,
    large: Semaphore,
    counters: Counters,
}

/// [`Copied`] as it grows.
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
    /// Several tasks call `on_loss` concurrently.
    pub fn new(
        runtime: &Runtime,
        options: CopyOptions,
        on_loss: impl Fn(Loss) + Send + Sync + 'static,
    ) -> Copier {
        let shared = Shared {
            runtime: runtime.clone(),
            options,
            large: Semaphore::new(LARGE_AT_ONCE),
            counters: Counters::default(),
        };
        Copier { shared: Arc::new(shared), account: Arc::new(on_loss) }
    }

    /// The same copier and counters with another account.
    pub fn telling(&self, account: Arc<dyn Account>) -> Copier {
        Copier { shared: self.shared.clone(), account }
    }

    /// Counts so far, for progress.
    pub fn copied(&self) -> Copied {
        self.shared.counters.copied()
    }

    /// Copies a source to `name` in `folder`. An existing folder of that name is entered.
    #[boxed]
    pub async fn copy(&self, source: &CopySource, folder: &Folder, name: &Name) {
        tree::copy(self, source, folder, name).await;
    }

    /// Copies the contents of a source folder into `folder`, and gives `folder` itself the source's metadata.
    #[boxed]
    pub async fn copy_into(&self, source: &CopySource, folder: &Folder) {
        tree::copy_into(self, source, folder).await;
    }

    /// Counts and reports a loss.
    pub(crate) fn lost(&self, loss: Loss) {
        // Nothing depends on the result: the account remembers its own failures.
        let _ = self.noted(loss);
    }

    /// The same; on an error the loss is not recorded, and the caller must not continue.
    fn noted(&self, loss: Loss) -> Result<(), Errno> {
        self.count(|counters| &counters.losses, 1);
        self.account.lost(loss)
    }

    fn standing(&self, folder: &Folder, name: &Name, path: &[u8]) -> Standing {
        match () {
            () if !folder.has(name) => Standing::Free,
            () if self.options().replace => Standing::Replaced,
            () => self.account.lacking(path).map_or(Standing::Stays, Standing::Improved),
        }
    }

    fn whole(&self, path: &[u8]) {
        self.account.whole(path);
    }

    fn count(&self, which: impl Fn(&Counters) -> &AtomicU64, more: u64) {
        which(&self.shared.counters).fetch_add(more, Ordering::Relaxed);
    }

    fn options(&self) -> CopyOptions {
        self.shared.options
    }

    fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }
}

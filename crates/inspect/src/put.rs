//! Copies local files, or files of the pool itself, into a pool like `cp -a`; reports everything that it
//! could not store.
//!
//! ```text
//!   host folder --names, sorted--> each: make, content (holes stay holes), xattrs, owner, mode, times
//!       folders wait on a stack, depth first; their times and flags are set after their contents
//!   changes gather in the open txg; the engine syncs it while the next one fills
//! ```
//!
//! Memory: the engine's limit on dirty data; the names of one folder, an open folder per level, and 40 bytes
//! per file with several names.
//!
//! A stop or an error leaves only complete files, but folders may still lack their times. So does a power
//! cut, for everything in the last synced txg.
//!
//! Locking: one task works on a [`Putter`]; others may only call [`Putter::stop`] and [`Putter::copied`],
//! which use relaxed atomics. A txg can be synced between two changes.
//!
//! Source: inode(7), xattr(7), lseek(2) for holes.

mod content;
mod dress;
mod host;
mod pool_file;
mod remove;
mod room;
mod source;
mod tree;
mod volume;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote_engine::{Engine, Need};
use cenote_format::units::ObjectId;
use cenote_fs::write::{Changing, SetAttr};
use cenote_fs::{Change, FsWriter};
use cenote_runtime::AbortOnDrop;

use crate::copy::{Copied, Counters, Loss, LossKind, Reason};
use crate::error::Result;

pub use host::HostFile;
pub use pool_file::PoolFile;
pub use volume::{VolumePutter, VolumeSource};

/// Options for copying into a pool.
#[derive(Debug, Clone, Copy)]
pub struct PutOptions {
    /// Replace existing files. Existing folders are always entered.
    pub replace: bool,
    /// Preserve owners, modes, times, extended attributes, ACLs and flags.
    pub metadata: bool,
    /// User and group of files if metadata is not preserved.
    pub owner: (u64, u64),
}

/// Copies into a file system, and removes from it. Txgs are synced as they fill.
pub struct Putter {
    engine: Engine,
    fs: FsWriter,
    options: PutOptions,
    on_loss: Box<dyn Fn(Loss)>,
    dataset: String,
    /// Txgs are synced while this exists.
    _groups: Arc<AbortOnDrop<()>>,
    counters: Counters,
    stopped: AtomicBool,
}

impl Putter {
    /// `dataset`: the name of the file system of `fs`.
    pub fn new(
        engine: &Engine,
        dataset: &str,
        fs: FsWriter,
        options: PutOptions,
        on_loss: impl Fn(Loss) + 'static,
    ) -> Putter {
        Putter {
            engine: engine.clone(),
            fs,
            options,
            on_loss: Box::new(on_loss),
            dataset: dataset.into(),
            _groups: engine.sync_in_background(),
            counters: Counters::default(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Copies a file or folder to `name` in a directory. An existing folder is entered.
    ///
    /// # Errors
    /// The pool accepts no more: it is full, or a txg could not be synced.
    pub async fn put(&self, source: HostFile, path: &Path, dir: ObjectId, name: &[u8]) -> Result<()> {
        tree::Walk::new(self).put(source, path, dir, name).await
    }

    /// Copies the contents and the metadata of a folder to a directory.
    ///
    /// # Errors
    /// Those of [`Putter::put`].
    pub async fn put_into(&self, source: HostFile, path: &Path, dir: ObjectId) -> Result<()> {
        tree::Walk::new(self).put_into(source, path, dir).await
    }

    /// Like [`Putter::put`], from the same pool: files share blocks with the source where possible.
    ///
    /// # Errors
    /// Those of [`Putter::put`].
    pub async fn put_shared(&self, source: PoolFile, path: &Path, dir: ObjectId, name: &[u8]) -> Result<()> {
        match self.is_endless(&source, path, dir).await? {
            true => Ok(()),
            false => tree::Walk::new(self).put(source, path, dir, name).await,
        }
    }

    /// Like [`Putter::put_into`], from the same pool.
    ///
    /// # Errors
    /// Those of [`Putter::put`].
    pub async fn put_shared_into(&self, source: PoolFile, path: &Path, dir: ObjectId) -> Result<()> {
        match self.is_endless(&source, path, dir).await? {
            true => Ok(()),
            false => tree::Walk::new(self).put_into(source, path, dir).await,
        }
    }

    /// Reports a copy into the source itself.
    async fn is_endless(&self, source: &PoolFile, path: &Path, dir: ObjectId) -> Result<bool> {
        let is_endless = source.has_below(dir).await?;
        if is_endless {
            self.lost(path, LossKind::File, Reason::Because("a folder can't be copied into itself"));
        }
        Ok(is_endless)
    }

    /// Stops before the next file. A large file being copied leaves nothing.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Counts of everything copied so far.
    pub fn copied(&self) -> Copied {
        self.counters.copied()
    }

    /// The file system.
    pub fn fs(&self) -> &FsWriter {
        &self.fs
    }

    /// Runs an operation on a file, other than on its content, in the open txg.
    pub async fn change<T: Send + 'static>(
        &self,
        act: impl for<'a> FnOnce(&'a FsWriter, Change<'a>) -> Changing<'a, T> + Send + 'static,
    ) -> cenote_fs::Result<T> {
        self.change_with(Need::Write(room::FILE_BYTES), act).await
    }

    /// The same for operations that need more room, or less.
    async fn change_with<T: Send + 'static>(
        &self,
        need: Need,
        act: impl for<'a> FnOnce(&'a FsWriter, Change<'a>) -> Changing<'a, T> + Send + 'static,
    ) -> cenote_fs::Result<T> {
        self.fs.change(&self.engine, need, act).await
    }

    async fn set_attr(&self, object: ObjectId, set: SetAttr) -> cenote_fs::Result<()> {
        self.change(move |fs, change| Box::pin(async move { fs.set_attr(change, object, &set).await })).await
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn lost(&self, path: &Path, kind: LossKind, reason: impl Into<Reason>) {
        use std::os::unix::ffi::OsStrExt;
        self.count(|counters| &counters.losses, 1);
        (self.on_loss)(Loss { path: path.as_os_str().as_bytes().to_vec(), kind, reason: reason.into() });
    }

    fn count(&self, which: impl Fn(&Counters) -> &AtomicU64, more: u64) {
        which(&self.counters).fetch_add(more, Ordering::Relaxed);
    }
}

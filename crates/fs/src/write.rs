//! Changes a file system, in memory.
//!
//! Idea: an operation (create, write, rename ...) is a method of [`FsWriter`] that takes a [`Change`]: an
//! edit of the open txg, and the time. It first checks and then makes changes through the [`Edit`], which
//! show at once in [`FsWriter::view`], an ordinary [`Filesystem`]. An operation that has begun must complete,
//! so its future must not be dropped: callers run it through [`FsWriter::change`], which owns it.
//!
//! ```text
//!   operation --> locks on the objects concerned      locks
//!             --> names: ZAP of the directory         names, rename
//!             --> attributes: bonus, spill block      znode
//!             --> content: blocks                     content
//!             --> records for the log                 logging
//!             --> notice to the mount                 holder
//! ```
//!
//! Locking: any task may call any operation; operations on different objects run concurrently. Order: `moves`
//! (only to move a directory), then all object locks of the operation at once, by number, then a lock within
//! `znodes` or `queue`. `options`, `quotas` and `holder` are held only to read or replace a value, never
//! across an await. [`FsWriter::lookup`] and [`FsWriter::list`] take a directory's lock: use them rather than
//! a view if the directory may change concurrently. Between calls every object is consistent and saved.
//!
//! Callers check permissions. Operations that the file system itself forbids (immutable files, full names,
//! wrong types) are refused here with Linux's error ([`Refusal`]), and change nothing. Checks of flags,
//! projects, quotas and properties are in `rules`: they do not bind a replay.
//!
//! File systems older than version 5 keep their version until `zfs upgrade` (`znode::old`). Source: OpenZFS
//! `zfs_vnops_os.c`, `zfs_znode_os.c`, `zfs_dir.c`.

mod attributes;
mod clone;
mod content;
mod create;
mod holder;
mod locks;
mod logging;
mod make;
mod names;
mod options;
mod posix_acl;
mod quota;
mod rename;
mod replay;
pub(crate) mod rewrite;
mod rules;
mod unlinked;
mod xattr;
mod xattr_dir;
mod znode;

use std::pin::Pin;
use std::sync::{Arc, Weak};

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, Mos};
use cenote_engine::{Engine, Handle, Log, Need, OpenDataset};
use cenote_format::units::ObjectId;
use cenote_object::{Cursor, Edit, LiveObjset, Zap, ZapEdit};
use parking_lot::RwLock;

use crate::acl::rules::AclRules;
use crate::attr::Timestamp;
use crate::directory::{DirEntry, LastLink, LookedUp, MAX_DEPTH, Names};
use crate::error::{FsError, Refusal, Result};
use crate::filesystem::{CaseSensitivity, Filesystem, MasterNode};
use locks::Locks;
use logging::Notes;
use quota::QuotaTables;
use unlinked::DeleteQueue;
use znode::{Znode, Znodes};

pub use attributes::SetAttr;
pub use clone::{CloneSource, Position};
pub(crate) use content::clear;
pub use create::{NewFilesystem, create_filesystem, upgrade_filesystem};
pub use holder::{Changed, Holder};
pub use make::{NewFile, NewKind};
pub use options::{FsOptions, XattrStore};
pub use rename::RenameMode;
pub use replay::replay_logs;
pub use rewrite::{REWRITE_BYTES, Rewrite, Wanted};
pub use xattr::SetXattr;

/// The version that introduced system attributes.
const ZPL_VERSION_SA: u64 = 5;
/// The version since which directory entries store the file type.
const ZPL_VERSION_DIRENT_TYPE: u64 = 2;
/// `MAXNAMELEN - 1`, and the same with feature `longname`.
const MAX_NAME_BYTES: usize = 255;
const MAX_LONG_NAME_BYTES: usize = 1023;

/// The txg and time of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The edit of the open txg.
    pub edit: &'a Edit,
    /// The time stored in the attributes.
    pub now: Timestamp,
}

/// One or more operations in progress.
pub type Changing<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A file system opened for changes. A clone costs one atomic increment.
#[derive(Clone)]
pub struct FsWriter(Arc<FsWriterInner>, By);

/// The origin of a change: see `holder` and `rules`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Holder,
    Others,
    /// A replay, before any holder exists and bound by no rule.
    Log,
}

struct FsWriterInner {
    dataset: OpenDataset,
    master: MasterNode,
    options: RwLock<FsOptions>,
    znodes: Znodes,
    quotas: RwLock<QuotaTables>,
    locks: Locks,
    /// Held while a directory moves, so that no ancestor relation changes meanwhile.
    moves: tokio::sync::Mutex<()>,
    queue: DeleteQueue,
    /// A mount to notify of other writers' changes.
    holder: RwLock<Option<Weak<dyn Holder>>>,
}

impl Handle for FsWriterInner {
    #[boxed]
    async fn follow_settings(&self, mos: &Mos, dataset: &Dataset) -> cenote_object::Result<()> {
        let options = FsOptions::of(mos, dataset).await?;
        *self.options.write() = options.for_version(self.master.version);
        Ok(())
    }
}

impl Names for FsWriter {
    fn look_up<'a>(&'a self, dir: ObjectId, name: &'a [u8]) -> LookedUp<'a> {
        Box::pin(self.lookup(dir, name))
    }
}

impl FsWriter {
    /// Opens a file system for changes.
    ///
    /// # Errors
    /// It can't be read, or its attribute tables are missing.
    #[boxed]
    pub async fn open(dataset: OpenDataset, options: FsOptions) -> Result<FsWriter> {
        let fs = Filesystem::open(dataset.view()).await?;
        let master = fs.master().clone();
        if master.version >= ZPL_VERSION_SA && master.sa_attrs.is_none() {
            return Err(Refusal::ReadOnly.of(fs.root()));
        }
        let writer = FsWriter::of_parts(dataset, master, Znodes::open(&fs).await?, options);
        *writer.0.quotas.write() = QuotaTables::read(&fs).await?;
        Ok(writer)
    }

    /// The file system of this name, opened once for all writers. Its options follow the dataset's
    /// properties.
    ///
    /// # Errors
    /// As [`FsWriter::open`]; there is no such dataset, or it can't be changed.
    #[boxed]
    pub async fn shared(engine: &Engine, name: &str) -> Result<FsWriter> {
        let mos = engine.mos().await?;
        let dataset = mos.dataset(name).await?;
        let open = async || {
            let options = FsOptions::of(&mos, &dataset).await?;
            let writer = FsWriter::open(engine.dataset_as(&dataset).await?, options).await?;
            Ok::<_, FsError>(writer.0)
        };
        engine.handle(dataset.id(), open).await.map(|inner| FsWriter(inner, By::Others))
    }

    fn of_parts(dataset: OpenDataset, master: MasterNode, znodes: Znodes, options: FsOptions) -> FsWriter {
        let options = options.for_version(master.version);
        let inner = FsWriterInner {
            dataset,
            queue: DeleteQueue::new(&master),
            master,
            options: RwLock::new(options),
            znodes,
            quotas: RwLock::default(),
            locks: Locks::new(),
            moves: tokio::sync::Mutex::default(),
            holder: RwLock::default(),
        };
        FsWriter(Arc::new(inner), By::Others)
    }

    /// Runs operations in the open txg. Dropping this future is safe: `operation` then completes, or never
    /// starts.
    ///
    /// # Errors
    /// There is no room, or a txg could not be written; those of `operation`.
    pub async fn change<T: Send + 'static>(
        &self,
        engine: &Engine,
        need: Need,
        operation: impl for<'a> FnOnce(&'a FsWriter, Change<'a>) -> Changing<'a, T> + Send + 'static,
    ) -> Result<T> {
        let (fs, runtime) = (self.clone(), engine.runtime().clone());
        let operate = move |edit| async move {
            let now = Timestamp::of_unix_ns(runtime.unix_time_ns());
            operation(&fs, Change { edit: &edit, now }).await
        };
        engine.change(self.live(), need, operate).await
    }

    /// The current file system, including changes.
    pub fn view(&self) -> Filesystem {
        Filesystem::of_parts(self.0.dataset.view(), self.0.master.clone(), self.0.znodes.registry())
    }

    /// The object set that it changes.
    pub fn live(&self) -> &LiveObjset {
        self.0.dataset.live()
    }

    /// The log in which operations are recorded, if any.
    pub fn log(&self) -> Option<&Log> {
        self.0.dataset.log()
    }

    /// Makes changes to a file durable (`fsync`), or all changes (`sync`). Must not be called under a hold.
    ///
    /// # Errors
    /// Neither the log nor a txg could be written.
    #[boxed]
    pub async fn commit(&self, object: Option<ObjectId>) -> Result<()> {
        Ok(self.0.dataset.commit(object).await?)
    }

    /// The root directory.
    pub fn root(&self) -> ObjectId {
        self.0.master.root
    }

    /// Options derived from the dataset's properties.
    pub fn options(&self) -> FsOptions {
        *self.0.options.read()
    }

    /// Replaces the options, which for a [`FsWriter::shared`] writer follow the properties.
    pub fn set_options(&self, options: FsOptions) {
        *self.0.options.write() = options.for_version(self.0.master.version);
    }

    /// Looks up a name in a directory that may be changing.
    ///
    /// # Errors
    /// The directory does not exist or can't be read.
    #[boxed]
    pub async fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<DirEntry>> {
        let _held = self.0.locks.shared(dir).await;
        self.view().lookup(dir, name).await
    }

    /// Lists a directory that may be changing.
    ///
    /// # Errors
    /// The directory does not exist or can't be read.
    #[boxed]
    pub async fn list(&self, dir: ObjectId) -> Result<Vec<DirEntry>> {
        let _held = self.0.locks.shared(dir).await;
        self.view().list(dir).await
    }

    /// Lists part of a directory that may be changing: see [`Filesystem::list_from`].
    ///
    /// # Errors
    /// The directory does not exist or can't be read.
    #[boxed]
    pub async fn list_from(&self, dir: ObjectId, from: Cursor) -> Result<Vec<(DirEntry, Cursor)>> {
        let _held = self.0.locks.shared(dir).await;
        self.view().list_from(dir, from).await
    }

    /// Resolves a path whose directories may be changing: see [`Filesystem::resolve`]. A name that a
    /// concurrent rename gives to another file is found at all times.
    ///
    /// # Errors
    /// A component is missing or not a directory; too many links; damage.
    #[boxed]
    pub async fn resolve(&self, path: &[u8], last: LastLink) -> Result<ObjectId> {
        self.view().walk(path, last, self).await
    }

    /// The path of a directory that may be moved meanwhile: see [`Filesystem::path_of`].
    ///
    /// # Errors
    /// It has lost its name; no chain of parents leads to the root; damage.
    #[boxed]
    pub async fn path_of(&self, dir: ObjectId) -> Result<Vec<u8>> {
        let (view, mut at, mut names) = (self.view(), dir, Vec::new());
        while names.len() < MAX_DEPTH {
            let parent = view.attr(at).await?.parent;
            if parent == at {
                names.reverse();
                return Ok(names.join(&b'/'));
            }
            let listed = self.list(parent).await;
            let found = listed.map(|all| all.into_iter().find(|entry| entry.object == at));
            match found {
                Ok(Some(entry)) => (at, _) = (parent, names.push(entry.name)),
                // It was moved before the list was made.
                _ if view.attr(at).await?.parent != parent => {}
                Ok(None) => break,
                Err(error) => return Err(error),
            }
        }
        Err(FsError::Orphan { object: dir })
    }

    /// Loads an object's attributes; the caller holds its lock.
    async fn load(&self, edit: &Edit, id: ObjectId) -> Result<Znode> {
        self.0.znodes.load(edit, id, self.options().projects).await
    }

    /// Log records of an operation.
    fn notes<'a>(&'a self, change: Change<'a>) -> Notes<'a> {
        Notes::of(self, change)
    }

    fn acl_rules(&self) -> AclRules {
        let options = self.options();
        AclRules { mode: options.acl_mode, inherit: options.acl_inherit }
    }

    /// The folding flags of directory tables.
    fn table_flags(&self) -> u64 {
        self.0.master.fold_flags(self.0.master.case != CaseSensitivity::Sensitive)
    }

    /// The entry with a name; the caller holds the directory's lock.
    async fn find(&self, edit: &Edit, dir: ObjectId, name: &[u8]) -> Result<Option<DirEntry>> {
        if name.len() > self.longest_name() {
            return Err(Refusal::NameTooLong.named(dir, name));
        }
        if name.is_empty() || name.contains(&0) {
            return Ok(None);
        }
        let flags = self.0.master.fold_flags(self.0.master.case == CaseSensitivity::Insensitive);
        if flags == 0 {
            let value = ZapEdit::new(edit, dir).get(name).await?;
            let word = value.and_then(|value| value.as_u64());
            return Ok(word.map(|word| DirEntry::decode(bytes::Bytes::copy_from_slice(name), word)));
        }
        let zap = Zap::open_id(&edit.view(), dir).await?;
        let entry = zap.lookup_normalized(name, flags).await?;
        Ok(entry.and_then(|entry| Some(DirEntry::decode(entry.name, entry.value.as_u64()?))))
    }

    fn check_name(&self, dir: ObjectId, name: &[u8]) -> Result<()> {
        let why = match name {
            b"" => Refusal::NotFound,
            b"." | b".." => Refusal::Exists,
            name if name.len() > self.longest_name() => Refusal::NameTooLong,
            name if name.iter().any(|&b| b == b'/' || b == 0) => Refusal::Invalid,
            name if self.0.master.utf8_only && std::str::from_utf8(name).is_err() => Refusal::BadText,
            _ => return Ok(()),
        };
        Err(why.named(dir, name))
    }
}

impl std::fmt::Debug for FsWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FsWriter({:?})", self.live())
    }
}

/// Turns an error of a directory's table into the operation's error.
fn table_error(error: cenote_object::DatasetError, dir: ObjectId, name: &[u8]) -> FsError {
    use cenote_object::DatasetError;
    match error {
        DatasetError::EntryExists { .. } => Refusal::Exists.named(dir, name),
        DatasetError::NoEntry { .. } => Refusal::NotFound.named(dir, name),
        DatasetError::EntryRefused { .. } => Refusal::NameTooLong.named(dir, name),
        other => other.into(),
    }
}

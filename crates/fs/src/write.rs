//! Changing a file system, in memory.
//!
//! Idea: an operation (create, write, rename ...) is a method of [`FsWriter`] that takes a [`Change`]: the hand on the open
//! transaction group, and the time. It checks first and changes then, through the [`Edit`]; what it changed shows at once in
//! [`FsWriter::view`], an ordinary [`Filesystem`].
//!
//! ```text
//!   operation --> locks on the objects concerned      locks
//!             --> names: ZAP of the directory         names, rename
//!             --> attributes: bonus, spill block      znode, layouts
//!             --> content: blocks                     content
//! ```
//!
//! Locking: one lock for each object, taken by number where an operation needs several; operations on different
//! objects run side by side. Looking a name up and listing a directory take its lock too: use [`FsWriter::lookup`] and
//! [`FsWriter::list`] while others change it.
//!
//! Permissions are the caller's to check; what the file system itself forbids (immutable files, full names, other kinds) is
//! refused here, with the error that Linux gives ([`Refusal`]). Nothing is changed by an operation that is refused.
//!
//! File systems of older versions than 5 stay what they are (`znode::old`). Source: OpenZFS `zfs_vnops_os.c`, `zfs_znode_os.c`, `zfs_dir.c`.

mod attributes;
mod clone;
mod content;
mod create;
mod layouts;
mod locks;
mod logging;
mod make;
mod names;
mod options;
mod posix_acl;
mod quota;
mod rename;
mod replay;
mod unlinked;
mod upgrade;
mod xattr;
mod xattr_dir;
mod znode;

use std::sync::Arc;

use cenote_dataset::live::{Edit, LiveObjset};
use cenote_dataset::{Zap, ZapEdit};
use cenote_format::sa::{SaRegistry, ZplAttr};
use cenote_format::units::ObjectId;
use parking_lot::RwLock;

use crate::acl::rules::AclRules;
use crate::attr::Timestamp;
use crate::directory::DirEntry;
use crate::error::{FsError, Refusal, Result};
use crate::filesystem::{CaseSensitivity, Filesystem, MasterNode};
use locks::Locks;
use quota::QuotaTables;

pub use attributes::SetAttr;
pub use clone::{CloneSource, Position};
pub(crate) use content::clear;
pub use create::{NewFilesystem, create_filesystem};
pub use make::{NewFile, NewKind};
pub use options::{FsOptions, XattrStore};
pub use rename::RenameMode;
pub use replay::replay_logs;
pub use xattr::SetXattr;

/// The version that system attributes came with.
const ZPL_VERSION_SA: u64 = 5;
/// The version from which on directories say of what kind a file is.
const ZPL_VERSION_DIRENT_TYPE: u64 = 2;
/// `MAXNAMELEN - 1`, and the same with feature `longname`.
const MAX_NAME_BYTES: usize = 255;
const MAX_LONG_NAME_BYTES: usize = 1023;

/// In what group, and when, an operation happens.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The hand on the open group.
    pub edit: &'a Edit,
    /// The time that goes into the attributes.
    pub now: Timestamp,
}

/// A file system that is changed. Cloning it costs one atomic increment.
#[derive(Clone)]
pub struct FsWriter(Arc<Inner>);

struct Inner {
    live: LiveObjset,
    master: MasterNode,
    options: RwLock<FsOptions>,
    registry: RwLock<Arc<SaRegistry>>,
    /// Attributes that have a number in `registry` but not on disk yet. Who holds it may add layouts.
    unregistered: tokio::sync::Mutex<Vec<ZplAttr>>,
    quotas: RwLock<QuotaTables>,
    locks: Locks,
    /// Held while directories move: their order of above and below stays.
    moves: tokio::sync::Mutex<()>,
    /// Held while the delete queue changes.
    queue: tokio::sync::Mutex<()>,
}

impl FsWriter {
    /// Opens a file system to change it.
    ///
    /// # Errors
    /// It can't be read, or its tables of attributes are missing.
    pub async fn open(live: LiveObjset, options: FsOptions) -> Result<FsWriter> {
        let fs = Filesystem::open(live.view()).await?;
        let master = fs.master().clone();
        if master.version >= ZPL_VERSION_SA && master.sa_attrs.is_none() {
            return Err(Refusal::ReadOnly.of(fs.root()));
        }
        let quotas = QuotaTables::read(&fs).await?;
        let writer = FsWriter::of_parts(live, master, options);
        *writer.0.quotas.write() = quotas;
        writer.know_attributes(fs.sa_registry().clone()).await?;
        Ok(writer)
    }

    fn of_parts(live: LiveObjset, master: MasterNode, options: FsOptions) -> FsWriter {
        let options = options.for_version(master.version);
        FsWriter(Arc::new(Inner {
            live,
            master,
            options: RwLock::new(options),
            registry: RwLock::default(),
            unregistered: tokio::sync::Mutex::default(),
            quotas: RwLock::default(),
            locks: Locks::new(),
            moves: tokio::sync::Mutex::default(),
            queue: tokio::sync::Mutex::default(),
        }))
    }

    /// Takes the attributes that are registered, and gives those that are not their numbers.
    async fn know_attributes(&self, mut registry: SaRegistry) -> Result<()> {
        let table = match self.0.master.sa_attrs {
            Some(id) => Zap::open_id(&self.0.live.view(), id).await?.get_u64("REGISTRY").await?,
            None => None,
        };
        let is_missing = |attr: &ZplAttr| table.is_none() || registry.number_of(*attr).is_none();
        let missing: Vec<ZplAttr> = ZplAttr::all().filter(is_missing).collect();
        for attr in &missing {
            registry.register(*attr);
        }
        *self.0.registry.write() = registry.into();
        *self.0.unregistered.lock().await = missing;
        Ok(())
    }

    /// The file system as it is now, changes included.
    pub fn view(&self) -> Filesystem {
        Filesystem::of_parts(self.0.live.view(), self.0.master.clone(), self.registry())
    }

    /// The object set that it changes.
    pub fn live(&self) -> &LiveObjset {
        &self.0.live
    }

    /// The root directory.
    pub fn root(&self) -> ObjectId {
        self.0.master.root
    }

    /// What the dataset's properties say.
    pub fn options(&self) -> FsOptions {
        *self.0.options.read()
    }

    /// The dataset's properties have changed.
    pub fn set_options(&self, options: FsOptions) {
        *self.0.options.write() = options.for_version(self.0.master.version);
    }

    /// Looks a name up while others change the directory.
    ///
    /// # Errors
    /// The directory does not exist or can't be read.
    pub async fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<DirEntry>> {
        let _held = self.0.locks.shared(dir).await;
        self.view().lookup(dir, name).await
    }

    /// Lists a directory while others change it.
    ///
    /// # Errors
    /// The directory does not exist or can't be read.
    pub async fn list(&self, dir: ObjectId) -> Result<Vec<DirEntry>> {
        let _held = self.0.locks.shared(dir).await;
        self.view().list(dir).await
    }

    fn registry(&self) -> Arc<SaRegistry> {
        self.0.registry.read().clone()
    }

    fn acl_rules(&self) -> AclRules {
        let options = self.options();
        AclRules { mode: options.acl_mode, inherit: options.acl_inherit }
    }

    /// How a directory's table folds names.
    fn table_flags(&self) -> u64 {
        self.0.master.fold_flags(self.0.master.case != CaseSensitivity::Sensitive)
    }

    /// A name as the directory has it; its lock is held.
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

    fn longest_name(&self) -> usize {
        if self.options().long_names { MAX_LONG_NAME_BYTES } else { MAX_NAME_BYTES }
    }

    /// Refuses what can't be a new name.
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
        write!(f, "FsWriter({:?})", self.0.live)
    }
}

/// An error of a directory's table, as the operation's.
fn table_error(error: cenote_dataset::DatasetError, dir: ObjectId, name: &[u8]) -> FsError {
    use cenote_dataset::DatasetError;
    match error {
        DatasetError::EntryExists { .. } => Refusal::Exists.named(dir, name),
        DatasetError::NoEntry { .. } => Refusal::NotFound.named(dir, name),
        DatasetError::EntryRefused { .. } => Refusal::NameTooLong.named(dir, name),
        other => other.into(),
    }
}

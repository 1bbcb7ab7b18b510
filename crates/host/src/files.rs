//! A dataset as a mounted file system: `Vfs` over a tree of files.
//!
//! ```text
//!   node number --node--> tree and object
//!   reading     --------> a view of the tree            tree, attr
//!   changing    --------> a hold on the open txg, then an operation of FsWriter      change
//!   .zfs        --------> the dataset's snapshots       control
//!   commands    --------> notices to the kernel         tell, replace
//!   forgotten   --------> freed, if without names       freeing
//! ```
//!
//! Idea: this module translates for `cenote_fs`, and adds only features of mounts: access times, references
//! that keep unlinked files, `.zfs`.
//!
//! An unlinked file lives while the kernel refers to it; after a crash [`Files::open`] finds it in the delete
//! queue. Commands change the same file system without the kernel's knowledge: as its
//! [`Holder`](cenote_fs::write::Holder) this module keeps unlinked open files, and notifies the kernel of
//! changes (`tell`).
//!
//! Locking: `head`, `options` and `snapshots` are locked for one look or change; for `references` see `node`.
//! A modifying operation holds the open txg, so it must not wait for a txg to be written: see `change`. Work
//! after the kernel's last reference holds `quiet`, so that `replace` can wait for it.
//!
//! Source: OpenZFS `zfs_vnops_os.c`, `zpl_inode.c`, `zpl_super.c`, `zfs_ctldir.c`.

mod attr;
mod change;
mod control;
mod errno;
mod freeing;
mod ioctl;
mod node;
mod replace;
pub mod rewrite;
mod seek;
mod tell;
mod tree;
mod vfs;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, Mos};
use cenote_engine::Engine;
use cenote_format::units::ObjectId;
use cenote_fs::{CaseSensitivity, Filesystem, FsError, FsWriter, Normalization, Timestamp};
use cenote_fuse::{Errno, Node, Notifier, Result};
use cenote_object::DatasetError;
use cenote_runtime::Runtime;
use parking_lot::RwLock;

use control::Snapshots;
use freeing::Freeing;
use node::{Named, References, TreeId};
pub use tell::all_told;
use tell::{Notice, Telling};
use tree::Tree;

/// When reads update access times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atime {
    /// Never.
    Off,
    /// If older than the last change, or than a day.
    Relative,
    /// Always.
    On,
}

/// Options of a mounted file system, besides storage properties.
#[derive(Debug, Clone, Copy)]
pub struct FilesOptions {
    /// `atime`, `relatime`.
    pub atime: Atime,
    /// `snapdir=visible`: listings show `.zfs`.
    pub lists_snapdir: bool,
    /// `acltype=posix`: enforces ACLs.
    pub posix_acl: bool,
    /// `xattr`: allows user extended attributes.
    pub user_xattrs: bool,
    /// `longname`: 1023; else 255.
    pub longest_name_bytes: u32,
}

impl FilesOptions {
    /// Reads the dataset's properties.
    ///
    /// # Errors
    /// They can't be read.
    #[boxed]
    pub async fn of(dataset: &Dataset) -> Result<FilesOptions, DatasetError> {
        // `acltype`: off, posix, nfsv4.
        const POSIX: u64 = 1;
        let names = ["atime", "relatime", "snapdir", "longname", "acltype", "xattr"];
        let [atime, relatime, snapdir, longname, acltype, xattr] = dataset.numbers(names).await?;
        // Snapshots are immutable and have no snapshots.
        let is_head = !dataset.is_snapshot();
        let atime = match (atime == 1 && is_head, relatime == 1) {
            (false, _) => Atime::Off,
            (true, true) => Atime::Relative,
            (true, false) => Atime::On,
        };
        let longest_name_bytes = if longname == 1 { 1023 } else { 255 };
        Ok(FilesOptions {
            atime,
            lists_snapdir: snapdir == 1 && is_head,
            posix_acl: acltype == POSIX,
            user_xattrs: xattr != 0,
            longest_name_bytes,
        })
    }
}

#[derive(Clone)]
enum Pool {
    Live(Engine),
    Fixed(Mos),
}

impl Pool {
    async fn mos(&self) -> Result<Mos, DatasetError> {
        match self {
            Pool::Live(engine) => engine.mos().await,
            Pool::Fixed(mos) => Ok(mos.clone()),
        }
    }
}

/// A dataset as a file system. A clone costs one atomic increment.
#[derive(Clone)]
pub struct Files(Arc<Inner>);

struct Inner {
    me: Weak<Inner>,
    runtime: Runtime,
    pool: Pool,
    name: RwLock<String>,
    root: ObjectId,
    /// All operations fail: see `abandon`.
    is_abandoned: AtomicBool,
    /// Replaced by a rollback.
    head: RwLock<Tree>,
    /// Notifies the kernel of changes made by commands; set when mounted.
    notifier: OnceLock<Notifier>,
    telling: Telling,
    freeing: Freeing,
    quiet: Arc<tokio::sync::RwLock<()>>,
    options: RwLock<FilesOptions>,
    snapshots: Snapshots,
    references: References,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Files({})", self.name())
    }
}

impl Files {
    /// Opens a dataset of a writable pool. Frees files unlinked before a crash.
    ///
    /// # Errors
    /// There is no such file system, its key is missing, or it is damaged.
    #[boxed]
    pub async fn open(engine: &Engine, name: &str, options: FilesOptions) -> Result<Files, FsError> {
        let fs = FsWriter::shared(engine, name).await?;
        let pool = Pool::Live(engine.clone());
        let files = Files::of(engine.runtime(), pool, name, options, |me| {
            Tree::Live(engine.clone(), fs.clone().held_by(me.clone()))
        });
        fs.free_all_unlinked(engine).await?;
        Ok(files)
    }

    /// An unchanging dataset or snapshot, called `name` in its pool.
    pub fn fixed(runtime: &Runtime, mos: &Mos, name: &str, fs: Filesystem, options: FilesOptions) -> Files {
        Files::of(runtime, Pool::Fixed(mos.clone()), name, options, |_| Tree::Fixed(fs))
    }

    fn of(
        runtime: &Runtime,
        pool: Pool,
        name: &str,
        options: FilesOptions,
        head: impl FnOnce(&Weak<Inner>) -> Tree,
    ) -> Files {
        Files(Arc::new_cyclic(|me| {
            let head = head(me);
            Inner {
                me: me.clone(),
                runtime: runtime.clone(),
                pool,
                name: RwLock::new(name.into()),
                is_abandoned: AtomicBool::new(false),
                root: head.root(),
                references: References::new(head.root()),
                head: RwLock::new(head),
                notifier: OnceLock::new(),
                telling: Telling::default(),
                freeing: Freeing::default(),
                quiet: Arc::default(),
                options: RwLock::new(options),
                snapshots: Snapshots::default(),
            }
        }))
    }

    /// Frees unlinked files after the last operation.
    #[boxed]
    pub async fn close(&self) {
        for object in self.0.references.drop_all() {
            self.free_unlinked(object).await;
        }
    }

    fn options(&self) -> FilesOptions {
        *self.0.options.read()
    }

    /// Changes the options.
    pub fn set_options(&self, options: FilesOptions) {
        let before = std::mem::replace(&mut *self.0.options.write(), options);
        if before.lists_snapdir != options.lists_snapdir {
            self.0.tell([Notice::Listing(Node::ROOT)]);
        }
        if before.posix_acl != options.posix_acl {
            // The kernel caches ACLs, and their absence, like attributes.
            let held = self.0.references.of_tree(TreeId::Head).into_iter().map(|(node, _)| node);
            self.0.tell(std::iter::once(Node::ROOT).chain(held).map(Notice::Attributes));
        }
    }

    /// Follows a rename of the dataset.
    pub fn set_name(&self, name: &str) {
        *self.0.name.write() = name.into();
    }

    fn name(&self) -> String {
        self.0.name.read().clone()
    }

    fn head(&self) -> Tree {
        self.0.head.read().clone()
    }

    fn root(&self) -> ObjectId {
        self.0.root
    }

    fn now(&self) -> Timestamp {
        Timestamp::of_unix_ns(self.0.runtime.unix_time_ns())
    }

    fn named(&self, node: Node) -> Option<Named> {
        self.0.references.named(node)
    }

    async fn file(&self, node: Node) -> Result<(TreeId, Tree, ObjectId)> {
        if self.0.is_abandoned.load(Ordering::Acquire) {
            return Err(Errno::IO);
        }
        match self.named(node) {
            Some(Named::File(..)) if self.0.references.is_stale(node) => Err(Errno::STALE),
            Some(Named::File(id, object)) => Ok((id, self.tree(id).await?, object)),
            Some(Named::Control(_)) => Err(Errno::PERM),
            None => Err(Errno::STALE),
        }
    }

    async fn tree(&self, id: TreeId) -> Result<Tree> {
        match id {
            TreeId::Head => Ok(self.head()),
            TreeId::Snapshot(dataset) => self.snapshot_by_id(dataset).await,
        }
    }

    /// Whether names are folded. The kernel compares bytes, so it must not cache such names.
    fn folds_names(&self) -> bool {
        let fs = self.head().view();
        fs.master().case != CaseSensitivity::Sensitive || fs.master().normalization != Normalization::None
    }
}

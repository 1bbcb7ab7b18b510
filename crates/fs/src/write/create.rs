//! Creates a file system in an empty object set.
//!
//! ```text
//!   object 1, master node:  VERSION, normalization, utf8only, casesensitivity, SA_ATTRS, DELETE_QUEUE, ROOT
//!                           [, SHARES]
//!   SA_ATTRS:               REGISTRY, LAYOUTS: created with the root directory, the first file
//! ```
//!
//! Source: OpenZFS `zfs_znode_os.c` (`zfs_create_fs`, `zfs_create_share_dir`).

mod upgrade;

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_engine::OpenDataset;
use cenote_format::dnode::ObjectType;
use cenote_format::features::zpl_version_of;
use cenote_format::sa::ZplAttr;
use cenote_format::units::ObjectId;
use cenote_object::zap::fold::{U8_CANON_COMP, U8_CANON_DECOMP, U8_COMPAT_DECOMP};
use cenote_object::{LiveObjset, NewZap, ZapEdit};

use super::make::Making;
use super::znode::Znodes;
use super::{Change, FsOptions, FsWriter, ZPL_VERSION_SA};
use crate::error::Result;
use crate::filesystem::{CaseSensitivity, Filesystem, MASTER_NODE, MasterNode, Normalization};

pub use upgrade::upgrade_filesystem;

/// The permanent properties of a new file system.
#[derive(Debug, Clone, Copy)]
pub struct NewFilesystem {
    /// `casesensitivity`.
    pub case: CaseSensitivity,
    /// `normalization`.
    pub normalization: Normalization,
    /// `utf8only`; implied by a normalization.
    pub utf8_only: bool,
    /// Owner and group of the root directory, whose mode is 755.
    pub owner: (u64, u64),
    /// Create the hidden directory of SMB shares, which OpenZFS creates on first use.
    pub with_shares: bool,
    /// `version`; the newest that the pool supports if `None`.
    pub version: Option<u64>,
}

impl Default for NewFilesystem {
    fn default() -> Self {
        NewFilesystem {
            case: CaseSensitivity::Sensitive,
            normalization: Normalization::None,
            utf8_only: false,
            owner: (0, 0),
            with_shares: false,
            version: None,
        }
    }
}

impl NewFilesystem {
    fn normalization_word(&self) -> u64 {
        match self.normalization {
            Normalization::None => 0,
            Normalization::FormD => U8_CANON_DECOMP,
            Normalization::FormC => U8_CANON_DECOMP | U8_CANON_COMP,
            Normalization::FormKd => U8_COMPAT_DECOMP,
            Normalization::FormKc => U8_COMPAT_DECOMP | U8_CANON_COMP,
        }
    }

    fn case_word(&self) -> u64 {
        match self.case {
            CaseSensitivity::Sensitive => 0,
            CaseSensitivity::Insensitive => 1,
            CaseSensitivity::Mixed => 2,
        }
    }
}

/// Creates a file system in an empty object set, by default of the newest version that its pool supports.
///
/// # Errors
/// The object set is not empty.
#[boxed]
pub async fn create_filesystem(
    live: &LiveObjset,
    change: Change<'_>,
    new: &NewFilesystem,
    options: FsOptions,
) -> Result<FsWriter> {
    let edit = change.edit;
    let utf8_only = new.utf8_only || new.normalization != Normalization::None;
    NewZap::of(ObjectType::MASTER_NODE).create_at(edit, MASTER_NODE).await?;
    let master = ZapEdit::new(edit, MASTER_NODE);
    master.add("normalization", new.normalization_word()).await?;
    master.add("utf8only", u64::from(utf8_only)).await?;
    master.add("casesensitivity", new.case_word()).await?;
    let newest = zpl_version_of(live.view().pool().uberblock().version);
    let version = new.version.map_or(newest, |version| version.min(newest));
    master.add("VERSION", version).await?;
    let mut sa_attrs = None;
    if version >= ZPL_VERSION_SA {
        let table = NewZap::of(ObjectType::SA_MASTER_NODE).create(edit).await?;
        master.add("SA_ATTRS", table.0).await?;
        sa_attrs = Some(table);
    }
    let queue = NewZap::of(ObjectType::UNLINKED_SET).create(edit).await?;
    master.add("DELETE_QUEUE", queue.0).await?;

    let known = MasterNode {
        version,
        root: ObjectId(0),
        delete_queue: Some(queue),
        shares: None,
        fuids: None,
        sa_attrs,
        case: new.case,
        normalization: new.normalization,
        utf8_only,
    };
    // A writer without a root creates the root, and with it the attribute tables.
    let empty = Filesystem::of_parts(edit.view(), known.clone(), Arc::default());
    let znodes = Znodes::open(&empty).await?;
    let fs = FsWriter::of_parts(OpenDataset::without_log(live.clone()), known, znodes, options);
    master.add("ROOT", fs.make_root(change, 0o755, new.owner).await?.0).await?;
    if new.with_shares {
        master.add("SHARES", fs.make_root(change, 0o555, new.owner).await?.0).await?;
    }
    FsWriter::open(OpenDataset::without_log(live.clone()), options).await
}

impl FsWriter {
    /// Creates a directory, its own parent.
    async fn make_root(&self, change: Change<'_>, mode: u32, owner: (u64, u64)) -> Result<ObjectId> {
        let id = self.make(change, &Making::apart(self, ObjectId(0), mode, owner)).await?;
        let mut root = self.load(change.edit, id).await?;
        root.set_u64(ZplAttr::Parent, id.0);
        self.save(change.edit, &mut root).await?;
        Ok(id)
    }
}

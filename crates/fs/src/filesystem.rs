//! A file system (ZPL) in an object set: its master node, and how an object number becomes a file.
//!
//! Idea: everything is found from object 1, the master node, a ZAP from names to numbers:
//!
//! ```text
//!   VERSION  1 to 5                            ROOT          the root directory
//!   SA_ATTRS  registry and layouts (5)         DELETE_QUEUE  unlinked, not yet freed
//!   FUID     domains of foreign owners (3+)    SHARES        hidden directory of SMB shares
//!   casesensitivity, normalization, utf8only   userquota@, groupquota@, ... : ZAPs of quotas
//! ```
//!
//! A [`Filesystem`] is immutable and cheap to clone. With a replayed intent log (see `replay`) it shows an
//! overlay on top of the same object set; all methods work the same way.
//!
//! Source: OpenZFS `zfs_znode.h`, `zfs_vfsops.c` (`zfsvfs_init`).

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_format::dnode::{Dnode, ObjectType};
use cenote_format::objset::ObjsetType;
use cenote_format::sa::SaRegistry;
use cenote_format::units::ObjectId;
use cenote_object::zap::fold::{U8_CANON_COMP, U8_CANON_DECOMP, U8_COMPAT_DECOMP, U8_TEXTPREP_TOUPPER};
use cenote_object::{DatasetError, Object, Objset, Zap, ZapEntry};

use crate::attr::{Attr, Decoded};
use crate::error::{FsError, Refusal, Result};
use crate::overlay::{Node, Overlay};

/// `MASTER_NODE_OBJ`.
pub const MASTER_NODE: ObjectId = ObjectId(1);
/// The newest file system version, `ZPL_VERSION`.
pub const ZPL_VERSION: u64 = 5;

/// Whether names that differ only in case are equal, `casesensitivity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseSensitivity {
    /// They differ.
    Sensitive,
    /// They are equal.
    Insensitive,
    /// They differ, unless a look-up asks otherwise.
    Mixed,
}

/// The Unicode form in which names are compared, `normalization`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the forms of Unicode
pub enum Normalization {
    None,
    FormC,
    FormD,
    FormKc,
    FormKd,
}

/// The contents of the master node.
#[derive(Debug, Clone)]
pub struct MasterNode {
    /// ZPL version, 1 to 5.
    pub version: u64,
    /// The root directory.
    pub root: ObjectId,
    /// Objects unlinked while open.
    pub delete_queue: Option<ObjectId>,
    /// Hidden directory of SMB shares.
    pub shares: Option<ObjectId>,
    /// Table of FUID domains.
    pub fuids: Option<ObjectId>,
    /// Attribute registry and layouts.
    pub sa_attrs: Option<ObjectId>,
    /// `casesensitivity`.
    pub case: CaseSensitivity,
    /// `normalization`.
    pub normalization: Normalization,
    /// `utf8only`.
    pub utf8_only: bool,
}

impl MasterNode {
    /// How names are folded before they are compared (`fold::U8_*`), with or without regard to case.
    pub fn fold_flags(&self, ignore_case: bool) -> u64 {
        let form = match self.normalization {
            Normalization::None => 0,
            Normalization::FormD => U8_CANON_DECOMP,
            Normalization::FormC => U8_CANON_DECOMP | U8_CANON_COMP,
            Normalization::FormKd => U8_COMPAT_DECOMP,
            Normalization::FormKc => U8_COMPAT_DECOMP | U8_CANON_COMP,
        };
        if ignore_case { form | U8_TEXTPREP_TOUPPER } else { form }
    }
}

/// An open file system. A clone costs two atomic increments.
#[derive(Clone)]
pub struct Filesystem {
    base: Arc<Base>,
    pub(crate) overlay: Arc<Overlay>,
}

struct Base {
    objset: Objset,
    master: MasterNode,
    registry: Arc<SaRegistry>,
}

impl Filesystem {
    /// Opens a file system or a snapshot of one.
    ///
    /// # Errors
    /// The set is not a file system, or its master node can't be read.
    #[boxed]
    pub async fn open(objset: Objset) -> Result<Filesystem> {
        if objset.phys().objset_type != ObjsetType::Zfs {
            return Err(FsError::WrongKind { wanted: "file system" });
        }
        let master = read_master_node(&objset).await?;
        let registry = match master.sa_attrs {
            Some(id) => read_sa_registry(&objset, id).await?,
            None => SaRegistry::default(),
        };
        Ok(Filesystem::of_parts(objset, master, registry.into()))
    }

    pub(crate) fn of_parts(objset: Objset, master: MasterNode, registry: Arc<SaRegistry>) -> Filesystem {
        let base = Arc::new(Base { objset, master, registry });
        Filesystem { base, overlay: Arc::default() }
    }

    /// Its object set.
    pub fn objset(&self) -> &Objset {
        &self.base.objset
    }

    /// Its master node.
    pub fn master(&self) -> &MasterNode {
        &self.base.master
    }

    /// The root directory.
    pub fn root(&self) -> ObjectId {
        self.base.master.root
    }

    /// The registry for decoding attributes: for scans that pass their own dnodes to [`Attr::decode`].
    pub fn sa_registry(&self) -> &SaRegistry {
        &self.base.registry
    }

    pub(crate) fn registry(&self) -> Arc<SaRegistry> {
        self.base.registry.clone()
    }

    /// Whether the replayed intent log changes this object, so that its version on disk is not the one shown.
    pub fn is_replayed(&self, id: ObjectId) -> bool {
        self.overlay.get(id).is_some()
    }

    /// An object's attributes.
    ///
    /// # Errors
    /// No such object, not a file, damage.
    #[boxed]
    pub async fn attr(&self, id: ObjectId) -> Result<Attr> {
        if let Some(attr) = self.node(id).and_then(|node| node.attr) {
            return Ok(attr);
        }
        self.attr_of(&self.object(id).await?).await
    }

    /// The attributes of several objects, in the order given. Reads their dnodes together.
    #[boxed]
    pub async fn attrs(&self, ids: &[ObjectId]) -> Vec<Result<Attr>> {
        let dnodes = self.base.objset.dnodes_of(ids).await;
        let mut attrs = Vec::with_capacity(ids.len());
        for (&id, dnode) in ids.iter().zip(dnodes) {
            let decoded = dnode.ok().map(|dnode| Attr::decode(&self.base.registry, &dnode));
            attrs.push(match decoded {
                Some(Ok(Decoded::Done(attr))) if self.overlay.get(id).is_none() => Ok(attr),
                _ => self.attr(id).await,
            });
        }
        attrs
    }

    /// The attributes of an object whose dnode is loaded; reads the spill block if necessary.
    ///
    /// # Errors
    /// Not a file, damage.
    #[boxed]
    pub async fn attr_of(&self, object: &Object) -> Result<Attr> {
        let (id, dnode) = (object.id(), object.dnode());
        match Attr::decode(&self.base.registry, dnode).map_err(|e| e.of(id))? {
            Decoded::Done(attr) => Ok(attr),
            Decoded::NeedsSpill => {
                let spill = object.read_spill().await?;
                let (_, bytes) =
                    spill.ok_or_else(|| FsError::Attributes { why: "lack their spill block" }.of(id))?;
                Attr::decode_with_spill(&self.base.registry, dnode, &bytes).map_err(|e| e.of(id))
            }
        }
    }

    /// Objects unlinked while open, which the next read-write import would free. They have no names.
    ///
    /// # Errors
    /// The queue can't be read.
    #[boxed]
    pub async fn unlinked(&self) -> Result<Vec<ObjectId>> {
        let Some(queue) = self.base.master.delete_queue else { return Ok(Vec::new()) };
        let entries = self.zap(queue).await?.to_vec().await?;
        let ids = entries.iter().filter_map(|entry| entry.value.as_u64()).map(ObjectId);
        Ok(ids.filter(|&id| !self.overlay.hides(id)).collect())
    }

    /// An object on disk; if the overlay replaced or freed it, it does not exist.
    pub(crate) async fn object(&self, id: ObjectId) -> Result<Object> {
        if self.overlay.hides(id) {
            return Err(FsError::NoObject { object: id });
        }
        self.base.objset.object(id).await.map_err(|error| match error {
            DatasetError::NoObject { .. } => FsError::NoObject { object: id },
            other => other.into(),
        })
    }

    /// A directory, or another ZAP, on disk. A path through a regular file is no damage.
    pub(crate) async fn zap(&self, id: ObjectId) -> Result<Zap> {
        let object = self.object(id).await?;
        if object.dnode().object_type == ObjectType::PLAIN_FILE_CONTENTS {
            return Err(Refusal::NotDirectory.of(id));
        }
        Ok(Zap::open(object).await?)
    }

    /// The overlay's changes to an object that it has not freed.
    pub(crate) fn node(&self, id: ObjectId) -> Option<&Node> {
        self.overlay.get(id).filter(|node| !node.freed)
    }

    /// Whether a dnode belongs to a file (others are the file system's own ZAPs and tables).
    pub fn is_file(dnode: &Dnode) -> bool {
        matches!(dnode.bonus_type, ObjectType::SA | ObjectType::ZNODE)
            && matches!(dnode.object_type, ObjectType::PLAIN_FILE_CONTENTS | ObjectType::DIRECTORY_CONTENTS)
    }
}

impl std::fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filesystem({:?})", self.base.objset)
    }
}

pub(crate) async fn read_master_node(objset: &Objset) -> Result<MasterNode> {
    let zap = Zap::open_id(objset, MASTER_NODE).await?;
    let object = async |name: &str| -> Result<Option<ObjectId>> {
        Ok(zap.get_u64(name).await?.filter(|&id| id != 0).map(ObjectId))
    };
    let version = zap.get_u64("VERSION").await?.unwrap_or(ZPL_VERSION);
    if !(1..=ZPL_VERSION).contains(&version) {
        return Err(FsError::Version { version });
    }
    Ok(MasterNode {
        version,
        root: object("ROOT").await?.ok_or(FsError::MasterNode { name: "ROOT" })?,
        delete_queue: object("DELETE_QUEUE").await?,
        shares: object("SHARES").await?,
        fuids: object("FUID").await?,
        sa_attrs: object("SA_ATTRS").await?,
        case: match zap.get_u64("casesensitivity").await? {
            Some(1) => CaseSensitivity::Insensitive,
            Some(2) => CaseSensitivity::Mixed,
            _ => CaseSensitivity::Sensitive,
        },
        normalization: match zap.get_u64("normalization").await?.unwrap_or(0) {
            form if form & (U8_CANON_DECOMP | U8_COMPAT_DECOMP) == 0 => Normalization::None,
            form => match (form & U8_COMPAT_DECOMP != 0, form & U8_CANON_COMP != 0) {
                (false, false) => Normalization::FormD,
                (false, true) => Normalization::FormC,
                (true, false) => Normalization::FormKd,
                (true, true) => Normalization::FormKc,
            },
        },
        utf8_only: zap.get_u64("utf8only").await?.unwrap_or(0) != 0,
    })
}

async fn read_sa_registry(objset: &Objset, id: ObjectId) -> Result<SaRegistry> {
    let zap = Zap::open_id(objset, id).await?;
    let table = async |name: &str| -> Result<Vec<ZapEntry>> {
        match zap.get_u64(name).await? {
            Some(id) => Ok(Zap::open_id(objset, ObjectId(id)).await?.to_vec().await?),
            None => Ok(Vec::new()),
        }
    };
    let (registry, layouts) = (table("REGISTRY").await?, table("LAYOUTS").await?);
    let layouts: Vec<_> = layouts.iter().map(|e| (&e.name, e.value.words().collect::<Vec<u64>>())).collect();
    let registrations = registry.iter().filter_map(|e| Some((&e.name[..], e.value.as_u64()?)));
    let layouts = layouts.iter().map(|(name, attrs)| (&name[..], &attrs[..]));
    SaRegistry::decode(registrations, layouts).map_err(|source| FsError::Format { object: id, source })
}

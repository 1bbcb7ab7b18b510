//! Opens a file system although its own tables are damaged.
//!
//! Idea: no file can be read without the master node, the attribute registry and the layouts, yet most of
//! their content is predictable. Unreadable parts are replaced: objects are found by type (they are the first
//! in a file system), layouts are taken from an older state of the same file system or, as a last resort,
//! from OpenZFS's standard order ([`SaRegistry::salvage`]).
//!
//! Use this only if the file system can't be opened otherwise: if the master node is lost, names are compared
//! byte for byte.

use cenote_boxed::boxed;
use cenote_format::dnode::{Dnode, ObjectType};
use cenote_format::objset::ObjsetType;
use cenote_format::sa::SaRegistry;
use cenote_format::units::ObjectId;
use cenote_object::{Objset, Zap, ZapEntry};

use crate::error::{FsError, Result};
use crate::filesystem::{
    CaseSensitivity, Filesystem, MasterNode, Normalization, ZPL_VERSION, read_master_node,
};

/// The range in which a file system's own objects are searched for.
const FIRST_OBJECTS: ObjectId = ObjectId(1024);

impl Filesystem {
    /// Opens a file system whose tables are partly unreadable. `older` are the tables of an older state, if
    /// any.
    ///
    /// # Errors
    /// Its root directory can't be found or decoded.
    #[boxed]
    pub async fn salvage(objset: Objset, older: Option<&SaRegistry>) -> Result<Filesystem> {
        if objset.phys().objset_type != ObjsetType::Zfs {
            return Err(FsError::WrongKind { wanted: "file system" });
        }
        let first = first_objects(&objset).await;
        let by_type = |wanted| first.iter().find(|(_, dnode)| dnode.object_type == wanted).map(|(id, _)| *id);
        let registry = by_type(ObjectType::SA_ATTR_REGISTRATION);
        let layouts = by_type(ObjectType::SA_ATTR_LAYOUTS);
        let registry = SaTables::read(&objset, registry, layouts).await.registry(older)?;
        if let Ok(master) = read_master_node(&objset).await {
            return Ok(Filesystem::of_parts(objset, master, registry.into()));
        }
        let fs = Filesystem::of_parts(objset, lost_master_node(), registry.into());
        for (id, _) in first.iter().filter(|(_, d)| d.object_type == ObjectType::DIRECTORY_CONTENTS) {
            // The root is its own parent; so is the folder of SMB shares, which was created later.
            if fs.attr(*id).await.is_ok_and(|attr| attr.is_dir() && attr.parent == *id) {
                let master = MasterNode { root: *id, ..fs.master().clone() };
                return Ok(Filesystem::of_parts(fs.objset().clone(), master, fs.registry()));
            }
        }
        Err(FsError::MasterNode { name: "ROOT" })
    }
}

/// The usual content of a master node, without the root.
fn lost_master_node() -> MasterNode {
    MasterNode {
        version: ZPL_VERSION,
        root: ObjectId(0),
        delete_queue: None,
        shares: None,
        fuids: None,
        sa_attrs: None,
        case: CaseSensitivity::Sensitive,
        normalization: Normalization::None,
        utf8_only: false,
    }
}

/// The readable objects created with the file system.
async fn first_objects(objset: &Objset) -> Vec<(ObjectId, Dnode)> {
    let mut found = Vec::new();
    let mut dnodes = objset.dnodes(ObjectId(1), FIRST_OBJECTS);
    while let Some(batch) = dnodes.next_batch().await {
        found.extend(batch.into_iter().flat_map(|batch| batch.dnodes));
    }
    found
}

/// The readable entries of the registry and of the layout table.
struct SaTables {
    registry: Vec<ZapEntry>,
    layouts: Vec<ZapEntry>,
}

impl SaTables {
    async fn read(objset: &Objset, registry: Option<ObjectId>, layouts: Option<ObjectId>) -> SaTables {
        let read = async |id: Option<ObjectId>| {
            let mut found = Vec::new();
            let Some(id) = id else { return found };
            let Ok(zap) = Zap::open_id(objset, id).await else { return found };
            let mut entries = zap.entries();
            while let Some(batch) = entries.next_batch().await {
                found.extend(batch.into_iter().flatten());
            }
            found
        };
        SaTables { registry: read(registry).await, layouts: read(layouts).await }
    }

    fn registry(&self, older: Option<&SaRegistry>) -> Result<SaRegistry> {
        // An attribute or a layout keeps its number forever, so the entries of an older state are still
        // valid.
        let mut registrations = older.map_or(Vec::new(), SaRegistry::registrations);
        registrations.extend(self.registry.iter().filter_map(|e| Some((e.name.to_vec(), e.value.as_u64()?))));
        let mut layouts = older.map_or(Vec::new(), SaRegistry::layouts);
        layouts.extend(self.layouts.iter().map(|e| (e.name.to_vec(), e.value.words().collect())));
        let registry = SaRegistry::salvage(
            registrations.iter().map(|(name, value)| (&name[..], *value)),
            layouts.iter().map(|(name, attributes): &(Vec<u8>, Vec<u64>)| (&name[..], &attributes[..])),
        );
        registry.map_err(FsError::BadAttributes)
    }
}

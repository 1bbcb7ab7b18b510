//! Rescue: the dataset tree without its tables.
//!
//! Idea: tables (the object directory, each directory's children) record the tree from above, and each
//! directory names its parent. If a table is lost, one walk over the MOS finds the directories of that
//! parent; only their names are lost.

use cenote_boxed::boxed;
use cenote_format::Phys;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::DslDirPhys;
use cenote_format::units::{DatasetId, ObjectId};
use cenote_object::Objset;

use crate::dir::Dir;

/// Root of the name tree: the directory without a parent.
pub(crate) async fn root_dir(objset: &Objset) -> Option<ObjectId> {
    dirs_below(objset, ObjectId(0)).await.first().map(|(id, _)| *id)
}

/// As far as the MOS is readable.
async fn dirs_below(objset: &Objset, parent: ObjectId) -> Vec<(ObjectId, DslDirPhys)> {
    let mut found = Vec::new();
    let mut dnodes = objset.dnodes(ObjectId(1), ObjectId(u64::MAX));
    while let Some(Ok(batch)) = dnodes.next_batch().await {
        for (id, dnode) in batch.dnodes.iter().filter(|(_, dnode)| dnode.bonus_type == ObjectType::DSL_DIR) {
            match DslDirPhys::decode(dnode.bonus(), dnode.endian()) {
                Ok(phys) if phys.parent == parent => found.push((*id, phys)),
                _ => {}
            }
        }
    }
    found
}

impl Dir {
    /// Child directories with content, found without the table of names.
    #[boxed]
    pub async fn unlisted_children(&self) -> Vec<ObjectId> {
        let mut children = Vec::new();
        for (id, phys) in dirs_below(self.mos().objset(), self.id()).await {
            // OpenZFS's internal directories have no head, or a head never written.
            let head = self.mos().dataset_phys(DatasetId(phys.head_dataset.0)).await;
            if phys.head_dataset.0 != 0 && head.is_ok_and(|head| !head.bp.is_hole()) {
                children.push(id);
            }
        }
        children
    }
}

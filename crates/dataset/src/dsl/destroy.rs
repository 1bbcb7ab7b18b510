//! File systems and volumes destroyed: `zfs destroy pool/a`.
//!
//! Idea: what is to be freed is what the head has and no snapshot: all that was born after the version it began with (a clone's origin; the
//! empty one otherwise). A clone's livelist says what that is; other trees are left to be freed in the background (`engine/freeing`).
//! Pools without feature `async_destroy` have no list for that: all is freed in one group. It is walked twice, first only to see that all
//! can be read: a task that fails must leave all as it was.
//!
//! Source: OpenZFS `dsl_destroy.c` (`dsl_destroy_head_sync_impl`, `dsl_dir_destroy_sync`).

use cenote_format::bpobj::BptreeEntry;
use cenote_format::dsl::names::{dataset_field, dir_field, pool as names};
use cenote_format::dsl::{DslDatasetPhys, bookmark};
use cenote_format::features::Feature;
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_format::words::Phys;

use super::account::Account;
use super::make::remove_number;
use super::{Dataset, name};
use crate::dead_tree::DeadTree;
use crate::engine::{Engine, SpaceCheck, SyncContext};
use crate::error::{DatasetError, Result};
use crate::objset::Objset;
use crate::sync::blocks::Space;
use crate::zap::{Zap, ZapEdit};

impl Engine {
    /// Destroys a file system or volume that has no snapshots and no children, and which nobody has open.
    ///
    /// # Errors
    /// It has some, or is open; a block that leads to others can't be read.
    pub async fn destroy_dataset(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.run_within(SpaceCheck::ExtraReserved, move |context| {
            Box::pin(async move { context.destroy_dataset(&name).await })
        })
        .await
    }
}

impl SyncContext {
    async fn destroy_dataset(&mut self, name: &str) -> Result<()> {
        name::split_child(name)?;
        let head = self.mos().await?.dataset(name).await?;
        if let Some(snapshot) = head.snapshots().await?.first() {
            let why = format!("it has snapshots ('{}'); destroy them first", snapshot.name());
            return Err(DatasetError::busy(name, why));
        }
        if let Some(child) = head.children().await?.first() {
            return Err(DatasetError::busy(
                name,
                format!("it has children ('{}'); destroy them first", child.name()),
            ));
        }
        self.refuse_if_open(&head)?;
        let phys = *head.phys();
        let origin = head.origin().await?;
        let livelist = self.livelist(phys.dir).await?;
        let is_later = livelist.is_none() && !phys.bp.is_hole() && self.frees_in_background().await?;
        let how = match livelist {
            Some(livelist) => {
                self.free_clone(&head, livelist).await?;
                "livelist"
            }
            None if is_later => {
                self.refuse_log(&head.objset_head().await?, name)?;
                "bptree"
            }
            None => {
                self.survey_blocks(&head, phys.prev_snapshot_txg).await?;
                self.free_blocks(&head, phys.prev_snapshot_txg).await?;
                "synchronous"
            }
        };
        self.free_log(&head).await?;
        let details = format!("({how}, mintxg={})", phys.prev_snapshot_txg);
        self.log_of_dataset((name, ObjectId(head.id().0)), "destroy", &details).await?;
        let used = self.remove_head(ObjectId(head.id().0)).await?;
        if is_later {
            self.free_tree_later(phys.bp, phys.prev_snapshot_txg, used).await?;
        }
        if let Some(origin) = origin {
            self.remove_if_deferred(&origin).await?;
        }
        Ok(())
    }

    /// Nobody may have a dataset open that is to go or to change under them.
    pub(super) fn refuse_if_open(&self, head: &Dataset) -> Result<()> {
        match self.is_open(head.id()) {
            true => Err(DatasetError::busy(head.name(), "it is open; close or unmount it first")),
            false => Ok(()),
        }
    }

    /// Frees what a clone has to itself, as its livelist says.
    async fn free_clone(&mut self, clone: &Dataset, livelist: ObjectId) -> Result<()> {
        self.refuse_log(&clone.objset_head().await?, clone.name())?;
        self.survey_livelist(livelist).await?;
        self.free_livelist(livelist).await?;
        ZapEdit::new(&self.edit(), clone.dir().id()).remove(dir_field::LIVELIST).await
    }

    /// What a log holds must be in the tree first.
    fn refuse_log(&self, objset: &Objset, name: &str) -> Result<()> {
        match objset.phys().zil_header.is_claimed() {
            true => Err(DatasetError::busy(name, "its intent log has to be replayed first")),
            false => Ok(()),
        }
    }

    /// Sees that all blocks born after a group can be found, and that no log waits for its replay.
    pub(super) async fn survey_blocks(&self, head: &Dataset, born_after: Txg) -> Result<()> {
        if head.phys().bp.is_hole() {
            return Ok(());
        }
        self.refuse_log(&head.objset_head().await?, head.name())?;
        let mut tree = self.tree_since(head, born_after);
        while tree.next().await?.is_some() {}
        Ok(())
    }

    /// Frees all blocks of a head born after a group.
    pub(super) async fn free_blocks(&self, head: &Dataset, born_after: Txg) -> Result<()> {
        let mut tree = self.tree_since(head, born_after);
        while let Some(bp) = tree.next().await? {
            self.free_now(&bp).await?;
        }
        Ok(())
    }

    fn tree_since(&self, head: &Dataset, birth_txg: Txg) -> DeadTree {
        let entry = BptreeEntry { bp: head.phys().bp, birth_txg, resume: [0; 4] };
        DeadTree::new(&self.group.pool, head.id(), &entry)
    }

    /// Removes a head whose blocks are free or will be, and its directory; answers what they took.
    pub(super) async fn remove_head(&mut self, id: ObjectId) -> Result<Space> {
        let edit = self.edit();
        let phys = self.dataset_phys(id).await?;
        let held_back = self.refreservation(id).await?.saturating_sub(phys.unique_bytes);
        let space = Space { used: -(held_back as i64), ..Space::default() };
        self.use_space(phys.dir, space, Account::Refreservation).await?;
        self.drop_livelist(phys.dir).await?;
        self.drop_remapped(id).await?;
        self.drop_bookmarks(id).await?;
        self.drop_features(id).await?;
        self.leave_origin(id, &phys).await?;
        self.free_deadlist(phys.deadlist).await?;

        let dir = self.dir_phys(phys.dir).await?;
        let used = Space {
            used: dir.used_bytes as i64,
            compressed: dir.compressed_bytes as i64,
            uncompressed: dir.uncompressed_bytes as i64,
        };
        self.use_space(phys.dir, -used, Account::Head).await?;
        let mut dir = self.dir_phys(phys.dir).await?;
        dir.head_dataset = ObjectId(0);
        self.set_dir_phys(phys.dir, &dir).await?;
        edit.destroy(phys.snapshot_names_zap).await?;
        self.clear_bootfs(id).await?;
        self.free_zapified(id).await?;
        self.close(DatasetId(id.0));
        self.remove_dir(phys.dir).await?;
        Ok(used)
    }

    /// A clone's origin has one child less.
    async fn leave_origin(&mut self, id: ObjectId, head: &DslDatasetPhys) -> Result<()> {
        if head.prev_snapshot.0 == 0 {
            return Ok(());
        }
        let edit = self.edit();
        let mut origin = self.dataset_phys(head.prev_snapshot).await?;
        origin.num_children = origin.num_children.saturating_sub(1);
        self.set_dataset_phys(head.prev_snapshot, &origin).await?;
        if origin.next_clones_zap.0 != 0 {
            remove_number(&ZapEdit::new(&edit, origin.next_clones_zap), id).await?;
        }
        let clones = self.dir_phys(origin.dir).await?.clones_zap;
        if clones.0 != 0 {
            remove_number(&ZapEdit::new(&edit, clones), id).await?;
        }
        Ok(())
    }

    /// Removes a directory that has no head any more.
    async fn remove_dir(&mut self, id: ObjectId) -> Result<()> {
        let edit = self.edit();
        self.set_reservation(id, 0).await?;
        let dir = self.dir_phys(id).await?;
        self.count(dir.parent, dir_field::FILESYSTEM_COUNT, -1).await?;
        self.leave_key(id).await?;
        if dir.deleg_zap.0 != 0 {
            for who in Zap::open_id(&edit.view(), dir.deleg_zap).await?.to_vec().await? {
                if let Some(permissions) = who.value.as_u64() {
                    edit.destroy(ObjectId(permissions)).await?;
                }
            }
        }
        for zap in [dir.child_dirs_zap, dir.props_zap, dir.clones_zap, dir.deleg_zap] {
            if zap.0 != 0 {
                edit.destroy(zap).await?;
            }
        }
        let siblings = self.dir_phys(dir.parent).await?.child_dirs_zap;
        let entries = Zap::open_id(&edit.view(), siblings).await?.to_vec().await?;
        let own = entries.into_iter().find(|entry| entry.value.as_u64() == Some(id.0));
        let own = own.ok_or_else(|| self.damaged("a directory is not among its parent's children"))?;
        ZapEdit::new(&edit, siblings).remove(own.name_text().as_str()).await?;
        self.free_zapified(id).await
    }
}

impl SyncContext {
    /// A dataset that goes needs its features no longer.
    pub(super) async fn drop_features(&mut self, id: ObjectId) -> Result<()> {
        let view = self.edit().view();
        if !view.dnode(id).await?.object_type.is_zap() {
            return Ok(());
        }
        for entry in Zap::open_id(&view, id).await?.to_vec().await? {
            if let Some(feature) = Feature::by_guid(&entry.name_text()).filter(|feature| feature.per_dataset)
            {
                ZapEdit::new(&self.edit(), id).remove(feature.guid).await?;
                self.use_feature(feature.name, -1).await?;
            }
        }
        Ok(())
    }

    /// Frees an object that may have become a ZAP (`dmu_object_free_zapified`).
    pub(super) async fn free_zapified(&mut self, id: ObjectId) -> Result<()> {
        let edit = self.edit();
        if edit.view().dnode(id).await?.object_type.is_zap() {
            self.use_feature("extensible_dataset", -1).await?;
        }
        edit.destroy(id).await
    }

    /// All bookmarks of a head go with it.
    async fn drop_bookmarks(&mut self, id: ObjectId) -> Result<()> {
        let edit = self.edit();
        let Some(zap) = self.dataset_field(id, dataset_field::BOOKMARK_NAMES).await? else { return Ok(()) };
        for entry in Zap::open_id(&edit.view(), zap).await?.to_vec().await? {
            let words: Vec<u64> = entry.value.words().collect();
            let mark = bookmark::Bookmark::from_words(&words).map_err(|e| edit.view().format(zap, e))?;
            self.drop_bookmark(&mark, words.len()).await?;
        }
        edit.destroy(zap).await?;
        self.use_feature("bookmarks", -1).await
    }

    /// A number among the fields of a dataset.
    pub(super) async fn dataset_field(&self, id: ObjectId, field: &str) -> Result<Option<ObjectId>> {
        let edit = self.edit();
        if !edit.view().dnode(id).await?.object_type.is_zap() {
            return Ok(None);
        }
        let found = ZapEdit::new(&edit, id).get(field).await?.and_then(|value| value.as_u64());
        Ok(found.filter(|&id| id != 0).map(ObjectId))
    }

    /// The pool does not boot from what is gone (`spa_prop_clear_bootfs`).
    pub(super) async fn clear_bootfs(&self, id: ObjectId) -> Result<()> {
        let Some(props) = self.find_directory_object(names::PROPS).await? else { return Ok(()) };
        let edit = self.edit();
        let props = ZapEdit::new(&edit, props);
        match props.get("bootfs").await?.and_then(|value| value.as_u64()) {
            Some(bootfs) if bootfs == id.0 => props.remove("bootfs").await,
            _ => Ok(()),
        }
    }
}

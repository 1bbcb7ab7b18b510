//! Destroys file systems and volumes: `zfs destroy pool/a`.
//!
//! Idea: destroying a head frees the blocks no snapshot has: those born after its previous version (a clone's
//! origin, otherwise the empty one). A clone's livelist names them; other trees are freed in the background
//! (`engine/freeing`). Pools without feature `async_destroy` cannot queue a tree and free it in one txg. That
//! takes two walks: the first proves that every block can be read, since a failed task must change nothing.
//!
//! Source: OpenZFS `dsl_destroy.c` (`dsl_destroy_head_sync_impl`, `dsl_dir_destroy_sync`).

use cenote_boxed::boxed;
use cenote_dataset::mos::RECV_CLONE_NAME;
use cenote_dataset::{Dataset, name};
use cenote_engine::account::Account;
use cenote_engine::freeing::{free_tree_later, frees_in_background};
use cenote_engine::livelist::{drop_livelist, free_livelist, livelist, survey_livelist};
use cenote_engine::logs::free_log;
use cenote_engine::store::space_delta::SpaceDelta;
use cenote_engine::{Engine, Reach, SpaceCheck, SyncContext};
use cenote_format::bpobj::BptreeEntry;
use cenote_format::dsl::names::{dataset_field, dir_field, pool as names};
use cenote_format::dsl::{DslDatasetPhys, bookmark};
use cenote_format::features::Feature;
use cenote_format::units::{ObjectId, Txg};
use cenote_format::words::Phys;
use cenote_object::dead_tree::DeadTree;
use cenote_object::{DatasetError, Objset, Result, Zap, ZapEdit};

use crate::counts::count;
use crate::crypt::leave_key;
use crate::destroy_snapshot::{Leaving, remove_snapshot, withdraw_if_last};
use crate::make::{is_temporary, remove_number};
use crate::mark::drop_bookmark;
use crate::pool::errors;
use crate::pool::scan::state as scan;
use crate::remapped::drop_remapped;
use crate::set::{refreservation, set_reservation};
use crate::touch::touch_heads;
use crate::whole::readable;

/// Destroys a file system or volume without snapshots or children, not open.
///
/// # Errors
/// It has snapshots or children or is open; an indirect block is unreadable.
#[boxed]
pub async fn destroy_dataset(engine: &Engine, name: &str) -> Result<()> {
    engine
        .run_when_quiet(SpaceCheck::ExtraReserved, || {
            let name = name.to_owned();
            move |context| {
                Box::pin(async move {
                    let changed = destroy_dataset_sync(context, &name).await?;
                    touch_heads(context, &changed, Reach::Own);
                    Ok(())
                })
            }
        })
        .await
}

/// Returns the former head. If it was a clone, also the head of its origin: a deferred snapshot goes with its
/// last clone.
pub(crate) async fn destroy_dataset_sync(context: &mut SyncContext, name: &str) -> Result<Vec<Dataset>> {
    let head = check_destruction(context, name).await?;
    let owner = match head.origin().await? {
        Some(origin) => Some(origin.dir().head().await?),
        None => None,
    };
    // An unfinished receive into it goes, too.
    if let Some(unfinished) = unfinished(context, name).await? {
        destroy_head(context, &unfinished).await?;
    }
    destroy_head(context, &head).await?;
    Ok(std::iter::once(head).chain(owner).collect())
}

/// The head to destroy.
pub(crate) async fn check_destruction(context: &SyncContext, name: &str) -> Result<Dataset> {
    name::split_child(name)?;
    let head = readable(context.mos().await?.dataset(name).await?).await?;
    refuse_family(&head).await?;
    context.quiet(&head)?;
    Ok(head)
}

/// The temporary head of an unfinished receive into an existing dataset, if any.
pub(crate) async fn unfinished(context: &SyncContext, name: &str) -> Result<Option<Dataset>> {
    match context.mos().await?.dataset(&format!("{name}/{RECV_CLONE_NAME}")).await {
        Err(DatasetError::NoDataset { .. }) => Ok(None),
        found => readable(found?).await.map(Some),
    }
}

async fn refuse_family(head: &Dataset) -> Result<()> {
    let name = head.name();
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
    Ok(())
}

/// Destroys any head, even a temporary one, without snapshots and children.
pub(crate) async fn destroy_head(context: &mut SyncContext, head: &Dataset) -> Result<()> {
    let name = head.name();
    let quiet = context.quiet(head)?;
    let phys = *head.phys();
    let origin = match head.origin().await? {
        Some(origin) => {
            let last = withdraw_if_last(context, &origin, Leaving::Clone).await?;
            last.map(|withdrawn| (withdrawn, origin))
        }
        None => None,
    };
    let livelist = livelist(context, phys.dir).await?;
    let is_later = livelist.is_none() && !phys.bp.is_hole() && frees_in_background(context).await?;
    let how = match livelist {
        Some(livelist) => {
            free_clone(context, head, livelist).await?;
            "livelist"
        }
        None if is_later => {
            refuse_log(&head.objset_head().await?, name)?;
            "bptree"
        }
        None => {
            survey_blocks(context, head, phys.prev_snapshot_txg).await?;
            free_blocks(context, head, phys.prev_snapshot_txg).await?;
            "synchronous"
        }
    };
    free_log(context, head, &quiet).await?;
    let details = format!("({how}, mintxg={})", phys.prev_snapshot_txg);
    context.log_of_dataset((name, ObjectId(head.id().0)), "destroy", &details).await?;
    context.close(&quiet);
    let used = remove_head(context, ObjectId(head.id().0)).await?;
    if is_later {
        free_tree_later(context, phys.bp, phys.prev_snapshot_txg, used).await?;
    }
    if let Some((withdrawn, origin)) = origin {
        remove_snapshot(context, withdrawn, origin.name()).await?;
    }
    Ok(())
}

/// Frees a clone's own blocks, as listed in its livelist.
async fn free_clone(context: &mut SyncContext, clone: &Dataset, livelist: ObjectId) -> Result<()> {
    refuse_log(&clone.objset_head().await?, clone.name())?;
    survey_livelist(context, livelist).await?;
    free_livelist(context, livelist).await?;
    ZapEdit::new(&context.edit(), clone.dir().id()).remove(dir_field::LIVELIST).await
}

/// The log must be replayed into the tree first.
fn refuse_log(objset: &Objset, name: &str) -> Result<()> {
    match objset.phys().zil_header.needs_replay() {
        true => Err(DatasetError::busy(name, "its intent log has to be replayed first")),
        false => Ok(()),
    }
}

/// Checks that all blocks born after a txg can be reached and that no log awaits replay.
pub(crate) async fn survey_blocks(context: &SyncContext, head: &Dataset, born_after: Txg) -> Result<()> {
    if head.phys().bp.is_hole() {
        return Ok(());
    }
    refuse_log(&head.objset_head().await?, head.name())?;
    let mut tree = tree_since(context, head, born_after);
    while tree.next().await?.is_some() {}
    Ok(())
}

/// Frees all blocks of a head born after a txg.
pub(crate) async fn free_blocks(context: &SyncContext, head: &Dataset, born_after: Txg) -> Result<()> {
    let mut tree = tree_since(context, head, born_after);
    let mut batch = Vec::new();
    while let Some(bp) = tree.next().await? {
        batch.push(bp);
        if batch.len() == SyncContext::FREES_AT_ONCE {
            context.free_all(&std::mem::take(&mut batch)).await?;
        }
    }
    context.free_all(&batch).await
}

fn tree_since(context: &SyncContext, head: &Dataset, birth_txg: Txg) -> DeadTree {
    let entry = BptreeEntry { bp: head.phys().bp, birth_txg, resume: [0; 4] };
    DeadTree::new(context.pool(), head.id(), &entry)
}

/// Removes a closed head, whose blocks are free or will be, and its directory. Returns the space they used.
pub(crate) async fn remove_head(context: &mut SyncContext, id: ObjectId) -> Result<SpaceDelta> {
    let edit = context.edit();
    let phys = context.dataset_phys(id).await?;
    let held_back = refreservation(context, id).await?.saturating_sub(phys.unique_bytes);
    let space = SpaceDelta { used: -(held_back as i64), ..SpaceDelta::default() };
    context.use_space(phys.dir, space, Account::Refreservation).await?;
    drop_livelist(context, phys.dir).await?;
    drop_remapped(context, id).await?;
    drop_bookmarks(context, id).await?;
    drop_features(context, id).await?;
    scan::destroyed(context, id, ObjectId(0)).await?;
    errors::forget(context, id).await?;
    leave_origin(context, id, &phys).await?;
    context.free_deadlist(phys.deadlist).await?;

    let dir = context.dir_phys(phys.dir).await?;
    let used = SpaceDelta {
        used: dir.used_bytes as i64,
        compressed: dir.compressed_bytes as i64,
        uncompressed: dir.uncompressed_bytes as i64,
    };
    context.use_space(phys.dir, -used, Account::Head).await?;
    let mut dir = context.dir_phys(phys.dir).await?;
    dir.head_dataset = ObjectId(0);
    context.set_dir_phys(phys.dir, &dir).await?;
    edit.destroy(phys.snapshot_names_zap).await?;
    clear_bootfs(context, id).await?;
    free_zapified(context, id).await?;
    remove_dir(context, phys.dir).await?;
    Ok(used)
}

/// Takes the head off its origin's clones.
async fn leave_origin(context: &mut SyncContext, id: ObjectId, head: &DslDatasetPhys) -> Result<()> {
    if head.prev_snapshot.0 == 0 {
        return Ok(());
    }
    let edit = context.edit();
    let mut origin = context.dataset_phys(head.prev_snapshot).await?;
    origin.num_children = origin.num_children.saturating_sub(1);
    context.set_dataset_phys(head.prev_snapshot, &origin).await?;
    if origin.next_clones_zap.0 != 0 {
        remove_number(&ZapEdit::new(&edit, origin.next_clones_zap), id).await?;
    }
    let clones = context.dir_phys(origin.dir).await?.clones_zap;
    if clones.0 != 0 {
        remove_number(&ZapEdit::new(&edit, clones), id).await?;
    }
    Ok(())
}

/// Removes a directory without a head.
async fn remove_dir(context: &mut SyncContext, id: ObjectId) -> Result<()> {
    let edit = context.edit();
    set_reservation(context, id, 0).await?;
    let dir = context.dir_phys(id).await?;
    let siblings = context.dir_phys(dir.parent).await?.child_dirs_zap;
    let own = Zap::open_id(&edit.view(), siblings).await?.name_of(id.0).await?;
    let own = own.ok_or_else(|| context.damaged("a directory is not among its parent's children"))?;
    if !is_temporary(&own) {
        count(context, dir.parent, dir_field::FILESYSTEM_COUNT, -1).await?;
    }
    leave_key(context, id).await?;
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
    ZapEdit::new(&edit, siblings).remove(own.as_str()).await?;
    free_zapified(context, id).await
}

/// Drops a dataset's references to features.
pub(crate) async fn drop_features(context: &mut SyncContext, id: ObjectId) -> Result<()> {
    let view = context.edit().view();
    if !view.dnode(id).await?.object_type.is_zap() {
        return Ok(());
    }
    for entry in Zap::open_id(&view, id).await?.to_vec().await? {
        if let Some(feature) = Feature::by_guid(&entry.name_text()).filter(|feature| feature.per_dataset) {
            ZapEdit::new(&context.edit(), id).remove(feature.guid).await?;
            context.use_feature(feature.name, -1).await?;
        }
    }
    Ok(())
}

/// Frees an object that may have become a ZAP (`dmu_object_free_zapified`).
pub(crate) async fn free_zapified(context: &mut SyncContext, id: ObjectId) -> Result<()> {
    let edit = context.edit();
    if edit.view().dnode(id).await?.object_type.is_zap() {
        context.use_feature("extensible_dataset", -1).await?;
    }
    edit.destroy(id).await
}

/// Removes a head's bookmarks.
async fn drop_bookmarks(context: &mut SyncContext, id: ObjectId) -> Result<()> {
    let edit = context.edit();
    let Some(zap) = context.dataset_field(id, dataset_field::BOOKMARK_NAMES).await? else { return Ok(()) };
    for entry in Zap::open_id(&edit.view(), zap).await?.to_vec().await? {
        let words: Vec<u64> = entry.value.words().collect();
        let mark = bookmark::Bookmark::from_words(&words).map_err(|e| edit.view().format(zap, e))?;
        drop_bookmark(context, &mark, words.len()).await?;
    }
    edit.destroy(zap).await?;
    context.use_feature("bookmarks", -1).await
}

/// Clears `bootfs` if it names the destroyed dataset (`spa_prop_clear_bootfs`).
pub(crate) async fn clear_bootfs(context: &SyncContext, id: ObjectId) -> Result<()> {
    let Some(props) = context.find_directory_object(names::PROPS).await? else { return Ok(()) };
    let edit = context.edit();
    let props = ZapEdit::new(&edit, props);
    match props.get("bootfs").await?.and_then(|value| value.as_u64()) {
        Some(bootfs) if bootfs == id.0 => props.remove("bootfs").await,
        _ => Ok(()),
    }
}

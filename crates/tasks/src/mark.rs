//! Creates and destroys bookmarks (`zfs bookmark`, `zfs destroy pool/a#mark`), and keeps them current when
//! their snapshot is destroyed.
//!
//! A bookmark is three words: guid, txg, time. With feature `bookmark_written` it also has the snapshot's
//! referenced bytes and the bytes freed up to the next snapshot: enough to compute `written#` without the
//! snapshot.
//!
//! Source: OpenZFS `dsl_bookmark.c`.

use std::collections::BTreeSet;

use cenote_boxed::boxed;
use cenote_dataset::bookmark::Bookmark as Named;
use cenote_dataset::{Dataset, name};
use cenote_engine::bookmarks::{StoredMark, add_freed, has_sizes, marks};
use cenote_engine::{Engine, SpaceCheck, SyncContext};
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::DslDatasetPhys;
use cenote_format::dsl::bookmark::{Bookmark, ZBM_FLAG_HAS_FBN, ZBM_FLAG_SNAPSHOT_EXISTS};
use cenote_format::dsl::names::dataset_field;
use cenote_format::units::{Guid, ObjectId, Txg};
use cenote_format::words::Phys;
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::zap::fold;
use cenote_object::{DatasetError, NewZap, Result, ZapEdit, ZapValue};

use crate::redact::{list_of_redacted, of_redacted};
use crate::remapped::{forget_key, remove_key_of_clones};

/// Words of a bookmark of the old form, `BOOKMARK_PHYS_SIZE_V1`.
const OLD_WORDS: usize = 3;

/// Bookmarks a snapshot of the mark's dataset or of a clone's ancestor, or copies one of the dataset's
/// bookmarks.
///
/// # Errors
/// The source is missing or unrelated, the name is invalid or taken, or the pool has no bookmarks.
#[boxed]
pub async fn bookmark(engine: &Engine, source: &str, mark: &str) -> Result<()> {
    bookmark_all(engine, vec![(source.to_owned(), mark.to_owned())]).await
}

/// Bookmarks several snapshots, each with the name of its bookmark: all or none.
///
/// # Errors
/// Those of [`bookmark`], of the first that can't be made.
#[boxed]
pub async fn bookmark_all(engine: &Engine, marks: Vec<(String, String)>) -> Result<()> {
    engine
        .run_within(SpaceCheck::Normal, move |context| {
            Box::pin(async move {
                context.touch_nothing();
                for (source, mark) in &marks {
                    check_bookmark(context, source, mark).await?;
                }
                for (source, mark) in &marks {
                    bookmark_sync(context, source, mark).await?;
                }
                Ok(())
            })
        })
        .await
}

/// Destroys a bookmark.
///
/// # Errors
/// No such bookmark.
#[boxed]
pub async fn destroy_bookmark(engine: &Engine, mark: &str) -> Result<()> {
    let mark = mark.to_owned();
    engine
        .run_within(SpaceCheck::Reserved, move |context| {
            Box::pin(async move {
                context.touch_nothing();
                destroy_bookmark_sync(context, &mark).await
            })
        })
        .await
}

/// Whether `source` is a snapshot in the clone's ancestry (`dsl_dataset_is_before`).
async fn is_before(context: &SyncContext, source: &str, clone: &Dataset) -> Result<bool> {
    if !source.contains('@') {
        return Ok(false);
    }
    let snapshot = context.mos().await?.dataset(source).await?;
    let mut at = clone.origin().await?;
    while let Some(origin) = at {
        if origin.dir().id() == snapshot.dir().id() {
            return Ok(snapshot.creation_txg() <= origin.creation_txg());
        }
        at = origin.dir().head().await?.origin().await?;
    }
    Ok(false)
}

pub(crate) async fn bookmark_sync(context: &mut SyncContext, source: &str, mark: &str) -> Result<()> {
    let (head, marks) = check_bookmark(context, source, mark).await?;
    let (path, own) = name::split_at(mark, '#')?;
    let (phys, origin) = match marks.iter().find(|other| other.name == source) {
        Some(Named { phys, .. }) => {
            let copy = Bookmark { redaction_list: ObjectId(0), ..*phys };
            (copy, format!("source_guid={}", phys.guid))
        }
        None => {
            let snapshot = context.mos().await?.dataset(source).await?;
            let mut phys = bookmark_of(context, &snapshot).await?;
            phys.redaction_list = list_of_redacted(context, &snapshot, mark).await?;
            let origin = format!("target_snap={} redact_obj={}", snapshot.id(), phys.redaction_list);
            (phys, origin)
        }
    };
    add_mark(context, (path, ObjectId(head.id().0)), own, &phys, &origin).await
}

/// Checks a new bookmark; returns its head, and the head's bookmarks.
pub(crate) async fn check_bookmark(
    context: &SyncContext,
    source: &str,
    mark: &str,
) -> Result<(Dataset, Vec<Named>)> {
    let (path, _) = name::split_at(mark, '#')?;
    let head = context.mos().await?.dataset(path).await?;
    if source.split(['@', '#']).next() != Some(path) && !is_before(context, source, &head).await? {
        let why = "source is not an ancestor of the new bookmark's dataset";
        return Err(DatasetError::unsuitable(mark, why));
    }
    if FeatureCounts::of(&context.edit()).count("bookmarks").await?.is_none() {
        return Err(DatasetError::unsuitable(mark, "bookmark feature not enabled"));
    }
    refuse_existing(&head, mark).await?;
    let marks = head.bookmarks().await?;
    if !marks.iter().any(|other| other.name == source) {
        name::split_at(source, '@').map_err(|_| DatasetError::NoDataset { name: source.into() })?;
        of_redacted(context, &context.mos().await?.dataset(source).await?, mark).await?;
    }
    Ok((head, marks))
}

/// Refuses a bookmark that exists.
pub(crate) async fn refuse_existing(head: &Dataset, mark: &str) -> Result<()> {
    match head.bookmarks().await?.iter().any(|other| other.name == mark) {
        true => Err(DatasetError::DatasetExists { name: mark.into() }),
        false => Ok(()),
    }
}

/// Adds a bookmark to a head's table.
pub(crate) async fn add_mark(
    context: &mut SyncContext,
    (path, id): (&str, ObjectId),
    own: &str,
    phys: &Bookmark,
    origin: &str,
) -> Result<()> {
    let zap = bookmark_table(context, id).await?;
    let words = phys.to_words();
    let is_long = has_sizes(phys) || phys.ivset_guid.0 != 0 || phys.redaction_list.0 != 0;
    let words = if is_long { &words[..] } else { &words[..OLD_WORDS] };
    ZapEdit::new(&context.edit(), zap).add(own, &ZapValue::from_words(words)).await?;
    if is_long {
        context.use_feature("bookmark_v2", 1).await?;
    }
    if has_sizes(phys) {
        context.use_feature("bookmark_written", 1).await?;
    }
    let details = format!("name={own} creation_txg={} {origin}", phys.creation_txg);
    context.log_of_dataset((path, id), "bookmark", &details).await
}

/// A snapshot's bookmark; with sizes only under feature `bookmark_written` (`dsl_bookmark_set_phys`).
pub(crate) async fn bookmark_of(context: &SyncContext, dataset: &Dataset) -> Result<Bookmark> {
    let snapshot = dataset.phys();
    let ivset = dataset.field(dataset_field::IVSET_GUID).await?.and_then(|words| words.first().copied());
    let mut mark = Bookmark {
        ivset_guid: Guid(ivset.unwrap_or(0)),
        guid: snapshot.guid,
        creation_txg: snapshot.creation_txg,
        creation_time_s: snapshot.creation_time_s,
        ..Bookmark::zeroed()
    };
    if FeatureCounts::of(&context.edit()).count("bookmark_written").await?.is_none() {
        return Ok(mark);
    }
    mark.flags = ZBM_FLAG_HAS_FBN | ZBM_FLAG_SNAPSHOT_EXISTS;
    mark.referenced_bytes = snapshot.referenced_bytes;
    mark.compressed_bytes = snapshot.compressed_bytes;
    mark.uncompressed_bytes = snapshot.uncompressed_bytes;
    let next = context.dataset_phys(snapshot.next_snapshot).await?;
    add_freed(&mut mark, context.all_dead_space(next.deadlist).await?);
    Ok(mark)
}

/// A head's bookmark table, created on first use.
pub(crate) async fn bookmark_table(context: &mut SyncContext, head: ObjectId) -> Result<ObjectId> {
    if let Some(zap) = context.dataset_field(head, dataset_field::BOOKMARK_NAMES).await? {
        return Ok(zap);
    }
    let edit = context.edit();
    let new = NewZap::of(ObjectType::ZAP_METADATA).normalized(fold::U8_TEXTPREP_TOUPPER);
    let zap = new.create(&edit).await?;
    context.use_feature("bookmarks", 1).await?;
    context.zapify(head).await?;
    ZapEdit::new(&edit, head).add(dataset_field::BOOKMARK_NAMES, zap.0).await?;
    Ok(zap)
}

async fn destroy_bookmark_sync(context: &mut SyncContext, mark: &str) -> Result<()> {
    let (path, own) = name::split_at(mark, '#')?;
    let missing = || DatasetError::NoDataset { name: mark.into() };
    let head = context.mos().await?.dataset(path).await?;
    let id = ObjectId(head.id().0);
    let zap = context.dataset_field(id, dataset_field::BOOKMARK_NAMES).await?.ok_or_else(missing)?;
    let marks = marks(context, zap).await?;
    let found = marks.iter().find(|stored| stored.name == own);
    let StoredMark { mark: phys, words, .. } = found.cloned().ok_or_else(missing)?;
    ZapEdit::new(&context.edit(), zap).remove(own).await?;
    // Perhaps no other bookmark needs this deadlist key now.
    let keeps = |other: &Bookmark| has_sizes(other) && other.creation_txg == phys.creation_txg;
    let others = marks.iter().filter(|other| other.name != own && keeps(&other.mark)).count();
    let is_past = phys.creation_txg < head.phys().prev_snapshot_txg;
    if has_sizes(&phys) && phys.flags & ZBM_FLAG_SNAPSHOT_EXISTS == 0 && others == 0 && is_past {
        remove_key_of_clones(context, head.dir().id(), phys.creation_txg).await?;
        forget_key(context, id, phys.creation_txg).await?;
    }
    drop_bookmark(context, &phys, words).await?;
    context.log_of_dataset((path, id), "remove bookmark", &format!("name={own}")).await
}

/// Drops the features and redaction list of a removed bookmark of that many words.
pub(crate) async fn drop_bookmark(context: &mut SyncContext, mark: &Bookmark, words: usize) -> Result<()> {
    if words > OLD_WORDS {
        context.use_feature("bookmark_v2", -1).await?;
    }
    if has_sizes(mark) {
        context.use_feature("bookmark_written", -1).await?;
    }
    if mark.redaction_list.0 != 0 {
        let edit = context.edit();
        if edit.view().dnode(mark.redaction_list).await?.spill().is_some() {
            context.use_feature("redaction_list_spill", -1).await?;
        }
        edit.destroy(mark.redaction_list).await?;
        context.use_feature("redaction_bookmarks", -1).await?;
    }
    Ok(())
}

/// Txgs of bookmarks of a head since a txg, its last snapshot's: their snapshots are gone, and the next
/// snapshot makes them keys of its head's deadlist (`dsl_bookmark_snapshotted`).
pub(crate) async fn keys_since(context: &SyncContext, head: ObjectId, since: Txg) -> Result<BTreeSet<Txg>> {
    let zap = context.dataset_field(head, dataset_field::BOOKMARK_NAMES).await?;
    let Some(zap) = zap else { return Ok(BTreeSet::new()) };
    let marks = marks(context, zap).await?;
    let sized = marks.iter().map(|stored| &stored.mark).filter(|mark| has_sizes(mark));
    Ok(sized.map(|mark| mark.creation_txg).filter(|txg| *txg > since).collect())
}

/// Updates the bookmarks of a destroyed snapshot. Returns whether deadlists must keep its txg as a key for
/// one of them.
pub(crate) async fn leave_bookmarks(context: &mut SyncContext, snapshot: &DslDatasetPhys) -> Result<bool> {
    let head = context.dir_phys(snapshot.dir).await?.head_dataset;
    let Some(zap) = context.dataset_field(head, dataset_field::BOOKMARK_NAMES).await? else {
        return Ok(false);
    };
    let next = context.dataset_phys(snapshot.next_snapshot).await?.deadlist;
    let mut is_needed = false;
    for StoredMark { name, mut mark, .. } in marks(context, zap).await? {
        if !has_sizes(&mark) {
            continue;
        }
        if mark.creation_txg == snapshot.creation_txg {
            mark.flags &= !ZBM_FLAG_SNAPSHOT_EXISTS;
            is_needed = true;
        } else if (snapshot.prev_snapshot_txg..snapshot.creation_txg).contains(&mark.creation_txg) {
            // The next snapshot is now one later: add the bytes freed in between.
            let freed = context.dead_space(next, Default::default(), mark.creation_txg).await?;
            add_freed(&mut mark, freed);
        } else {
            continue;
        }
        let words = ZapValue::from_words(&mark.to_words());
        ZapEdit::new(&context.edit(), zap).update(name.as_str(), &words).await?;
    }
    Ok(is_needed)
}

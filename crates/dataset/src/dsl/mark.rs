//! Bookmarks made and removed: `zfs bookmark`, `zfs destroy pool/a#mark`; and what becomes of them when their snapshot goes.
//!
//! A bookmark is three words: guid, group, time. With feature `bookmark_written` it also tells what the snapshot referenced and how much of
//! that was freed up to the next snapshot, so that what was written since is known without it.
//!
//! Source: OpenZFS `dsl_bookmark.c`.

use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::DslDatasetPhys;
use cenote_format::dsl::bookmark::{Bookmark, ZBM_FLAG_HAS_FBN, ZBM_FLAG_SNAPSHOT_EXISTS};
use cenote_format::dsl::names::dataset_field;
use cenote_format::units::{Guid, ObjectId, Txg};
use cenote_format::words::Phys;

use super::account::add;
use super::bookmark::Bookmark as Named;
use super::{Dataset, name};
use crate::engine::{Engine, SpaceCheck, SyncContext};
use crate::error::{DatasetError, Result};
use crate::features::FeatureCounts;
use crate::sync::blocks::Space;
use crate::zap::{NewZap, Zap, ZapEdit, ZapValue, fold};

/// Words of a bookmark of the old form, `BOOKMARK_PHYS_SIZE_V1`.
const OLD_WORDS: usize = 3;

impl Engine {
    /// Makes a bookmark `pool/a#mark` of a snapshot or another bookmark of the same dataset.
    ///
    /// # Errors
    /// There is no such snapshot or bookmark, the name can't be or is taken, or the pool has no bookmarks.
    pub async fn bookmark(&self, source: &str, mark: &str) -> Result<()> {
        let (source, mark) = (source.to_owned(), mark.to_owned());
        self.run_within(SpaceCheck::Normal, move |context| {
            Box::pin(async move { context.bookmark(&source, &mark).await })
        })
        .await
    }

    /// Removes a bookmark.
    ///
    /// # Errors
    /// There is none of that name.
    pub async fn destroy_bookmark(&self, mark: &str) -> Result<()> {
        let mark = mark.to_owned();
        self.run_within(SpaceCheck::Reserved, move |context| {
            Box::pin(async move { context.destroy_bookmark(&mark).await })
        })
        .await
    }
}

impl SyncContext {
    async fn bookmark(&mut self, source: &str, mark: &str) -> Result<()> {
        let (path, own) = name::split_at(mark, '#')?;
        if source.split(['@', '#']).next() != Some(path) {
            let why = "source is not an ancestor of the new bookmark's dataset";
            return Err(DatasetError::unsuitable(mark, why));
        }
        let head = self.mos().await?.dataset(path).await?;
        if FeatureCounts::of(&self.edit()).count("bookmarks").await?.is_none() {
            return Err(DatasetError::unsuitable(mark, "bookmark feature not enabled"));
        }
        let marks = head.bookmarks().await?;
        if marks.iter().any(|other| other.name == mark) {
            return Err(DatasetError::DatasetExists { name: mark.into() });
        }
        let (phys, origin) = match marks.iter().find(|other| other.name == source) {
            Some(Named { phys, .. }) => {
                let copy = Bookmark { redaction_list: ObjectId(0), ..*phys };
                (copy, format!("source_guid={}", phys.guid))
            }
            None => {
                name::split_at(source, '@').map_err(|_| DatasetError::NoDataset { name: source.into() })?;
                let snapshot = self.mos().await?.dataset(source).await?;
                let origin = format!("target_snap={} redact_obj=0", snapshot.id());
                (self.bookmark_of(&snapshot).await?, origin)
            }
        };
        let (edit, id) = (self.edit(), ObjectId(head.id().0));
        let zap = self.bookmark_table(id).await?;
        let words = phys.to_words();
        let is_long = has_sizes(&phys) || phys.ivset_guid.0 != 0;
        let words = if is_long { &words[..] } else { &words[..OLD_WORDS] };
        ZapEdit::new(&edit, zap).add(own, &ZapValue::from_words(words)).await?;
        if is_long {
            self.use_feature("bookmark_v2", 1).await?;
        }
        if has_sizes(&phys) {
            self.use_feature("bookmark_written", 1).await?;
        }
        let details = format!("name={own} creation_txg={} {origin}", phys.creation_txg);
        self.log_of_dataset((path, id), "bookmark", &details).await
    }

    /// What a bookmark keeps of a snapshot; sizes only if the pool has feature `bookmark_written` (`dsl_bookmark_set_phys`).
    async fn bookmark_of(&self, dataset: &Dataset) -> Result<Bookmark> {
        let snapshot = dataset.phys();
        let ivset = dataset.field(dataset_field::IVSET_GUID).await?.and_then(|words| words.first().copied());
        let mut mark = Bookmark {
            ivset_guid: Guid(ivset.unwrap_or(0)),
            guid: snapshot.guid,
            creation_txg: snapshot.creation_txg,
            creation_time_s: snapshot.creation_time_s,
            ..Bookmark::zeroed()
        };
        if FeatureCounts::of(&self.edit()).count("bookmark_written").await?.is_none() {
            return Ok(mark);
        }
        mark.flags = ZBM_FLAG_HAS_FBN | ZBM_FLAG_SNAPSHOT_EXISTS;
        mark.referenced_bytes = snapshot.referenced_bytes;
        mark.compressed_bytes = snapshot.compressed_bytes;
        mark.uncompressed_bytes = snapshot.uncompressed_bytes;
        let next = self.dataset_phys(snapshot.next_snapshot).await?;
        add_freed(&mut mark, self.all_dead_space(next.deadlist).await?);
        Ok(mark)
    }

    /// The table of a head's bookmarks, made when it is needed first.
    pub(super) async fn bookmark_table(&mut self, head: ObjectId) -> Result<ObjectId> {
        if let Some(zap) = self.dataset_field(head, dataset_field::BOOKMARK_NAMES).await? {
            return Ok(zap);
        }
        let edit = self.edit();
        let new = NewZap::of(ObjectType::ZAP_METADATA).normalized(fold::U8_TEXTPREP_TOUPPER);
        let zap = new.create(&edit).await?;
        self.use_feature("bookmarks", 1).await?;
        self.zapify(head).await?;
        ZapEdit::new(&edit, head).add(dataset_field::BOOKMARK_NAMES, zap.0).await?;
        Ok(zap)
    }

    async fn destroy_bookmark(&mut self, mark: &str) -> Result<()> {
        let (path, own) = name::split_at(mark, '#')?;
        let missing = || DatasetError::NoDataset { name: mark.into() };
        let head = self.mos().await?.dataset(path).await?;
        let id = ObjectId(head.id().0);
        let zap = self.dataset_field(id, dataset_field::BOOKMARK_NAMES).await?.ok_or_else(missing)?;
        let marks = self.marks(zap).await?;
        let found = marks.iter().find(|(name, _, _)| name == own);
        let (_, phys, words) = found.cloned().ok_or_else(missing)?;
        ZapEdit::new(&self.edit(), zap).remove(own).await?;
        // It may have been the last for which deadlists keep births of that time apart.
        let keeps = |other: &Bookmark| has_sizes(other) && other.creation_txg == phys.creation_txg;
        let others = marks.iter().filter(|(name, other, _)| name != own && keeps(other)).count();
        let is_past = phys.creation_txg < head.phys().prev_snapshot_txg;
        if has_sizes(&phys) && phys.flags & ZBM_FLAG_SNAPSHOT_EXISTS == 0 && others == 0 && is_past {
            self.remove_key_of_clones(head.dir().id(), phys.creation_txg).await?;
            self.forget_key(id, phys.creation_txg).await?;
        }
        self.drop_bookmark(&phys, words).await?;
        self.log_of_dataset((path, id), "remove bookmark", &format!("name={own}")).await
    }

    /// What a bookmark of so many words counted for, beside its entry.
    pub(super) async fn drop_bookmark(&mut self, mark: &Bookmark, words: usize) -> Result<()> {
        if words > OLD_WORDS {
            self.use_feature("bookmark_v2", -1).await?;
        }
        if has_sizes(mark) {
            self.use_feature("bookmark_written", -1).await?;
        }
        if mark.redaction_list.0 != 0 {
            let edit = self.edit();
            if edit.view().dnode(mark.redaction_list).await?.spill().is_some() {
                self.use_feature("redaction_list_spill", -1).await?;
            }
            edit.destroy(mark.redaction_list).await?;
            self.use_feature("redaction_bookmarks", -1).await?;
        }
        Ok(())
    }

    /// A snapshot goes, its bookmarks stay. Answers whether one of them needs deadlists to go on telling births by it.
    pub(super) async fn leave_bookmarks(&mut self, snapshot: &DslDatasetPhys) -> Result<bool> {
        let head = self.dir_phys(snapshot.dir).await?.head_dataset;
        let Some(zap) = self.dataset_field(head, dataset_field::BOOKMARK_NAMES).await? else {
            return Ok(false);
        };
        let next = self.dataset_phys(snapshot.next_snapshot).await?.deadlist;
        let mut is_needed = false;
        for (name, mut mark, _) in self.marks(zap).await? {
            if !has_sizes(&mark) {
                continue;
            }
            if mark.creation_txg == snapshot.creation_txg {
                mark.flags &= !ZBM_FLAG_SNAPSHOT_EXISTS;
                is_needed = true;
            } else if (snapshot.prev_snapshot_txg..snapshot.creation_txg).contains(&mark.creation_txg) {
                // What was freed up to the next snapshot is freed up to the one after that.
                let freed = self.dead_space(next, Default::default(), mark.creation_txg).await?;
                add_freed(&mut mark, freed);
            } else {
                continue;
            }
            let words = ZapValue::from_words(&mark.to_words());
            ZapEdit::new(&self.edit(), zap).update(name.as_str(), &words).await?;
        }
        Ok(is_needed)
    }

    /// Blocks that a head has no longer: bookmarks since its last snapshot that tell sizes count those that were there at their time
    /// (`dsl_bookmark_block_killed`).
    pub(super) async fn note_in_bookmarks(
        &mut self,
        head: ObjectId,
        since: Txg,
        dead: &[Blkptr],
    ) -> Result<()> {
        let Some(zap) = self.dataset_field(head, dataset_field::BOOKMARK_NAMES).await? else { return Ok(()) };
        for (name, mut mark, _) in self.marks(zap).await? {
            if !has_sizes(&mark) || mark.creation_txg < since {
                continue;
            }
            let was_there = |bp: &&Blkptr| bp.logical_birth() <= mark.creation_txg;
            let freed =
                dead.iter().filter(was_there).fold(Space::default(), |sum, bp| sum + self.space_of(bp));
            if freed != Space::default() {
                add_freed(&mut mark, freed);
                let words = ZapValue::from_words(&mark.to_words());
                ZapEdit::new(&self.edit(), zap).update(name.as_str(), &words).await?;
            }
        }
        Ok(())
    }

    /// Bookmarks of a table: name, content, and of how many words.
    async fn marks(&self, zap: ObjectId) -> Result<Vec<(String, Bookmark, usize)>> {
        let view = self.edit().view();
        let mut marks = Vec::new();
        for entry in Zap::open_id(&view, zap).await?.to_vec().await? {
            let words: Vec<u64> = entry.value.words().collect();
            let mark = Bookmark::from_words(&words).map_err(|e| view.format(zap, e))?;
            marks.push((entry.name_text(), mark, words.len()));
        }
        Ok(marks)
    }
}

/// It tells sizes: `ZBM_FLAG_HAS_FBN`.
fn has_sizes(mark: &Bookmark) -> bool {
    mark.flags & ZBM_FLAG_HAS_FBN != 0
}

fn add_freed(mark: &mut Bookmark, freed: Space) {
    add(&mut mark.referenced_freed_bytes, freed.used);
    add(&mut mark.compressed_freed_bytes, freed.compressed);
    add(&mut mark.uncompressed_freed_bytes, freed.uncompressed);
}

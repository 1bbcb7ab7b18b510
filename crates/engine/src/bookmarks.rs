//! Bookmarks with sizes: they count the blocks that die in a txg.
//!
//! Source: OpenZFS `dsl_bookmark.c` (`dsl_bookmark_block_killed`).

use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::dsl::bookmark::{Bookmark, ZBM_FLAG_HAS_FBN};
use cenote_format::dsl::names::dataset_field;
use cenote_format::units::{ObjectId, Txg};
use cenote_format::words::Phys;
use cenote_object::{Result, Zap, ZapEdit, ZapValue};

use crate::SyncContext;
use crate::account::add;
use crate::store::space_delta::SpaceDelta;

/// Counts a head's dead blocks in the sized bookmarks since its last snapshot that had them
/// (`dsl_bookmark_block_killed`).
pub(crate) async fn note_in_bookmarks(
    context: &mut SyncContext,
    head: ObjectId,
    since: Txg,
    dead: &[Blkptr],
) -> Result<()> {
    let Some(zap) = context.dataset_field(head, dataset_field::BOOKMARK_NAMES).await? else { return Ok(()) };
    for StoredMark { name, mut mark, .. } in marks(context, zap).await? {
        if !has_sizes(&mark) || mark.creation_txg < since {
            continue;
        }
        let was_there = |bp: &&Blkptr| bp.allocation_birth() <= mark.creation_txg;
        let freed =
            dead.iter().filter(was_there).fold(SpaceDelta::default(), |sum, bp| sum + context.space_of(bp));
        if freed != SpaceDelta::default() {
            add_freed(&mut mark, freed);
            let words = ZapValue::from_words(&mark.to_words());
            ZapEdit::new(&context.edit(), zap).update(name.as_str(), &words).await?;
        }
    }
    Ok(())
}

/// A bookmark in its table.
#[derive(Debug, Clone)]
pub struct StoredMark {
    /// Name without the dataset's.
    pub name: String,
    /// Its content.
    pub mark: Bookmark,
    /// Words stored; three in the oldest form.
    pub words: usize,
}

/// The bookmarks of a table.
///
/// # Errors
/// The table is damaged.
#[boxed]
pub async fn marks(context: &SyncContext, zap: ObjectId) -> Result<Vec<StoredMark>> {
    let view = context.edit().view();
    let mut marks = Vec::new();
    for entry in Zap::open_id(&view, zap).await?.to_vec().await? {
        let words: Vec<u64> = entry.value.words().collect();
        let mark = Bookmark::from_words(&words).map_err(|e| view.format(zap, e))?;
        marks.push(StoredMark { name: entry.name_text(), mark, words: words.len() });
    }
    Ok(marks)
}

/// Whether it has sizes: `ZBM_FLAG_HAS_FBN`.
pub fn has_sizes(mark: &Bookmark) -> bool {
    mark.flags & ZBM_FLAG_HAS_FBN != 0
}

/// Adds freed space.
pub fn add_freed(mark: &mut Bookmark, freed: SpaceDelta) {
    add(&mut mark.referenced_freed_bytes, freed.used);
    add(&mut mark.compressed_freed_bytes, freed.compressed);
    add(&mut mark.uncompressed_freed_bytes, freed.uncompressed);
}

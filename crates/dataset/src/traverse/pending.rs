//! Blocks that no dataset references but that are not free yet.
//!
//! Frees wait in MOS lists: frees deferred to a later txg, destroyed datasets (a tree each, freed from the
//! leaves in the background), and livelists of destroyed clones. The space stays allocated until they are
//! processed, so the blocks count. Only the metadata of destroyed datasets will be read again.
//!
//! Source: OpenZFS `zdb.c` (`dump_block_stats`), `bptree.c`, `dsl_deadlist.c` (`dsl_process_sub_livelist`).

use cenote_format::blkptr::Blkptr;
use cenote_format::dsl::names::pool as names;
use cenote_format::units::ObjectId;
use cenote_object::Result;
use cenote_object::deadlist::Deadlist;

use super::{Met, Tree};
use crate::Mos;

/// Passes every block waiting to be freed to `each`.
///
/// # Errors
/// A list is damaged; `each` has seen the blocks before the damage.
pub async fn pending_blocks(mos: &Mos, mut each: impl FnMut(Blkptr)) -> Result<()> {
    destroyed_datasets(mos, &mut each).await?;
    listed_blocks(mos, each).await
}

/// Like [`pending_blocks`], without the trees of destroyed datasets.
///
/// # Errors
/// A list is damaged; `each` has seen the blocks before the damage.
pub async fn listed_blocks(mos: &Mos, mut each: impl FnMut(Blkptr)) -> Result<()> {
    for list in mos.pending_frees().await? {
        let mut entries = list.entries();
        while let Some(batch) = entries.next_batch().await {
            batch?.into_iter().for_each(|entry| each(entry.bp));
        }
    }
    destroyed_clones(mos, &mut each).await
}

async fn destroyed_datasets(mos: &Mos, each: &mut impl FnMut(Blkptr)) -> Result<()> {
    for entry in mos.pending_destroys().await? {
        let mut met = Vec::new();
        let mut tree = Tree::resume(mos.pool(), &entry, &mut met);
        loop {
            for met in met.drain(..) {
                if let Met::Block { bp, .. } = met {
                    each(bp);
                }
            }
            if !tree.step(&mut met).await {
                break;
            }
        }
    }
    Ok(())
}

/// Blocks that livelists of destroyed clones allocate and do not free.
async fn destroyed_clones(mos: &Mos, each: &mut impl FnMut(Blkptr)) -> Result<()> {
    let Some(lists) = mos.directory_zap(names::DELETED_CLONES).await? else { return Ok(()) };
    for entry in lists.to_vec().await? {
        let Some(id) = entry.value.as_u64() else { continue };
        for list in Deadlist::open(mos.objset(), ObjectId(id)).await?.lists().await? {
            // OpenZFS limits a list to 500,000 entries.
            list.live_blocks().await?.into_iter().for_each(&mut *each);
        }
    }
    Ok(())
}

//! Blocks that no dataset references and that are not free yet.
//!
//! Frees wait in lists in the MOS: those deferred to a later txg, those of destroyed datasets (one tree each,
//! freed from the leaves in the background), and the livelists of destroyed clones. Until they are processed
//! the space is allocated, so the blocks count. Nobody will read them but the metadata of destroyed datasets.
//!
//! Source: OpenZFS `zdb.c` (`dump_block_stats`), `bptree.c`, `dsl_deadlist.c` (`dsl_process_sub_livelist`).

use cenote_format::blkptr::Blkptr;
use cenote_format::dsl::names::pool as names;
use cenote_format::units::ObjectId;
use cenote_object::Result;
use cenote_object::deadlist::Deadlist;

use super::{Met, Tree};
use crate::Mos;

/// Calls `each` with every block that waits to be freed.
///
/// # Errors
/// A list is damaged; the blocks before the damage were passed on.
pub async fn pending_blocks(mos: &Mos, mut each: impl FnMut(Blkptr)) -> Result<()> {
    destroyed_datasets(mos, &mut each).await?;
    listed_blocks(mos, each).await
}

/// The same without the trees of destroyed datasets: blocks that lists alone lead to.
///
/// # Errors
/// A list is damaged; the blocks before the damage were passed on.
pub async fn listed_blocks(mos: &Mos, mut each: impl FnMut(Blkptr)) -> Result<()> {
    for list in mos.pending_frees().await? {
        let mut entries = list.entries();
        while let Some(batch) = entries.next_batch().await {
            batch?.into_iter().for_each(|entry| each(entry.bp));
        }
    }
    destroyed_clones(mos, &mut each).await
}

/// The trees of destroyed datasets.
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

/// Blocks in the livelists of destroyed clones that are allocated and not freed.
async fn destroyed_clones(mos: &Mos, each: &mut impl FnMut(Blkptr)) -> Result<()> {
    let Some(lists) = mos.directory_zap(names::DELETED_CLONES).await? else { return Ok(()) };
    for entry in lists.to_vec().await? {
        let Some(id) = entry.value.as_u64() else { continue };
        for list in Deadlist::open(mos.objset(), ObjectId(id)).await?.lists().await? {
            // OpenZFS limits the length of a list (500,000 entries).
            list.live_blocks().await?.into_iter().for_each(&mut *each);
        }
    }
    Ok(())
}

//! Blocks that are no longer part of any dataset and not yet free.
//!
//! Frees wait in lists in the MOS: those put off to a later group, those of destroyed datasets (a tree each, freed from the leaves in the
//! background), and livelists of destroyed clones. Until they are done the space is allocated, so the blocks count;
//! nobody will read them, so they are not verified.
//!
//! Source: OpenZFS `zdb.c` (`dump_block_stats`), `bptree.c`, `dsl_deadlist.c` (`dsl_process_sub_livelist`).

use cenote_dataset::deadlist::Deadlist;
use cenote_dataset::{Mos, Result};
use cenote_format::blkptr::{Blkptr, Dva};
use cenote_format::dsl::names::pool as names;
use cenote_format::units::{ObjectId, Txg};
use std::collections::HashMap;

use super::tree::{Met, Tree};

/// Calls `each` with every block that waits to be freed.
///
/// # Errors
/// A list is damaged; what came before it was given.
pub(super) async fn blocks(mos: &Mos, mut each: impl FnMut(Blkptr)) -> Result<()> {
    for list in mos.pending_frees().await? {
        let mut entries = list.entries();
        while let Some(batch) = entries.next_batch().await {
            batch?.into_iter().for_each(|entry| each(entry.bp));
        }
    }
    destroyed_datasets(mos, &mut each).await?;
    destroyed_clones(mos, &mut each).await
}

/// Trees of destroyed datasets.
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

/// What the livelists of destroyed clones still hold: allocated and not freed.
async fn destroyed_clones(mos: &Mos, each: &mut impl FnMut(Blkptr)) -> Result<()> {
    let Some(lists) = mos.directory_zap(names::DELETED_CLONES).await? else { return Ok(()) };
    for entry in lists.to_vec().await? {
        let Some(id) = entry.value.as_u64() else { continue };
        for list in Deadlist::open(mos.objset(), ObjectId(id)).await?.lists().await? {
            // A sublist is bounded by OpenZFS (500,000 entries), and whole: a block's free is in the list of its birth.
            let mut left: HashMap<(Option<Dva>, Txg), (i64, Blkptr)> = HashMap::new();
            let mut entries = list.entries();
            while let Some(batch) = entries.next_batch().await {
                for entry in batch? {
                    let key = (entry.bp.dvas().next(), entry.bp.logical_birth());
                    left.entry(key).or_insert((0, entry.bp)).0 += if entry.freed { -1 } else { 1 };
                }
            }
            for (count, bp) in left.into_values() {
                (0..count).for_each(|_| each(bp));
            }
        }
    }
    Ok(())
}

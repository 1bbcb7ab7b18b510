//! Healing reads: what reads found wrong is written again, what they found lost is noted.
//!
//! Idea: a read that meets a bad copy or column goes on with the others, and the pool notes the place. Soon
//! afterwards the block there is verified, like a scrub of single blocks, and what is wrong is written again.
//! It is the block that the tree of the last txg has: freed space is not given away meanwhile, so nothing
//! that was written since is overwritten. A read that was so slow that its block may have been freed has
//! blamed nobody; if it is still there and wrong, its leaves are blamed now.
//!
//! Source: OpenZFS `zio.c` and `vdev_mirror.c`, `vdev_raidz.c` (self-healing reads), which write at once.

use std::collections::BTreeSet;

use cenote_boxed::boxed;
use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::errlog::BlockBookmark;
use cenote_format::units::Txg;
use cenote_object::Result;
use cenote_pool::{IoClass, VerifyItem, Zbookmark};

use crate::pool::errors::note_lost;

/// Sees to what reads have found wrong since the last time.
///
/// # Errors
/// A txg could not be written.
#[boxed]
pub async fn mend(engine: &Engine) -> Result<()> {
    if !engine.pool().has_found_wrong() {
        return Ok(());
    }
    let pool = engine.pool();
    let (bad, suspect) = (pool.take_bad(), pool.take_suspect());
    if !bad.is_empty() || !suspect.is_empty() {
        // Before anything is written to devices, the pool is said to be in use.
        engine.force_sync().await?;
        let mos = engine.mos_to_mend().await?;
        let pool = mos.pool().for_class(IoClass::Scrub);
        // What is bad was counted when it was read.
        pool.without_counting().scrub_many(blocks_at(&mos, bad).await).await;
        pool.scrub_many(blocks_at(&mos, suspect).await).await;
        // What a flush fails to bring shows in the counters.
        drop(pool.flush(Txg(pool.uberblock().txg.0 + 1)).await);
    }
    note_lost(engine).await
}

/// The blocks that are at some places now. Nothing may be there any more.
async fn blocks_at(mos: &Mos, places: BTreeSet<BlockBookmark>) -> Vec<VerifyItem> {
    let mut blocks = Vec::new();
    for at in places {
        let Ok(bp) = mos.pointer_at(&at).await else { continue };
        let level = u8::try_from(at.level).unwrap_or(0);
        let place = Zbookmark { dataset: at.dataset, object: at.object, level, block: at.block };
        blocks.push(VerifyItem { bp, place });
    }
    blocks
}

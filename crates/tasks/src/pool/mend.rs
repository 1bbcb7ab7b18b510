//! Self-healing: rewrites bad copies that reads found, and logs lost blocks.
//!
//! Idea: a read that meets a bad copy or column goes on with the others, and the pool notes the block, which
//! is scrubbed soon after. It is the block in the last txg's tree: freed space is not reused meanwhile, so no
//! newer data are overwritten. A read slow enough that its block may have been freed blames no leaf; if the
//! block is still there and bad, its leaves are blamed now.
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

/// Mends damage found by reads since the last call.
///
/// # Errors
/// A txg could not be written.
#[boxed]
pub async fn mend(engine: &Engine) -> Result<()> {
    if !engine.pool().read_errors().has_found_wrong() {
        return Ok(());
    }
    let pool = engine.pool();
    let (bad, suspect) = (pool.read_errors().take_bad(), pool.read_errors().take_suspect());
    if !bad.is_empty() || !suspect.is_empty() {
        // Labels must mark the pool as in use before any repair write.
        engine.force_sync().await?;
        let mos = engine.mos_to_mend().await?;
        let pool = mos.pool().for_class(IoClass::Scrub);
        // Bad copies were counted when read.
        pool.without_counting().repair().scrub(blocks_at(&mos, bad).await).await;
        pool.repair().scrub(blocks_at(&mos, suspect).await).await;
        // Failed flushes show in the counters.
        drop(pool.flush(Txg(pool.uberblock().txg.0 + 1)).await);
    }
    note_lost(engine).await
}

/// The blocks now at these places; some may be gone.
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

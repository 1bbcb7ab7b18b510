//! Healing reads: what reads found wrong is written again, what they found lost is noted.
//!
//! Idea: a read that meets a bad copy or column goes on with the others, and the pool notes the place. Soon
//! afterwards the block there is verified, like a scrub of single blocks, and what is wrong is written again.
//! It is the block that the tree of the last txg has: freed space is not given away meanwhile, so nothing
//! that was written since is overwritten.
//!
//! Source: OpenZFS `zio.c` and `vdev_mirror.c`, `vdev_raidz.c` (self-healing reads), which write at once.

use cenote_boxed::boxed;
use cenote_engine::Engine;
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
    let bad = engine.pool().take_bad();
    if !bad.is_empty() {
        // Before anything is written to devices, the pool is said to be in use.
        engine.force_sync().await?;
        let kept = engine.keep_freed();
        let mos = engine.mos().await?;
        let mut blocks = Vec::new();
        for at in bad {
            // Nothing may be there any more.
            let Ok(bp) = mos.pointer_at(&at).await else { continue };
            let level = u8::try_from(at.level).unwrap_or(0);
            let place = Zbookmark { dataset: at.dataset, object: at.object, level, block: at.block };
            blocks.push(VerifyItem { bp, place });
        }
        let pool = mos.pool().for_class(IoClass::Scrub).without_counting();
        pool.scrub_many(blocks, &kept).await;
        // What a flush fails to bring shows in the counters.
        drop(pool.flush(Txg(pool.uberblock().txg.0 + 1)).await);
    }
    note_lost(engine).await
}

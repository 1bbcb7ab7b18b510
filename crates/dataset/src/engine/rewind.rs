//! Going back to an older state, for good: to the checkpoint, or to the newest state that is whole.
//!
//! Idea: the state that an older uberblock leads to becomes the newest one, under the next group's number. That is on disk before anything
//! else is written, since what is allocated then may lie where the state that is given up has its blocks.
//!
//! Which state is whole: only those are tried of which nothing can have been written over yet, as what a group frees is kept for the two after it.
//!
//! Intent logs of an older state go on into what came after it, so they are not replayed ([`super::logs`]).
//!
//! Source: OpenZFS `spa.c` (`spa_ld_checkpoint_rewind`, `spa_load_best`, `spa_load_retry`).

use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Txg, VdevId};
use cenote_pool::FoundPool;
use cenote_pool::alloc::TXG_DEFER_SIZE;
use cenote_pool::label::LabelUpdate;
use cenote_runtime::Runtime;

use super::Engine;
use crate::error::{DatasetError, Result};
use crate::import::{ImportOptions, import, import_at};
use crate::mos::Mos;

impl Engine {
    /// Makes the checkpoint the state of a pool whose devices are open for writing, and takes it over. All that came after is lost.
    ///
    /// # Errors
    /// There is no checkpoint; labels can't be written; those of [`Engine::start`].
    pub async fn rewind_to_checkpoint(
        rt: &Runtime,
        found: &FoundPool,
        options: &ImportOptions,
    ) -> Result<Engine> {
        let newest = import(rt, found, options).await?;
        let checkpoint = newest.checkpoint().await?;
        let checkpoint =
            checkpoint.ok_or_else(|| DatasetError::NoCheckpoint { pool: found.name().into() })?;
        Older::open(rt, found, &checkpoint, options).await?.make_newest().await
    }

    /// Takes over a pool whose devices are open for writing in the newest state that is whole, which becomes the newest. Answers the uberblock of that
    /// state, too: what came after it is lost.
    ///
    /// # Errors
    /// No state is whole of those that nothing can have been written over in; labels can't be written; those of [`Engine::start`].
    pub async fn rewind_to_whole(
        rt: &Runtime,
        found: &FoundPool,
        options: &ImportOptions,
    ) -> Result<(Engine, Uberblock)> {
        let newest = newest_txg(found);
        let is_kept = |uberblock: &&Uberblock| uberblock.txg.0 + TXG_DEFER_SIZE as u64 >= newest.0;
        let mut failure = None;
        for uberblock in found.uberblocks.iter().take_while(is_kept) {
            match Older::open_whole(rt, found, uberblock, options).await {
                Ok(older) => return Ok((older.make_newest().await?, *uberblock)),
                Err(error) if error.is_refusal() => return Err(error),
                // The newest state's error is the one to report.
                Err(error) => _ = failure.get_or_insert(error),
            }
        }
        let why = failure.map_or("no device has a valid uberblock".into(), |error| error.to_string());
        Err(DatasetError::NotWhole { pool: found.name().into(), newest, why: why.into() })
    }
}

fn newest_txg(found: &FoundPool) -> Txg {
    found.uberblocks.first().map_or(Txg(0), |newest| newest.txg)
}

/// A state that can be gone back to: all that the engine needs of it can be read.
struct Older {
    /// As it will be on disk.
    uberblock: Uberblock,
    mos: Mos,
    engine: Engine,
    is_newest: bool,
}

impl Older {
    async fn open(
        rt: &Runtime,
        found: &FoundPool,
        uberblock: &Uberblock,
        options: &ImportOptions,
    ) -> Result<Older> {
        let newest = newest_txg(found);
        let is_newest = uberblock.txg == newest;
        let mut uberblock = *uberblock;
        if !is_newest {
            uberblock.txg = Txg(newest.0 + 1);
            uberblock.timestamp_s = rt.unix_time_ns() / 1_000_000_000;
        }
        let mos = import_at(rt, found, &uberblock, options).await?;
        let engine = Engine::load(&mos).await?;
        Ok(Older { uberblock, mos, engine, is_newest })
    }

    /// The same for a state of which all datasets can be opened.
    async fn open_whole(
        rt: &Runtime,
        found: &FoundPool,
        uberblock: &Uberblock,
        options: &ImportOptions,
    ) -> Result<Older> {
        let older = Older::open(rt, found, uberblock, options).await?;
        older.mos.open_all_heads().await?;
        Ok(older)
    }

    async fn make_newest(self) -> Result<Engine> {
        let Older { uberblock, mos, engine, is_newest } = self;
        if !is_newest {
            let mut config = mos.pool_config()?;
            config.txg = uberblock.txg;
            let all: Vec<VdevId> = config.vdev_tree.children.iter().map(|top| VdevId(top.id)).collect();
            let update = LabelUpdate { config: &config, uberblock: &uberblock, dirty: &all };
            mos.pool().write_labels(&update).await?;
        }
        engine.claim_logs(&mos, None).await?;
        Ok(engine)
    }
}

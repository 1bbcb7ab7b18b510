//! Rewinding a pool for good: to the checkpoint, or to the state of an older uberblock.
//!
//! Idea: the older state becomes the newest under the next txg's number. That uberblock goes to disk before
//! anything else is written, since new blocks may overwrite those of the abandoned state.
//!
//! An older state need not be whole: blocks that a txg frees may be reused [`TXG_DEFER_SIZE`] txgs later.
//! States within that distance of the newest have all their blocks ([`OlderState::is_kept`]); an older one is
//! known to be whole only after reading every block.
//!
//! Intent logs of an older state run on into later txgs, so they are not replayed ([`crate::logs`]).
//!
//! Source: OpenZFS `spa.c` (`spa_ld_checkpoint_rewind`, `spa_load_best`, `spa_load_retry`).

use cenote_boxed::boxed;
use cenote_dataset::import::import_at;
use cenote_dataset::{ImportOptions, Mos, import};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Txg, VdevId};
use cenote_object::{DatasetError, Result};
use cenote_pool::FoundPool;
use cenote_pool::alloc::TXG_DEFER_SIZE;
use cenote_pool::label::LabelUpdate;
use cenote_runtime::Runtime;

use crate::engine::Engine;
use crate::open::pool_config;

impl Engine {
    /// Rewinds a pool, whose devices are open for writing, to its checkpoint, losing later changes.
    ///
    /// # Errors
    /// No checkpoint; labels can't be written; those of [`Engine::start`].
    #[boxed]
    pub async fn rewind_to_checkpoint(
        rt: &Runtime,
        found: &FoundPool,
        options: &ImportOptions,
    ) -> Result<Engine> {
        let newest = import(rt, found, options).await?;
        let checkpoint = newest.checkpoint().await?;
        let checkpoint =
            checkpoint.ok_or_else(|| DatasetError::NoCheckpoint { pool: found.name().into() })?;
        Successor::load(rt, found, &checkpoint, options).await?.make_newest().await
    }
}

/// A state to rewind to: all that the engine needs is readable. Nothing is written yet.
pub struct OlderState {
    mos: Mos,
    newest: Txg,
    successor: Successor,
}

impl OlderState {
    /// The state of an uberblock, if all its datasets can be opened.
    ///
    /// # Errors
    /// Unreadable metadata, or the pool can't be changed here.
    #[boxed]
    pub async fn open(
        rt: &Runtime,
        found: &FoundPool,
        uberblock: &Uberblock,
        options: &ImportOptions,
    ) -> Result<OlderState> {
        let mos = import_at(rt, found, uberblock, options).await?;
        mos.open_all_heads().await?;
        let successor = Successor::load(rt, found, uberblock, options).await?;
        Ok(OlderState { mos, newest: newest(found), successor })
    }

    /// Its uberblock.
    pub fn uberblock(&self) -> &Uberblock {
        self.mos.uberblock()
    }

    /// The pool in this state.
    pub fn mos(&self) -> &Mos {
        &self.mos
    }

    /// Whether it is the newest state.
    pub fn is_newest(&self) -> bool {
        self.uberblock().txg == self.newest
    }

    /// Whether all its blocks remain: none freed after it can have been reused.
    pub fn is_kept(&self) -> bool {
        self.uberblock().txg.0.saturating_add(TXG_DEFER_SIZE as u64) >= self.newest.0
    }

    /// Makes it the newest state of a pool whose devices are open for writing, losing later changes.
    ///
    /// # Errors
    /// Labels can't be written.
    #[boxed]
    pub async fn make_newest(self) -> Result<Engine> {
        self.successor.make_newest().await
    }
}

fn newest(found: &FoundPool) -> Txg {
    found.uberblocks.first().map_or(Txg(0), |newest| newest.txg)
}

/// A state under the number of the next txg; the newest keeps its own.
struct Successor {
    uberblock: Uberblock,
    is_new: bool,
    mos: Mos,
    engine: Engine,
}

impl Successor {
    async fn load(
        rt: &Runtime,
        found: &FoundPool,
        uberblock: &Uberblock,
        options: &ImportOptions,
    ) -> Result<Successor> {
        let newest = newest(found);
        let is_new = uberblock.txg != newest;
        let mut uberblock = *uberblock;
        if is_new {
            uberblock.txg = Txg(newest.0 + 1);
            uberblock.timestamp_s = rt.unix_time_ns() / 1_000_000_000;
        }
        let mos = import_at(rt, found, &uberblock, options).await?;
        let engine = Engine::loaded(&mos).await?;
        Ok(Successor { uberblock, is_new, mos, engine })
    }

    async fn make_newest(self) -> Result<Engine> {
        let Successor { uberblock, is_new, mos, engine } = self;
        if is_new {
            let mut config = pool_config(&mos)?;
            config.txg = uberblock.txg;
            let all: Vec<VdevId> = config.vdev_tree.children.iter().map(|top| VdevId(top.id)).collect();
            let update = LabelUpdate { config: &config, uberblock: &uberblock, dirty: &all };
            mos.pool().labels().write(&update).await?;
        }
        engine.claim_logs(&mos, None).await?;
        Ok(engine)
    }
}

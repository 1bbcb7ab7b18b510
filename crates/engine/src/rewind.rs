//! Going back to an older state, for good: to the checkpoint, or to what an older uberblock leads to.
//!
//! Idea: the state that an older uberblock leads to becomes the newest one, under the next txg's number.
//! That is on disk before anything else is written, since what is allocated then may lie where the state that
//! is given up has its blocks.
//!
//! An older state need not be whole: what a txg frees may be allocated again [`TXG_DEFER_SIZE`] txgs
//! later. So states within that distance of the newest have all their blocks ([`OlderState::is_kept`]); of
//! those before, every block has to be read to know.
//!
//! Intent logs of an older state go on into what came after it, so they are not replayed ([`crate::logs`]).
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
    /// Makes the checkpoint the state of a pool whose devices are open for writing, and takes it over. All
    /// that came after is lost.
    ///
    /// # Errors
    /// There is no checkpoint; labels can't be written; those of [`Engine::start`].
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

/// A state that a pool can be taken back to: all that the engine needs of it can be read. Nothing is written
/// yet.
pub struct OlderState {
    /// The pool in this state, as it was.
    mos: Mos,
    newest: Txg,
    successor: Successor,
}

impl OlderState {
    /// The state that an uberblock leads to, if all its datasets can be opened. The newest one counts, too.
    ///
    /// # Errors
    /// What can't be read, or the pool can't be changed here.
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

    /// The uberblock that leads to it.
    pub fn uberblock(&self) -> &Uberblock {
        self.mos.uberblock()
    }

    /// The pool in this state.
    pub fn mos(&self) -> &Mos {
        &self.mos
    }

    /// It is the newest: nothing is lost.
    pub fn is_newest(&self) -> bool {
        self.uberblock().txg == self.newest
    }

    /// None of its blocks can have been written over, since what was freed after it was not yet allocated
    /// again.
    pub fn is_kept(&self) -> bool {
        self.uberblock().txg.0.saturating_add(TXG_DEFER_SIZE as u64) >= self.newest.0
    }

    /// Makes it the newest state of a pool whose devices are open for writing, and takes the pool over. What
    /// came after it is lost.
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

/// A state under the number of the txg after the newest; the newest itself stays what it is.
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
        let engine = Engine::load(&mos).await?;
        Ok(Successor { uberblock, is_new, mos, engine })
    }

    async fn make_newest(self) -> Result<Engine> {
        let Successor { uberblock, is_new, mos, engine } = self;
        if is_new {
            let mut config = pool_config(&mos)?;
            config.txg = uberblock.txg;
            let all: Vec<VdevId> = config.vdev_tree.children.iter().map(|top| VdevId(top.id)).collect();
            let update = LabelUpdate { config: &config, uberblock: &uberblock, dirty: &all };
            mos.pool().write_labels(&update).await?;
        }
        engine.claim_logs(&mos, None).await?;
        Ok(engine)
    }
}

//! Going back to the checkpoint, for good.
//!
//! Idea: the state that the checkpoint's uberblock leads to becomes the newest one, under the next group's number. That is on disk before anything
//! else is written, since what is allocated then may lie where the state that is given up has its blocks.
//!
//! Intent logs of that state go on into what came after it, so they are not replayed ([`super::logs`]).
//!
//! Source: OpenZFS `spa.c` (`spa_ld_checkpoint_rewind`).

use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Txg, VdevId};
use cenote_pool::FoundPool;
use cenote_pool::label::LabelUpdate;
use cenote_runtime::Runtime;

use super::{Engine, writable};
use crate::error::{DatasetError, Result};
use crate::import::{ImportOptions, import, import_at};

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
        let uberblock = Uberblock {
            txg: Txg(newest.uberblock().txg.0 + 1),
            timestamp_s: rt.unix_time_ns() / 1_000_000_000,
            ..checkpoint
        };
        let mos = import_at(rt, found, &uberblock, options).await?;
        writable::check(&mos).await?;
        let mut config = mos.pool_config()?;
        config.txg = uberblock.txg;
        let all: Vec<VdevId> = config.vdev_tree.children.iter().map(|top| VdevId(top.id)).collect();
        let update = LabelUpdate { config: &config, uberblock: &uberblock, dirty: &all };
        mos.pool().write_labels(&update).await?;
        Engine::start(&mos).await
    }
}

//! Automatic trim (`autotrim=on`): discards freed space in the background.
//!
//! ```text
//!   free --two txgs--> allocatable, untrimmed --a metaslab's turn--> borrowed --> leaves discard --> free
//!                                      '-- allocated again: nothing to trim
//! ```
//!
//! Idea: the allocator records recently freed space. Each metaslab has its turn every `zfs_trim_txg_batch`
//! rounds, so small frees can merge in between. Skipped are ranges still shorter than
//! `zfs_trim_extent_bytes_min` on a leaf, and leaves under a replacing or spare vdev. None of this is on
//! disk: space freed before an export is left to `zpool trim`.
//!
//! A round takes `zfs_txg_timeout`, the interval of OpenZFS's txgs. An idle pool here writes none, so a round
//! forces two, lest the last frees wait forever.
//!
//! Locking: one runner per pool. It may be dropped at any await.
//!
//! Source: OpenZFS `vdev_trim.c` (`vdev_autotrim_thread`), `metaslab.c` (`metaslab_sync_done`).

use std::collections::BTreeSet;
use std::time::Duration;

use cenote_boxed::boxed;
use cenote_engine::{Engine, WeakEngine};
use cenote_format::label::VdevConfig;
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_object::Result;
use cenote_pool::alloc::{BorrowedSpace, TXG_DEFER_SIZE};
use cenote_pool::{Stuck, Treatment};

/// `zfs_txg_timeout`.
const ROUND: Duration = Duration::from_secs(5);
/// Space withheld from allocation at a time.
const BORROWED_BYTES: u64 = 16 << 20;

/// Trims freed space while `autotrim` is on and the engine lives.
pub async fn keep_autotrimming(engine: WeakEngine) {
    let Ok((runtime, mut orders)) =
        engine.upgrade().map(|it| (it.runtime().clone(), it.background().passes.orders()))
    else {
        return;
    };
    let mut rounds = Rounds::default();
    loop {
        let Ok(engine) = engine.upgrade() else { return };
        orders.catch_up();
        let is_on = match follow(&engine).await {
            Ok(is_on) => is_on,
            Err(_) => engine.allocator().trims(),
        };
        if is_on {
            // Failed trims are retried after more frees.
            rounds.round(&engine).await.ok();
        }
        drop(engine);
        let ended = match is_on {
            true => runtime.timeout(ROUND, orders.changed()).await.is_ok_and(|changed| changed.is_err()),
            false => orders.changed().await.is_err(),
        };
        if ended {
            return;
        }
    }
}

/// Applies the `autotrim` property to the allocator; returns it.
///
/// # Errors
/// Properties can't be read.
#[boxed]
async fn follow(engine: &Engine) -> Result<bool> {
    let properties = engine.mos().await?.pool_properties().await?;
    let is_on = properties.iter().any(|entry| entry.name == "autotrim" && entry.value.as_u64() == Some(1));
    engine.allocator().set_trims(is_on);
    Ok(is_on)
}

#[derive(Default)]
struct Rounds {
    /// Selects the next metaslabs.
    shift: u64,
    /// The last txg seen, and txgs since that only autotrim needed.
    seen: Txg,
    forced: usize,
    /// Leaves whose devices cannot discard.
    unable: BTreeSet<Guid>,
}

impl Rounds {
    async fn round(&mut self, engine: &Engine) -> Result<()> {
        self.let_go_of_deferred(engine).await?;
        let batch = engine.background().settings().trim_batch();
        let pool = engine.pool();
        let tops: Vec<VdevConfig> = pool.tree().vdevs().tops().cloned().collect();
        for top in tops.iter().filter(|top| !top.removing && !top.raidz_expanding) {
            let count = top.asize_bytes.checked_shr(top.metaslab_shift).unwrap_or(0);
            for index in (self.shift % batch..count).step_by(usize::try_from(batch).unwrap_or(usize::MAX)) {
                if !self.metaslab(engine, top, index).await {
                    return Ok(());
                }
            }
        }
        self.shift += 1;
        Ok(())
    }

    async fn let_go_of_deferred(&mut self, engine: &Engine) -> Result<()> {
        if engine.pool().uberblock().txg != self.seen {
            self.forced = 0;
        } else if self.forced < TXG_DEFER_SIZE {
            engine.force_sync().await?;
            self.forced += 1;
        }
        self.seen = engine.pool().uberblock().txg;
        Ok(())
    }

    /// Returns `false` if autotrim was switched off meanwhile.
    async fn metaslab(&mut self, engine: &Engine, top: &VdevConfig, index: u64) -> bool {
        loop {
            if !engine.allocator().trims() {
                return false;
            }
            let borrowed = engine.allocator().borrow_untrimmed(VdevId(top.id), index, BORROWED_BYTES);
            if borrowed.ranges().is_empty() {
                return true;
            }
            for range in borrowed.ranges() {
                self.range(engine, top, *range, &borrowed).await;
            }
        }
    }

    async fn range(&mut self, engine: &Engine, top: &VdevConfig, range: (u64, u64), space: &BorrowedSpace) {
        let (pool, id) = (engine.pool(), VdevId(top.id));
        let leaves = if top.children.is_empty() { std::slice::from_ref(top) } else { &top.children[..] };
        for leaf in leaves.iter().filter(|leaf| leaf.children.is_empty()) {
            if self.unable.contains(&leaf.guid) || pool.by_range().top_with_free_space(leaf.guid) != Some(id)
            {
                continue;
            }
            for on_leaf in pool.by_range().ranges_on(id, leaf.guid, range) {
                if !engine.background().settings().is_worth_trimming(on_leaf.1 - on_leaf.0) {
                    continue;
                }
                let trimmed = pool.by_range().pass_over(leaf.guid, on_leaf, Treatment::Discard, space).await;
                if let Err(Stuck::Unsupported) = trimmed {
                    self.unable.insert(leaf.guid);
                }
            }
        }
    }
}

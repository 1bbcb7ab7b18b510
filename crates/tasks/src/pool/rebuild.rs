//! Rebuilds (sequential resilvers): a device that joined a mirror or dRAID is brought what is in use there,
//! in the order of the disk. Others go on reading and writing.
//!
//! ```text
//!   begin     a device joins; its vdev says that it is being rebuilt; a scrub ends       (state)
//!   slice     some seconds of it: ranges that the space maps of the last txg have
//!   note      the vdev says how far that has come                                       (state)
//!   end       its DTL shrinks, the device that it replaces leaves, and a scrub begins   (state)
//!   cancel    nothing lacks anything any more: the device left
//! ```
//!
//! Idea: no block pointer is looked at ([`cenote_pool::Pool::rebuild_many`]), so reads are long and in
//! order, and the pool is redundant again sooner than after a resilver. What was copied is only known to be
//! right after the scrub. How far it has come is with the vdev, in OpenZFS's form: it goes on after an
//! export or a power cut, here or in OpenZFS, and goes on here if OpenZFS began it.
//!
//! Only what is allocated on disk is copied, while nothing that is freed is given away: so nobody writes
//! there. What is born meanwhile is written to all devices. A block of an intent log may be written into
//! space that was allocated for it earlier; if it is copied at that moment, the copy is wrong, and found by
//! its checksum.
//!
//! While a vdev is being rebuilt, no resilver or scrub runs. If the device fails on the way, a resilver
//! follows.
//!
//! Memory: ranges of a metaslab, and the pieces under way.
//!
//! Locking: one runner a pool ([`Background::turn`]). It may be dropped at any await: the pool still
//! says what is left.
//!
//! Source: OpenZFS `vdev_rebuild.c`, `vdev.c` (`vdev_dtl_should_excise`).

pub(crate) mod state;

use std::collections::BTreeSet;
use std::time::Duration;

use cenote_boxed::boxed;
use cenote_dataset::Mos;
use cenote_engine::{Engine, WeakEngine};
use cenote_format::label::VdevConfig;
use cenote_format::scan::RebuildPhys;
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_object::{DatasetError, Result};
use cenote_pool::{Healed, IoClass, Pool};
use futures::future::join_all;
use tokio::sync::watch;

use crate::pool::scan::{ScanProgress, sync_through};
use state::Noted;

pub(crate) use state::{begin, refuse_sequential, refuse_while_rebuilding};

/// Between two looks whether the slice is over.
const BATCH_BYTES: u64 = 16 << 20;

/// How a device that joins is brought what it lacks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Resilver {
    /// Block by block, each verified ([`run_scan`](crate::run_scan)).
    #[default]
    Healing,
    /// In the order of the disk, verified later ([`run_rebuild`]).
    Sequential,
}

/// Goes on with all rebuilds that the pool says are in progress until they are done.
///
/// # Errors
/// The pool's metadata can't be read, or a txg not be written.
#[boxed]
pub async fn run_rebuild(engine: &Engine, progress: &(dyn Fn(ScanProgress) + Send + Sync)) -> Result<()> {
    let _alone = engine.background().rebuilds.turn().await;
    let mut orders = engine.background().rebuilds.orders();
    loop {
        orders.mark_unchanged();
        let active = active(&engine.mos().await?).await?;
        if active.is_empty() || engine.background().settings().is_suspended() {
            return Ok(());
        }
        let mut slices = Vec::new();
        for (top, state) in active {
            match is_needed(&engine.pool(), &top) {
                true => slices.push((top, state)),
                false => {
                    engine
                        .run(move |context| Box::pin(async move { state::cancel(context, &top).await }))
                        .await?;
                    engine.background().scans.order();
                }
            }
        }
        // From then on the tree has all that the devices lack, and nothing new is born that they do.
        for (_, state) in &slices {
            sync_through(engine, Txg(state.max_txg.0.saturating_sub(1))).await?;
        }
        let walk = engine.background().walk_turn().await;
        let slices = slices.into_iter().map(|(top, state)| slice(engine, top, state, orders.clone()));
        let done = join_all(slices).await;
        drop(walk);
        for one in done {
            let (top, noted) = one?;
            let noted =
                engine.run(move |context| Box::pin(async move { state::note(context, &top, noted).await }));
            if let Some(now) = noted.await? {
                progress(now);
            }
            // A device may leave, and a scrub has to follow.
            engine.background().scans.order();
        }
    }
}

/// Rebuilds whenever there is something to rebuild, as long as the engine lives.
pub async fn keep_rebuilding(engine: WeakEngine, failed: impl Fn(DatasetError)) {
    let Ok(mut orders) = engine.upgrade().map(|engine| engine.background().rebuilds.orders()) else { return };
    loop {
        orders.mark_unchanged();
        let Ok(engine) = engine.upgrade() else { return };
        if let Err(error) = run_rebuild(&engine, &|_| {}).await {
            failed(error);
        }
        drop(engine);
        if orders.changed().await.is_err() {
            return;
        }
    }
}

/// The top-level vdevs that are being rebuilt.
///
/// # Errors
/// The pool's metadata can't be read.
#[boxed]
pub async fn active(mos: &Mos) -> Result<Vec<(VdevConfig, RebuildPhys)>> {
    let mut found = Vec::new();
    for top in mos.pool_config().vdevs.iter().filter(|top| top.kind.holds_data()) {
        let Some(zap) = mos.vdev_zap(top).await? else { continue };
        found.extend(state::of(&zap).await?.filter(state::is_active).map(|state| (top.clone(), state)));
    }
    Ok(found)
}

/// Whether a device in use of the vdev lacks anything.
fn is_needed(pool: &Pool, top: &VdevConfig) -> bool {
    let behind = pool.behind();
    pool.can_rebuild(VdevId(top.id)) && top.leaves().any(|leaf| behind.contains_key(&leaf.guid))
}

/// Rebuilds a vdev for a while, from where it says that it has come.
async fn slice(
    engine: &Engine,
    top: VdevConfig,
    state: RebuildPhys,
    orders: watch::Receiver<u64>,
) -> Result<(VdevConfig, Noted)> {
    let mos = engine.mos_to_mend().await?;
    let mut slice = Slice {
        pool: mos.pool().for_class(IoClass::Rebuild),
        segment_bytes: engine.background().settings().rebuild_segment_bytes(),
        length: engine.background().settings().slice(true),
        at: state.last_offset_bytes,
        orders,
        mos,
        top: &top,
        done_bytes: 0,
        healed: Healed::default(),
    };
    let began = engine.runtime().now();
    let is_last = slice.run().await?;
    // What a flush fails to bring shows in the counters.
    let next_txg = Txg(slice.pool.uberblock().txg.0 + 1);
    drop(slice.pool.flush(next_txg).await);
    let joining: BTreeSet<Guid> = state::joining(&top).collect();
    let failed = slice.healed.unhealed.intersection(&joining).count() as u64;
    let noted = Noted {
        of: state,
        offset_bytes: slice.at,
        done_bytes: slice.done_bytes,
        written_bytes: slice.healed.written_bytes,
        took: engine.runtime().now().since(began),
        errors: slice.healed.lost_copies + failed,
        is_last,
    };
    Ok((top, noted))
}

struct Slice<'a> {
    mos: Mos,
    pool: Pool,
    /// What is in use is not given away before it has been brought.
    top: &'a VdevConfig,
    orders: watch::Receiver<u64>,
    length: Duration,
    segment_bytes: u64,
    /// All before it is done.
    at: u64,
    done_bytes: u64,
    healed: Healed,
}

impl Slice<'_> {
    /// Answers whether it has come to the end of the vdev.
    async fn run(&mut self) -> Result<bool> {
        let until = self.pool.runtime().now() + self.length;
        let log = self.mos.log_spacemaps().await?;
        let logged = log.by_metaslab(self.top);
        for place in self.mos.metaslab_places(self.top).await? {
            let end = place.start_bytes + place.size_bytes;
            if end <= self.at {
                continue;
            }
            let metaslab = self.mos.metaslab(self.top, place, &logged).await?;
            let in_use = metaslab.allocated.iter().map(|(start, end)| (start.max(self.at), end));
            let in_use: Vec<(u64, u64)> = in_use.filter(|(start, end)| start < end).collect();
            let (pool, vdev) = (self.pool.clone(), VdevId(self.top.id));
            let pieces =
                in_use.into_iter().flat_map(|range| pool.rebuild_pieces(vdev, range, self.segment_bytes));
            let mut pieces = pieces.peekable();
            while pieces.peek().is_some() {
                let (mut batch, mut bytes) = (Vec::new(), 0);
                while let Some(piece) = pieces.next_if(|_| bytes < BATCH_BYTES) {
                    bytes += piece.1 - piece.0;
                    batch.push(piece);
                }
                let batch_end = batch.last().map_or(self.at, |last| last.1);
                self.healed.add(pool.rebuild_many(vdev, batch).await);
                (self.at, self.done_bytes) = (batch_end, self.done_bytes + bytes);
                if pool.runtime().now() >= until || self.orders.has_changed().unwrap_or(true) {
                    return Ok(false);
                }
            }
            self.at = end;
        }
        Ok(true)
    }
}

//! Rebuilds (sequential resilvers): copy a mirror's or dRAID's allocated space to a new device in disk order,
//! while the pool stays in use.
//!
//! ```text
//!   begin     a device joins; its vdev records a rebuild; a scrub ends                  (state)
//!   slice     some seconds of it: ranges in the space maps of the last txg
//!   note      records the vdev's progress                                               (state)
//!   end       its DTL shrinks, the device it replaces leaves, and a scrub begins        (state)
//!   cancel    no device lacks data any more: the new one has left
//! ```
//!
//! Idea: a rebuild reads no block pointers ([`cenote_pool::ByRange::rebuild`]). Its reads are long and
//! sequential, so redundancy is back sooner than after a resilver, but only the scrub verifies the copies.
//! Progress is recorded with the vdev, in OpenZFS's form: a rebuild begun here or in OpenZFS continues in
//! either after an export or power cut.
//!
//! It copies ranges allocated on disk. Frees are held back meanwhile, so nothing is overwritten there, and
//! new blocks are written to all devices. One exception: an intent log block may be written into space
//! allocated earlier. A copy made at that moment is wrong, and its checksum shows it.
//!
//! No resilver or scrub runs during a rebuild. If the device fails meanwhile, a resilver follows.
//!
//! Memory: a metaslab's ranges, and the pieces in flight.
//!
//! Locking: one runner per pool ([`Background::turn`]). It may be dropped at any await: the state on disk
//! says where to continue.
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
use cenote_runtime::Watcher;
use futures::future::join_all;

use crate::pool::scan::{ScanProgress, sync_through};
use state::Noted;

pub(crate) use state::{begin, refuse_sequential, refuse_while_rebuilding};

/// Bytes between checks for the slice's end.
const BATCH_BYTES: u64 = 16 << 20;

/// How to fill a joining device.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Resilver {
    /// Block by block, verified ([`run_scan`](crate::run_scan)).
    #[default]
    Healing,
    /// In disk order, verified later ([`run_rebuild`]).
    Sequential,
}

/// Runs all recorded rebuilds to their ends.
///
/// # Errors
/// The pool's metadata can't be read, or a txg can't be written.
#[boxed]
pub async fn run_rebuild(engine: &Engine, progress: &(dyn Fn(ScanProgress) + Send + Sync)) -> Result<()> {
    let _alone = engine.background().rebuilds.turn().await;
    let mut orders = engine.background().rebuilds.orders();
    loop {
        orders.catch_up();
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
                        .run_on_pool(move |context| {
                            Box::pin(async move { state::cancel(context, &top).await })
                        })
                        .await?;
                    engine.background().scans.order();
                }
            }
        }
        // After these txgs the tree has all blocks the devices lack, and no new ones are born that they lack.
        for (_, state) in &slices {
            sync_through(engine, Txg(state.max_txg.0.saturating_sub(1))).await?;
        }
        let walk = engine.background().walk_turn().await;
        let slices = slices.into_iter().map(|(top, state)| slice(engine, top, state, orders.clone()));
        let done = join_all(slices).await;
        drop(walk);
        for one in done {
            let (top, noted) = one?;
            let noted = engine
                .run_on_pool(move |context| Box::pin(async move { state::note(context, &top, noted).await }));
            if let Some(now) = noted.await? {
                progress(now);
            }
            // A device may leave, and a scrub has to follow.
            engine.background().scans.order();
        }
    }
}

/// Runs rebuilds as needed, while the engine lives.
pub async fn keep_rebuilding(engine: WeakEngine, failed: impl Fn(DatasetError)) {
    let Ok(mut orders) = engine.upgrade().map(|engine| engine.background().rebuilds.orders()) else { return };
    loop {
        orders.catch_up();
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

/// Top-level vdevs being rebuilt.
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

/// Whether a device in use of the vdev lacks data.
fn is_needed(pool: &Pool, top: &VdevConfig) -> bool {
    let behind = pool.lacking().behind();
    pool.by_range().can_rebuild(VdevId(top.id)) && top.leaves().any(|leaf| behind.contains_key(&leaf.guid))
}

/// Rebuilds a vdev for a while, from its recorded progress.
async fn slice(
    engine: &Engine,
    top: VdevConfig,
    state: RebuildPhys,
    orders: Watcher<u64>,
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
    // Failed flushes show in the counters.
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
    /// Also holds back frees during the slice.
    top: &'a VdevConfig,
    orders: Watcher<u64>,
    length: Duration,
    segment_bytes: u64,
    /// Everything before this offset is copied.
    at: u64,
    done_bytes: u64,
    healed: Healed,
}

impl Slice<'_> {
    /// Returns whether it reached the vdev's end.
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
            let pieces = |range| pool.by_range().rebuild_pieces(vdev, range, self.segment_bytes);
            let pieces = in_use.into_iter().flat_map(pieces);
            let mut pieces = pieces.peekable();
            while pieces.peek().is_some() {
                let (mut batch, mut bytes) = (Vec::new(), 0);
                while let Some(piece) = pieces.next_if(|_| bytes < BATCH_BYTES) {
                    bytes += piece.1 - piece.0;
                    batch.push(piece);
                }
                let batch_end = batch.last().map_or(self.at, |last| last.1);
                self.healed.add(pool.by_range().rebuild(vdev, batch).await);
                (self.at, self.done_bytes) = (batch_end, self.done_bytes + bytes);
                if pool.runtime().now() >= until || self.orders.has_news() {
                    return Ok(false);
                }
            }
            self.at = end;
        }
        Ok(true)
    }
}

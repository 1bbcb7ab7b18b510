//! Removes a top-level vdev with data: `zpool remove`.
//!
//! ```text
//!   begin    allocation there stops; logs end; the mapping is empty                    (begin)
//!   slice    copies allocated ranges, in offset order, to other vdevs in the open
//!            txg; when that is written, the mapping grows                              (copy)
//!   end      all is copied: the vdev becomes `indirect`, its mapping; devices leave    (end)
//!   cancel   the copies are freed                                                      (end)
//!   later    the mapping is condensed when much of it is obsolete                      (condense)
//! ```
//!
//! Idea: until the end, blocks are read at their old place, and each copied range is allocated twice. The
//! mapping records the progress: a removal begun here or in OpenZFS continues in either after an export or
//! power cut. A block freed meanwhile is freed on the vdev, and at its copy if the mapping has it
//! (pool/alloc/moved). If a block is freed while being copied, its copy is freed when the mapping grows.
//!
//! If a device can't be read, or no other one has room, the removal is canceled.
//!
//! Locking: one runner per pool ([`Background::turn`]). It may be dropped at any await: a slice in progress
//! runs to its end, and the state on disk says where to continue.
//!
//! Source: OpenZFS `vdev_removal.c`.

mod begin;
mod condense;
mod copy;
mod end;

use std::time::Duration;

use cenote_boxed::boxed;
use cenote_dataset::Mos;
use cenote_engine::{Engine, SyncContext, WeakEngine};
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::indirect::VDEV_INDIRECT_MAPPING_SIZE_V0;
use cenote_format::label::VdevConfig;
use cenote_format::scan::{NO_VDEV, RemovingPhys, ScanState};
use cenote_format::units::VdevId;
use cenote_format::words::Phys;
use cenote_object::{DatasetError, Result, ZapEdit, ZapValue};
use cenote_pool::alloc::TXG_DEFER_SIZE;

use copy::Slice;

pub use begin::start_removal;
pub use end::cancel_removal;

const DEVICE_REMOVAL: &str = "device_removal";
const OBSOLETE_COUNTS: &str = "obsolete_counts";

/// Interval at which the daemon checks whether a mapping is worth condensing.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Progress of a removal.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RemovalProgress {
    /// Bytes copied, or freed meanwhile.
    pub done_bytes: u64,
    /// Bytes allocated there at the start.
    pub total_bytes: u64,
}

/// The outcome of running removals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removed {
    /// Complete, or none in progress.
    Done,
    /// Paused by `zfs_removal_suspend_progress`.
    Suspended,
    /// Canceled after a failed copy.
    Canceled {
        /// The reason.
        why: String,
    },
}

/// Runs the pool's removal to its end, then condenses largely obsolete mappings.
///
/// # Errors
/// The pool's metadata can't be read, or a txg can't be written.
#[boxed]
pub async fn run_removal(
    engine: &Engine,
    progress: &(dyn Fn(RemovalProgress) + Send + Sync),
) -> Result<Removed> {
    let _alone = engine.background().removals.turn().await;
    let (mut is_begun, mut copied) = (false, None);
    loop {
        let Some(removing) = in_progress(&engine.mos().await?).await? else {
            condense::condense(engine).await?;
            return Ok(Removed::Done);
        };
        let (done_bytes, total_bytes) = (removing.copied_bytes, removing.to_copy_bytes);
        progress(RemovalProgress { done_bytes, total_bytes });
        if engine.background().settings().is_removal_suspended() {
            return Ok(Removed::Suspended);
        }
        if !std::mem::replace(&mut is_begun, true) {
            // From here on, writes reach the devices.
            engine.force_sync().await?;
        }
        let vdev = removing.removing_vdev;
        match engine.to_end_held(move |engine, hold| copy::slice(engine, hold, vdev)).await? {
            Slice::Copied => copied = None,
            Slice::Gone => {
                // Its end may not be on disk yet.
                engine.force_sync().await?;
                let mos = engine.mos().await?;
                if in_progress(&mos).await?.is_some_and(|now| now.start_time_s == removing.start_time_s) {
                    let why = "a vdev is being removed that is none of the pool";
                    return Err(mos.objset().damaged(DMU_POOL_DIRECTORY_OBJECT, why));
                }
            }
            Slice::NothingLeft => match copied {
                Some(copied) => engine.to_end(move |engine| end::finish(engine, vdev, copied)).await?,
                None => {
                    // By then no reader uses blocks freed before they were copied.
                    for _ in 0..TXG_DEFER_SIZE {
                        engine.force_sync().await?;
                    }
                    copied = Some(engine.pool().uberblock().txg);
                }
            },
            Slice::Failed(error) => {
                cancel_removal(engine).await?;
                return Ok(Removed::Canceled { why: error.to_string() });
            }
        }
    }
}

/// Runs removals and condenses mappings as needed, while the engine lives.
pub async fn keep_removing(engine: WeakEngine, failed: impl Fn(DatasetError)) {
    let begun =
        engine.upgrade().map(|engine| (engine.runtime().clone(), engine.background().removals.orders()));
    let Ok((runtime, mut orders)) = begun else { return };
    loop {
        orders.catch_up();
        let Ok(engine) = engine.upgrade() else { return };
        if let Err(error) = run_removal(&engine, &|_| {}).await {
            failed(error);
        }
        drop(engine);
        if let Ok(Err(_)) = runtime.timeout(LOOK_INTERVAL, orders.changed()).await {
            return;
        }
    }
}

/// The vdev being removed.
///
/// # Errors
/// The pool's metadata can't be read.
#[boxed]
pub async fn removing_vdev(mos: &Mos) -> Result<Option<VdevId>> {
    Ok(in_progress(mos).await?.map(|removing| removing.removing_vdev))
}

/// Approximate memory, in bytes, of a vdev's mapping after its removal.
///
/// # Errors
/// A space map is damaged.
#[boxed]
pub async fn mapping_bytes_after(mos: &Mos, vdev: VdevId) -> Result<u64> {
    let config = mos.pool_config();
    let Some(top) = config.vdevs.get(vdev.0 as usize) else { return Ok(0) };
    let (mut entries, mut copied_bytes) = (1, 0);
    for metaslab in mos.metaslabs(top, &mos.log_spacemaps().await?).await? {
        let (start, end) =
            (metaslab.place.start_bytes, metaslab.place.start_bytes + metaslab.place.size_bytes);
        copied_bytes += metaslab.allocated.total_bytes();
        // A free gap ends an entry, unless short enough to be copied.
        for (from, to) in metaslab.allocated.complement(start, end).iter() {
            match to - from {
                gap if gap < copy::MAX_SPAN_BYTES / 2 => copied_bytes += gap,
                _ => entries += 1,
            }
        }
    }
    entries += copied_bytes / (16 << 20);
    Ok(entries * VDEV_INDIRECT_MAPPING_SIZE_V0 as u64)
}

/// The removal in progress.
async fn in_progress(mos: &Mos) -> Result<Option<RemovingPhys>> {
    let found = mos.directory()?.lookup(names::REMOVING.as_bytes()).await?;
    let Some(words) = found.map(|value| value.words().collect::<Vec<u64>>()) else { return Ok(None) };
    let removing = RemovingPhys::from_words(&words);
    let removing = removing.map_err(|error| mos.objset().format(DMU_POOL_DIRECTORY_OBJECT, error))?;
    Ok(Some(removing).filter(|removing| ScanState::from(removing.state) == ScanState::Scanning))
}

/// The recorded state of the last removal.
async fn state(context: &SyncContext) -> Result<RemovingPhys> {
    let found = ZapEdit::new(&context.edit(), DMU_POOL_DIRECTORY_OBJECT).get(names::REMOVING).await?;
    let Some(value) = found else {
        return Ok(RemovingPhys {
            removing_vdev: NO_VDEV,
            prev_indirect_vdev: NO_VDEV,
            ..RemovingPhys::zeroed()
        });
    };
    let words: Vec<u64> = value.words().collect();
    RemovingPhys::from_words(&words)
        .map_err(|error| context.edit().view().format(DMU_POOL_DIRECTORY_OBJECT, error))
}

async fn set_state(context: &SyncContext, state: &RemovingPhys) -> Result<()> {
    let words = ZapValue::from_words(&state.to_words());
    ZapEdit::new(&context.edit(), DMU_POOL_DIRECTORY_OBJECT).update(names::REMOVING, &words).await
}

/// A vdev, if being removed.
fn removing_top(context: &SyncContext, vdev: VdevId) -> Option<VdevConfig> {
    let config = context.config();
    let tops = &config.vdev_tree.children;
    tops.iter().find(|top| VdevId(top.id) == vdev && top.removing && top.indirect_object.0 != 0).cloned()
}

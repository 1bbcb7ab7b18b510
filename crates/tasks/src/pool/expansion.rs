//! Expands a RAID-Z by a disk: `zpool attach POOL raidz1-0 DISK`.
//!
//! ```text
//!   begin     adds the disk as a child; blocks keep their width                            (begin)
//!   scratch   copies the first rows by way of the boot areas: one task
//!   slice     copies used ranges, in offset order, to their places in wider rows, within the
//!             open txg; a task of that txg records the progress                            (slice)
//!   end       all is copied: new blocks are wider, the vdev is larger; a scrub follows     (end)
//! ```
//!
//! Idea: the uberblock holds the progress, and so the place of every block (pool/vdev/reflow). A txg must not
//! overwrite anything that the uberblock on disk still reads, so a slice covers only part of the distance
//! already reflowed, and a txg ends it. An expansion begun here or in OpenZFS continues in either after an
//! export or power cut. It cannot be undone.
//!
//! Copies are not verified. If a disk of the vdev is missing or incomplete, the expansion waits for its
//! resilver.
//!
//! Locking: one runner per pool ([`Background::turn`]). It may be dropped at any await: a slice in progress
//! runs to its end.
//!
//! Source: OpenZFS `vdev_raidz.c` (`spa_raidz_expand_thread`).

mod begin;
mod end;
mod slice;

use std::time::Duration;

use cenote_boxed::boxed;
use cenote_dataset::Mos;
use cenote_engine::{Engine, SyncContext, WeakEngine};
use cenote_format::dsl::names::vdev_zap;
use cenote_format::label::{VdevConfig, VdevKind};
use cenote_format::scan::DSS_SCANNING;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::VdevId;
use cenote_object::{DatasetError, Result, ZapEdit};
use cenote_pool::{Pool, reflow_end};

use slice::Slice;

pub use begin::attach_to_raidz;

/// The feature counts expansions.
const RAIDZ_EXPANSION: &str = "raidz_expansion";

/// How often the daemon retries a waiting expansion.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Progress of an expansion.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ExpansionProgress {
    /// Bytes copied.
    pub done_bytes: u64,
    /// Bytes allocated on the vdev now.
    pub total_bytes: u64,
}

/// The outcome of running an expansion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expanded {
    /// Complete, or none in progress.
    Done,
    /// Paused at `raidz_expand_max_reflow_bytes`.
    Suspended,
    /// Waits until all devices of the vdev are complete.
    Waits {
        /// The reason.
        why: String,
    },
}

/// Runs the pool's expansion until it is complete or has to wait.
///
/// # Errors
/// The pool's metadata can't be read, or a txg can't be written.
#[boxed]
pub async fn run_expansion(
    engine: &Engine,
    progress: &(dyn Fn(ExpansionProgress) + Send + Sync),
) -> Result<Expanded> {
    let _alone = engine.background().expansions.turn().await;
    let mut is_begun = false;
    loop {
        let pool = engine.pool();
        let Some(top) = expanding(&pool) else { return Ok(Expanded::Done) };
        let vdev = VdevId(top.id);
        let done_bytes = copied_bytes(&engine.mos().await?, &top).await?;
        progress(ExpansionProgress { done_bytes, total_bytes: allocated_bytes(engine, vdev) });
        let most_bytes = engine.background().settings().most_reflow_bytes();
        if most_bytes != 0 && done_bytes >= most_bytes {
            return Ok(Expanded::Suspended);
        }
        if !std::mem::replace(&mut is_begun, true) {
            // From here on writes reach the devices, every label has the last uberblock, and all I/O uses the
            // expanding tree.
            engine.force_sync().await?;
            pool.tree().earlier_ended().await;
            continue;
        }
        if let Some(why) = pool.expansion().waits_for(vdev) {
            return Ok(Expanded::Waits { why });
        }
        let done = match pool.expansion().progress().synced_bytes {
            0 => engine.to_end(move |engine| scratch(engine, vdev)).await?,
            all if all >= reflow_end(&top) => {
                engine.to_end(move |engine| end::finish(engine, vdev)).await?;
                Slice::Copied
            }
            _ => engine.to_end_held(move |engine, hold| slice::slice(engine, hold, vdev)).await?,
        };
        if let Slice::Failed(error) = done {
            return Ok(Expanded::Waits { why: error.to_string() });
        }
    }
}

/// Runs expansions as they become possible, while the engine lives.
pub async fn keep_expanding(engine: WeakEngine, failed: impl Fn(DatasetError)) {
    let begun =
        engine.upgrade().map(|engine| (engine.runtime().clone(), engine.background().expansions.orders()));
    let Ok((runtime, mut orders)) = begun else { return };
    loop {
        orders.catch_up();
        let Ok(engine) = engine.upgrade() else { return };
        let done = run_expansion(&engine, &|_| {}).await;
        if matches!(done, Ok(Expanded::Done)) {
            engine.background().scans.order();
        }
        drop(engine);
        let waits = matches!(done, Ok(Expanded::Waits { .. }));
        done.err().into_iter().for_each(&failed);
        let changed = match waits {
            true => runtime.timeout(LOOK_INTERVAL, orders.changed()).await.unwrap_or(Ok(())),
            false => orders.changed().await,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Progress of the expansion recorded in `mos`, if any.
///
/// # Errors
/// The pool's metadata can't be read.
#[boxed]
pub async fn expansion(engine: &Engine, mos: &Mos) -> Result<Option<ExpansionProgress>> {
    for top in mos.pool_config().vdevs.iter().filter(|top| top.kind == VdevKind::Raidz) {
        let Some(zap) = mos.vdev_zap(top).await? else { continue };
        if zap.get_u64(vdev_zap::RAIDZ_EXPAND_STATE).await? == Some(DSS_SCANNING) {
            let (done_bytes, vdev) = (copied_bytes(mos, top).await?, VdevId(top.id));
            return Ok(Some(ExpansionProgress { done_bytes, total_bytes: allocated_bytes(engine, vdev) }));
        }
    }
    Ok(None)
}

/// The vdev being expanded.
fn expanding(pool: &Pool) -> Option<VdevConfig> {
    pool.tree().vdevs().tops().find(|top| top.raidz_expanding).cloned()
}

fn allocated_bytes(engine: &Engine, vdev: VdevId) -> u64 {
    engine.allocator().vdev_space(vdev).unwrap_or_default().allocated_bytes
}

async fn copied_bytes(mos: &Mos, top: &VdevConfig) -> Result<u64> {
    let Some(zap) = mos.vdev_zap(top).await? else { return Ok(0) };
    Ok(zap.get_u64(vdev_zap::RAIDZ_EXPAND_BYTES_COPIED).await?.unwrap_or(0))
}

/// Copies the first rows.
async fn scratch(engine: Engine, vdev: VdevId) -> Result<Slice> {
    let task = engine.run_on_pool(move |context| Box::pin(async move { scratch_sync(context, vdev).await }));
    Ok(task.await?.map_or_else(Slice::Failed, |()| Slice::Copied))
}

async fn scratch_sync(context: &mut SyncContext, vdev: VdevId) -> Result<Result<()>> {
    context.begin_writing().await?;
    let (pool, last) = (context.pool().clone(), context.last_uberblock());
    let copied = pool.expansion().copy_by_scratch(vdev, &last, context.txg()).await;
    // Even after a failure: the first rows may be in the scratch area.
    set_reflowed(context, pool.expansion().uberblock_info());
    if copied.is_ok() {
        let bytes =
            context.allocator().in_use(vdev, 0, pool.expansion().progress().synced_bytes).total_bytes();
        add_copied(context, vdev, bytes).await?;
    }
    Ok(copied.map_err(DatasetError::from))
}

/// Records the expansion's progress in this txg's uberblock.
fn set_reflowed(context: &mut SyncContext, raidz_reflow_info: u64) {
    let uberblock = Uberblock { raidz_reflow_info, ..*context.pool().uberblock() };
    context.write_to(context.pool().at(&uberblock));
}

/// Adds to the bytes copied.
async fn add_copied(context: &SyncContext, vdev: VdevId, bytes: u64) -> Result<()> {
    let top = context.config().vdev_tree.children.iter().find(|top| VdevId(top.id) == vdev).cloned();
    let Some(top) = top.filter(|top| top.top_zap.0 != 0) else { return Ok(()) };
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, top.top_zap);
    let copied = fields.get(vdev_zap::RAIDZ_EXPAND_BYTES_COPIED).await?;
    let copied = copied.and_then(|value| value.as_u64()).unwrap_or(0);
    fields.update(vdev_zap::RAIDZ_EXPAND_BYTES_COPIED, copied.saturating_add(bytes)).await
}

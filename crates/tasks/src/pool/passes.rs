//! Passes over the free space of leaves: `zpool initialize`, `zpool trim`.
//!
//! ```text
//!           start                         end of the leaf
//!   NONE  ---------> ACTIVE  ---------------------------------> COMPLETE      state, offset and time are in
//!     ^               |  ^ '-- cancel --> CANCELED                            the leaf's ZAP
//!     |       suspend |  | start
//!     '--- forget --- SUSPENDED
//! ```
//!
//! Idea: a pass's order and progress are on disk, in OpenZFS's form, so it continues after an export, here or
//! there. It covers a leaf metaslab by metaslab, in slices; the few megabytes it is working on are withheld
//! from allocation. Space freed behind it is not revisited.
//!
//! The recorded offset excludes the front labels, as in OpenZFS.
//!
//! Locking: one runner per pool, the daemon or a command. It may be dropped at any await: the state on disk
//! says where to continue.
//!
//! Source: OpenZFS `vdev_initialize.c`, `vdev_trim.c`.

use std::collections::BTreeSet;
use std::time::Duration;

use cenote_boxed::boxed;
use cenote_dataset::spacemaps::metaslab_extent;
use cenote_engine::{Engine, SyncContext, WeakEngine};
use cenote_format::dsl::names::vdev_zap;
use cenote_format::label::VdevConfig;
use cenote_format::scan::VdevWorkState;
use cenote_format::units::{Guid, ObjectId, VdevId};
use cenote_object::{DatasetError, Result, Zap, ZapEdit};
use cenote_pool::alloc::BorrowedSpace;
use cenote_pool::{INITIALIZE_PATTERN, Pass, Pool, Stuck, Treatment};
use cenote_runtime::{Instant, Watcher};

use crate::pool::take_tree::path_of;

/// Interval at which a pass records its progress.
const SLICE: Duration = Duration::from_secs(2);
/// Interval at which the daemon retries passes: a hung device may answer again, or a failed one work.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// Space withheld from allocation at a time, and the lower value for nearly full vdevs.
const BORROWED_BYTES: u64 = 16 << 20;
const FEW_BORROWED_BYTES: u64 = 1 << 20;
/// Free space below which a vdev is nearly full.
const LITTLE_BYTES: u64 = 512 << 20;

/// A command for a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassOrder {
    /// Starts or resumes; `rate` limits a trim, `fill` is for initializing.
    Start {
        /// Bytes per second, 0 for no limit.
        rate: u64,
        /// Word to write. `None` keeps that of a suspended pass, or takes the default.
        fill: Option<u64>,
    },
    /// Suspends; can be resumed.
    Suspend,
    /// Cancels.
    Cancel,
    /// Drops the recorded state.
    Forget,
}

/// A pass's fields in the leaf's ZAP, and its messages.
struct Names {
    state: &'static str,
    offset: &'static str,
    time: &'static str,
    event: &'static str,
    is_active: &'static str,
    is_none: &'static str,
}

fn names(pass: Pass) -> Names {
    match pass {
        Pass::Initialize => Names {
            state: vdev_zap::INITIALIZE_STATE,
            offset: vdev_zap::INITIALIZE_LAST_OFFSET,
            time: vdev_zap::INITIALIZE_ACTION_TIME,
            event: "initialize",
            is_active: "currently initializing",
            is_none: "there is no active initialization",
        },
        Pass::Trim => Names {
            state: vdev_zap::TRIM_STATE,
            offset: vdev_zap::TRIM_LAST_OFFSET,
            time: vdev_zap::TRIM_ACTION_TIME,
            event: "trim",
            is_active: "currently trimming",
            is_none: "there is no active trim",
        },
    }
}

/// Starts, suspends, resumes or ends a pass over a leaf. [`run_passes`] runs it.
///
/// # Errors
/// The leaf is not in use, its free space is unknown, or the pass is not in a state for that order.
#[boxed]
pub async fn order_pass(engine: &Engine, leaf: Guid, pass: Pass, order: PassOrder) -> Result<()> {
    let ordered = move |engine: Engine| async move {
        let task = engine.run_on_pool(move |context| {
            Box::pin(async move { order_sync(context, leaf, pass, order).await })
        });
        task.await?;
        engine.background().passes.order();
        Ok(())
    };
    engine.to_end(ordered).await
}

async fn order_sync(context: &mut SyncContext, leaf: Guid, pass: Pass, order: PassOrder) -> Result<()> {
    let names = names(pass);
    let refused = |why: &str| Err(DatasetError::unsuitable(context.pool().name(), why));
    let Some(zap) = leaf_zap(context, leaf) else { return refused("no such device in pool") };
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, zap);
    let state = state_in(&fields, &names).await?;
    let done = match (order, &state) {
        (PassOrder::Start { .. }, VdevWorkState::Active) => return refused(names.is_active),
        (PassOrder::Start { .. }, _) if context.pool().by_range().top_with_free_space(leaf).is_none() => {
            return refused("it is not in use, a distributed spare, or its RAID-Z is being expanded");
        }
        (PassOrder::Start { rate, fill }, _) => {
            if state != VdevWorkState::Suspended {
                fields.update(names.offset, 0).await?;
                fields.update(names.time, context.now_s()).await?;
            }
            if pass == Pass::Initialize {
                let recorded = fields.get(vdev_zap::INITIALIZE_VALUE).await?.and_then(|word| word.as_u64());
                let kept = recorded.filter(|_| state == VdevWorkState::Suspended);
                let word = fill.or(kept).unwrap_or_else(|| context.scan_settings().initialize_word());
                fields.update(vdev_zap::INITIALIZE_VALUE, word).await?;
            }
            if pass == Pass::Trim {
                fields.update(vdev_zap::TRIM_RATE, rate).await?;
                fields.update(vdev_zap::TRIM_PARTIAL, 0).await?;
                fields.update(vdev_zap::TRIM_SECURE, 0).await?;
            }
            fields.update(names.state, VdevWorkState::Active.leaf_value()).await?;
            "activated"
        }
        (PassOrder::Suspend, VdevWorkState::Active) => {
            fields.update(names.state, VdevWorkState::Suspended.leaf_value()).await?;
            "suspended"
        }
        (PassOrder::Cancel, VdevWorkState::Active | VdevWorkState::Suspended) => {
            fields.update(names.state, VdevWorkState::Canceled.leaf_value()).await?;
            fields.update(names.offset, 0).await?;
            "canceled"
        }
        (PassOrder::Forget, VdevWorkState::Active) => return refused(names.is_active),
        (PassOrder::Forget, VdevWorkState::None) => return refused("it is uninitialized"),
        (PassOrder::Forget, _) => {
            let word = (pass == Pass::Initialize).then_some(vdev_zap::INITIALIZE_VALUE);
            for name in [names.state, names.offset, names.time].into_iter().chain(word) {
                match fields.remove(name).await {
                    Err(DatasetError::NoEntry { .. }) => {}
                    removed => removed?,
                }
            }
            "reset"
        }
        _ => return refused(names.is_none),
    };
    let path = path_of(context, leaf);
    context.log_event(names.event, &format!("vdev={path} {done}")).await
}

async fn state_in(fields: &ZapEdit<'_>, names: &Names) -> Result<VdevWorkState> {
    let value = fields.get(names.state).await?.and_then(|value| value.as_u64());
    Ok(VdevWorkState::of_leaf(value.unwrap_or(0)))
}

fn leaf_zap(context: &SyncContext, leaf: Guid) -> Option<ObjectId> {
    let config = context.config();
    let zap = config.vdev_tree.leaves().find(|one| one.guid == leaf)?.leaf_zap;
    (zap.0 != 0).then_some(zap)
}

/// A pass recorded as active.
#[derive(Debug, Clone, Copy)]
struct Active {
    leaf: Guid,
    pass: Pass,
    /// Progress on the leaf, without the front labels.
    offset_bytes: u64,
    /// Bytes per second, 0 for no limit.
    rate: u64,
    treatment: Treatment,
}

/// Runs all active passes to their ends, reporting each increment in bytes. A pass is suspended if its device
/// fails, waits if the device goes out of use, and is canceled if the device cannot discard. Returns the
/// leaves of such passes.
///
/// # Errors
/// The pool's metadata can't be read, or a txg can't be written.
#[boxed]
pub async fn run_passes(engine: &Engine, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<BTreeSet<Guid>> {
    let (mut failed, mut is_begun, mut orders) =
        (BTreeSet::new(), false, engine.background().passes.orders());
    loop {
        orders.catch_up();
        let active = active(engine).await?;
        if active.is_empty() {
            return Ok(failed);
        }
        if !std::mem::replace(&mut is_begun, true) {
            // From here on, writes reach the devices.
            let first = active[0];
            note(engine, first, Noted::At(first.offset_bytes)).await?;
        }
        let slices = active.iter().map(|work| slice(engine, *work, orders.clone(), progress));
        let ends = futures::future::join_all(slices).await;
        for (work, end) in active.iter().zip(ends) {
            let is_away = engine.pool().by_range().top_with_free_space(work.leaf).is_none();
            if is_away || matches!(end, Noted::Suspended(_) | Noted::Unsupported) {
                failed.insert(work.leaf);
            }
            note(engine, *work, end).await?;
        }
    }
}

/// Runs passes when there are any, while the engine lives.
pub async fn keep_passing(engine: WeakEngine) {
    let begun =
        engine.upgrade().map(|engine| (engine.runtime().clone(), engine.background().passes.orders()));
    let Ok((runtime, mut orders)) = begun else { return };
    loop {
        orders.catch_up();
        let Ok(engine) = engine.upgrade() else { return };
        // Failures are recorded with the pass, or retried.
        drop(run_passes(&engine, &|_| {}).await);
        drop(engine);
        if let Ok(Err(_)) = runtime.timeout(LOOK_INTERVAL, orders.changed()).await {
            return;
        }
    }
}

async fn active(engine: &Engine) -> Result<Vec<Active>> {
    let (mos, mut found) = (engine.mos().await?, Vec::new());
    let config = mos.pool_config();
    for leaf in config.vdevs.iter().flat_map(VdevConfig::leaves).filter(|leaf| leaf.leaf_zap.0 != 0) {
        if engine.pool().by_range().top_with_free_space(leaf.guid).is_none() || is_leaving(engine, leaf.guid)
        {
            continue;
        }
        let zap = Zap::open_id(mos.objset(), leaf.leaf_zap).await?;
        for pass in [Pass::Initialize, Pass::Trim] {
            let names = names(pass);
            let state = zap.get_u64(names.state).await?.map(VdevWorkState::of_leaf);
            if state == Some(VdevWorkState::Active) {
                let offset_bytes = zap.get_u64(names.offset).await?.unwrap_or(0);
                let (rate, treatment) = match pass {
                    Pass::Trim => (zap.get_u64(vdev_zap::TRIM_RATE).await?.unwrap_or(0), Treatment::Discard),
                    Pass::Initialize => {
                        let word = zap.get_u64(vdev_zap::INITIALIZE_VALUE).await?;
                        (0, Treatment::Fill(word.unwrap_or(INITIALIZE_PATTERN)))
                    }
                };
                found.push(Active { leaf: leaf.guid, pass, offset_bytes, rate, treatment });
            }
        }
    }
    Ok(found)
}

/// Passes pause while their vdev is being removed: the removal may be canceled.
fn is_leaving(engine: &Engine, leaf: Guid) -> bool {
    let pool = engine.pool();
    let top = pool.by_range().top_with_free_space(leaf);
    let top = top.and_then(|top| pool.tree().vdevs().top(top).map(|top| top.removing));
    top.unwrap_or(false)
}

/// A slice's result to record.
#[derive(Debug, Clone, Copy)]
enum Noted {
    At(u64),
    Complete,
    Suspended(u64),
    Unsupported,
}

async fn note(engine: &Engine, work: Active, noted: Noted) -> Result<()> {
    engine.run_on_pool(move |context| Box::pin(async move { note_sync(context, work, noted).await })).await
}

/// Another order may have changed the state meanwhile.
async fn note_sync(context: &mut SyncContext, work: Active, noted: Noted) -> Result<()> {
    let names = names(work.pass);
    let Some(zap) = leaf_zap(context, work.leaf) else { return Ok(()) };
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, zap);
    match (state_in(&fields, &names).await?, noted) {
        (VdevWorkState::Active, _) | (VdevWorkState::Suspended, Noted::At(_)) => {}
        _ => return Ok(()),
    }
    let (state, done) = match noted {
        Noted::At(offset) => return fields.update(names.offset, offset).await,
        Noted::Complete => (VdevWorkState::Complete, "complete"),
        Noted::Suspended(offset) => {
            fields.update(names.offset, offset).await?;
            (VdevWorkState::Suspended, "suspended")
        }
        Noted::Unsupported => (VdevWorkState::Canceled, "canceled"),
    };
    fields.update(names.state, state.leaf_value()).await?;
    if state == VdevWorkState::Complete {
        fields.update(names.time, context.now_s()).await?;
    }
    let path = path_of(context, work.leaf);
    context.log_event(names.event, &format!("vdev={path} {done}")).await
}

/// Runs a pass for a while, or until the next order.
async fn slice(
    engine: &Engine,
    work: Active,
    orders: Watcher<u64>,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Noted {
    let pool = engine.pool();
    let top = pool.by_range().top_with_free_space(work.leaf);
    let config = top.and_then(|top| pool.tree().vdevs().top(top).cloned());
    // The leaf is out of use: continue when back.
    let (Some(top), Some(config)) = (top, config) else { return Noted::At(work.offset_bytes) };
    let (began, at, most_bytes) = (engine.runtime().now(), work.offset_bytes, most_borrowed(engine, top));
    let mut slice = Slice { engine, pool, work, top, began, orders, at, done_bytes: 0, most_bytes };
    for index in 0..config.asize_bytes.checked_shr(config.metaslab_shift).unwrap_or(0) {
        let (start, len) = metaslab_extent(&config, index);
        let on_leaf = slice.pool.by_range().ranges_on(top, work.leaf, (start, start + len));
        let Some((_, last)) = on_leaf.last().copied().filter(|(_, last)| *last > slice.at) else { continue };
        if let Some(end) = slice.over_metaslab(index, start, progress).await {
            return end;
        }
        slice.at = slice.at.max(last);
    }
    Noted::Complete
}

struct Slice<'a> {
    engine: &'a Engine,
    pool: Pool,
    work: Active,
    top: VdevId,
    began: Instant,
    orders: Watcher<u64>,
    /// Progress on the leaf.
    at: u64,
    done_bytes: u64,
    most_bytes: u64,
}

impl Slice<'_> {
    /// Covers a metaslab's free space; returns the result if the slice ends there.
    async fn over_metaslab(
        &mut self,
        index: u64,
        mut from: u64,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Option<Noted> {
        loop {
            let borrowed = self.engine.allocator().borrow_free(self.top, index, from, self.most_bytes);
            from = borrowed.ranges().last()?.1;
            let before_bytes = self.done_bytes;
            for range in borrowed.ranges() {
                if let Err(stuck) = self.over_range(*range, &borrowed).await {
                    return Some(stuck);
                }
            }
            drop(borrowed);
            progress(self.done_bytes - before_bytes);
            if self.rest().await || self.engine.runtime().now().since(self.began) >= SLICE {
                return Some(Noted::At(self.at));
            }
        }
    }

    async fn over_range(&mut self, range: (u64, u64), space: &BorrowedSpace) -> Result<(), Noted> {
        let Active { leaf, pass, treatment, .. } = self.work;
        for (first, last) in self.pool.by_range().ranges_on(self.top, leaf, range) {
            let first = first.max(self.at);
            let len_bytes = last.saturating_sub(first);
            if pass == Pass::Initialize || self.engine.background().settings().is_worth_trimming(len_bytes) {
                match self.pool.by_range().pass_over(leaf, (first, last), treatment, space).await {
                    Ok(bytes) => self.done_bytes += bytes,
                    Err(Stuck::Unsupported) => return Err(Noted::Unsupported),
                    Err(Stuck::Fails)
                        if self.engine.pool().by_range().top_with_free_space(leaf).is_none() =>
                    {
                        return Err(Noted::At(self.at));
                    }
                    Err(Stuck::Fails) => return Err(Noted::Suspended(self.at)),
                }
            }
            self.at = self.at.max(last);
        }
        Ok(())
    }

    /// Sleeps as the rate demands, or until an order; returns whether there was one.
    async fn rest(&mut self) -> bool {
        let runtime = self.engine.runtime();
        if self.work.rate > 0 {
            let due = Duration::from_secs_f64(self.done_bytes as f64 / self.work.rate as f64);
            let left = due.saturating_sub(runtime.now().since(self.began));
            return runtime.timeout(left, self.orders.changed()).await.is_ok();
        }
        self.orders.has_news()
    }
}

/// Limits the borrowed space, lest a nearly full vdev appear full.
fn most_borrowed(engine: &Engine, top: VdevId) -> u64 {
    let space = engine.allocator().vdev_space(top);
    let free_bytes = space.map_or(0, |space| space.size_bytes.saturating_sub(space.allocated_bytes));
    if free_bytes < LITTLE_BYTES { FEW_BORROWED_BYTES } else { BORROWED_BYTES }
}

/// Whether a pass of this kind is active on any leaf.
///
/// # Errors
/// The pool's metadata can't be read.
#[boxed]
pub async fn is_passing(engine: &Engine, pass: Pass) -> Result<bool> {
    Ok(active(engine).await?.iter().any(|active| active.pass == pass))
}

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
//! Idea: what there is to do, and how far it has come, is in the pool, in OpenZFS's form, so a pass goes on
//! after an export, here or there. It goes over a leaf metaslab by metaslab, in slices; meanwhile nobody
//! allocates the few megabytes that it works on. What is freed behind it is not visited again.
//!
//! The offset that is noted leaves the front labels out, which is how OpenZFS reads it.
//!
//! Locking: one runner a pool, the daemon or a command. It may be dropped at any await: the pool still says
//! what is left.
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
use cenote_pool::{Pass, Stuck};
use cenote_runtime::Instant;

use crate::pool::take_tree::path_of;

/// How long a pass works before it notes how far it has come.
const SLICE: Duration = Duration::from_secs(2);
/// How often the daemon looks whether there is anything to do.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// What a pass keeps from being allocated at a time, and if little is free.
const BORROWED_BYTES: u64 = 16 << 20;
const FEW_BORROWED_BYTES: u64 = 1 << 20;
/// What is little.
const LITTLE_BYTES: u64 = 512 << 20;

/// What is to become of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassOrder {
    /// It begins, or goes on; a trim at so many bytes a second at most, 0 for any.
    Start {
        /// Bytes a second.
        rate: u64,
    },
    /// It is to go on later.
    Suspend,
    /// It ends.
    Cancel,
    /// Nothing is known of one any more.
    Forget,
}

/// The names of what the pool keeps of a pass.
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

/// Begins, suspends, goes on with, or ends a pass over a leaf. [`run_passes`] does it.
///
/// # Errors
/// The leaf is not in use; its free space can't be told; a pass runs already, or none does.
#[boxed]
pub async fn order_pass(engine: &Engine, leaf: Guid, pass: Pass, order: PassOrder) -> Result<()> {
    engine.run(move |context| Box::pin(async move { order_sync(context, leaf, pass, order).await })).await
}

async fn order_sync(context: &mut SyncContext, leaf: Guid, pass: Pass, order: PassOrder) -> Result<()> {
    let names = names(pass);
    let refused = |why: &str| Err(DatasetError::unsuitable(context.pool().name(), why));
    let Some(zap) = leaf_zap(context, leaf) else { return refused("no such device in pool") };
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, zap);
    let state = fields.get(names.state).await?.and_then(|value| value.as_u64()).unwrap_or(0);
    let state = VdevWorkState::of_leaf(state);
    let done = match (order, &state) {
        (PassOrder::Start { .. }, VdevWorkState::Active) => return refused(names.is_active),
        (PassOrder::Start { .. }, _) if context.pool().top_with_free_space(leaf).is_none() => {
            return refused("it is not in use, or its vdev is a dRAID or an expanded RAID-Z");
        }
        (PassOrder::Start { rate }, _) => {
            if state != VdevWorkState::Suspended {
                fields.update(names.offset, 0).await?;
                fields.update(names.time, context.now_s()).await?;
            }
            if pass == Pass::Trim {
                fields.update(vdev_zap::TRIM_RATE, rate).await?;
                fields.update(vdev_zap::TRIM_PARTIAL, 0).await?;
                fields.update(vdev_zap::TRIM_SECURE, 0).await?;
            }
            fields.update(names.state, 1).await?;
            "activated"
        }
        (PassOrder::Suspend, VdevWorkState::Active) => {
            fields.update(names.state, 3).await?;
            "suspended"
        }
        (PassOrder::Cancel, VdevWorkState::Active | VdevWorkState::Suspended) => {
            fields.update(names.state, 2).await?;
            fields.update(names.offset, 0).await?;
            "canceled"
        }
        (PassOrder::Forget, VdevWorkState::Active) => return refused(names.is_active),
        (PassOrder::Forget, VdevWorkState::None) => return refused("it is uninitialized"),
        (PassOrder::Forget, _) => {
            for name in [names.state, names.offset, names.time] {
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

fn leaf_zap(context: &SyncContext, leaf: Guid) -> Option<ObjectId> {
    let config = context.config();
    let zap = config.vdev_tree.leaves().find(|one| one.guid == leaf)?.leaf_zap;
    (zap.0 != 0).then_some(zap)
}

/// A pass that the pool says is active.
#[derive(Debug, Clone, Copy)]
struct Active {
    leaf: Guid,
    pass: Pass,
    /// How far it has come on the leaf, front labels left out.
    offset_bytes: u64,
    /// Bytes a second, 0 for any.
    rate: u64,
}

/// Goes on with all passes until none is active. Those whose device fails are suspended, those whose device
/// can't give up space are canceled; their leaves are answered.
///
/// # Errors
/// The pool's metadata can't be read, or a txg not be written.
#[boxed]
pub async fn run_passes(engine: &Engine, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<BTreeSet<Guid>> {
    let (mut failed, mut is_begun) = (BTreeSet::new(), false);
    loop {
        let active = active(engine).await?;
        if active.is_empty() {
            return Ok(failed);
        }
        if !std::mem::replace(&mut is_begun, true) {
            // From now on nothing is held back from the devices.
            let first = active[0];
            note(engine, first, Noted::At(first.offset_bytes)).await?;
        }
        let slices = active.iter().map(|work| slice(engine, *work, progress));
        let ends = futures::future::join_all(slices).await;
        for (work, end) in active.iter().zip(ends) {
            let end = end?;
            if matches!(end, Noted::Suspended(_) | Noted::Unsupported) {
                failed.insert(work.leaf);
            }
            note(engine, *work, end).await?;
        }
    }
}

/// Goes on with passes whenever there is one, as long as the engine lives.
pub async fn keep_passing(engine: WeakEngine) {
    let Ok(runtime) = engine.upgrade().map(|engine| engine.runtime().clone()) else { return };
    loop {
        runtime.sleep(LOOK_INTERVAL).await;
        let Ok(engine) = engine.upgrade() else { return };
        // What fails is in the pool's state, or is tried again.
        drop(run_passes(&engine, &|_| {}).await);
    }
}

async fn active(engine: &Engine) -> Result<Vec<Active>> {
    let (mos, mut found) = (engine.mos().await?, Vec::new());
    let config = engine.pool().config();
    for leaf in config.vdevs.iter().flat_map(VdevConfig::leaves).filter(|leaf| leaf.leaf_zap.0 != 0) {
        if engine.pool().top_with_free_space(leaf.guid).is_none() {
            continue;
        }
        let zap = Zap::open_id(mos.objset(), leaf.leaf_zap).await?;
        for pass in [Pass::Initialize, Pass::Trim] {
            let names = names(pass);
            let state = zap.get_u64(names.state).await?.map(VdevWorkState::of_leaf);
            if state == Some(VdevWorkState::Active) {
                let offset_bytes = zap.get_u64(names.offset).await?.unwrap_or(0);
                let rate = match pass {
                    Pass::Trim => zap.get_u64(vdev_zap::TRIM_RATE).await?.unwrap_or(0),
                    Pass::Initialize => 0,
                };
                found.push(Active { leaf: leaf.guid, pass, offset_bytes, rate });
            }
        }
    }
    Ok(found)
}

/// What is noted of a pass.
#[derive(Debug, Clone, Copy)]
enum Noted {
    At(u64),
    Complete,
    Suspended(u64),
    Unsupported,
}

async fn note(engine: &Engine, work: Active, noted: Noted) -> Result<()> {
    engine.run(move |context| Box::pin(async move { note_sync(context, work, noted).await })).await
}

/// Somebody may have ordered something else meanwhile.
async fn note_sync(context: &mut SyncContext, work: Active, noted: Noted) -> Result<()> {
    let names = names(work.pass);
    let Some(zap) = leaf_zap(context, work.leaf) else { return Ok(()) };
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, zap);
    let state = fields.get(names.state).await?.and_then(|value| value.as_u64());
    let is_active = state.map(VdevWorkState::of_leaf) == Some(VdevWorkState::Active);
    if !is_active && !matches!((state, noted), (Some(3), Noted::At(_))) {
        return Ok(());
    }
    let end = match noted {
        Noted::At(offset) => return fields.update(names.offset, offset).await,
        Noted::Complete => (4, "complete"),
        Noted::Suspended(offset) => {
            fields.update(names.offset, offset).await?;
            (3, "suspended")
        }
        Noted::Unsupported => (2, "canceled"),
    };
    fields.update(names.state, end.0).await?;
    if let Noted::Complete = noted {
        fields.update(names.time, context.now_s()).await?;
    }
    let path = path_of(context, work.leaf);
    context.log_event(names.event, &format!("vdev={path} {}", end.1)).await
}

/// A pass for a while.
async fn slice(engine: &Engine, work: Active, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Noted> {
    let (pool, began) = (engine.pool(), engine.runtime().now());
    let Some(top) = pool.top_with_free_space(work.leaf) else {
        return Ok(Noted::Suspended(work.offset_bytes));
    };
    let Some(config) = pool.vdevs().top(top).cloned() else { return Ok(Noted::Suspended(work.offset_bytes)) };
    let mut at = work.offset_bytes;
    let (mut done_bytes, most_bytes) = (0, most_borrowed(engine, top));
    for index in 0..config.asize_bytes.checked_shr(config.metaslab_shift).unwrap_or(0) {
        let (start, len) = metaslab_extent(&config, index);
        let Some(on_leaf) = pool.range_on(top, work.leaf, (start, start + len)) else { continue };
        if on_leaf.1 <= at {
            continue;
        }
        let mut from = start;
        loop {
            let borrowed = engine.borrow_free(top, index, from, most_bytes);
            let Some(&(_, end)) = borrowed.ranges().last() else { break };
            for range in borrowed.ranges() {
                let Some((first, last)) = pool.range_on(top, work.leaf, *range) else { continue };
                match pool.pass_over(work.leaf, (first.max(at), last), work.pass).await {
                    Ok(bytes) => done_bytes += bytes,
                    Err(Stuck::Unsupported) => return Ok(Noted::Unsupported),
                    Err(Stuck::Fails) => return Ok(Noted::Suspended(at)),
                }
                at = at.max(last);
            }
            drop(borrowed);
            progress(done_bytes);
            wait_for_rate(engine, began, done_bytes, work.rate).await;
            if engine.runtime().now().since(began) >= SLICE {
                return Ok(Noted::At(at));
            }
            from = end;
        }
        at = at.max(on_leaf.1);
    }
    Ok(Noted::Complete)
}

/// Not so much that others find the pool full.
fn most_borrowed(engine: &Engine, top: VdevId) -> u64 {
    let space = engine.allocator().vdev_space(top);
    let free_bytes = space.map_or(0, |space| space.size_bytes.saturating_sub(space.allocated_bytes));
    if free_bytes < LITTLE_BYTES { FEW_BORROWED_BYTES } else { BORROWED_BYTES }
}

async fn wait_for_rate(engine: &Engine, began: Instant, done_bytes: u64, rate: u64) {
    if rate == 0 {
        return;
    }
    let due = Duration::from_secs_f64(done_bytes as f64 / rate as f64);
    let passed = engine.runtime().now().since(began);
    engine.runtime().sleep(due.saturating_sub(passed)).await;
}

/// Whether any pass is active.
///
/// # Errors
/// The pool's metadata can't be read.
#[boxed]
pub async fn is_passing(engine: &Engine) -> Result<bool> {
    Ok(!active(engine).await?.is_empty())
}

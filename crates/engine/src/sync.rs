//! Writing the open txg: the order of its steps.
//!
//! ```text
//!   close the txg; freeze the layers of all object sets
//!   datasets     settle the intent logs, write the frozen layers side by side, settle births and deaths in
//!                the MOS one after the other
//!   tasks        change the MOS, may make new datasets: write those, too
//!   freeing      some of what was destroyed
//!   pass 1..     write the MOS, free dead blocks, write space maps: these are objects of the MOS, so it has
//!                changed again; from pass 2 on blocks of this txg are overwritten in place, and frees are
//!                left to the next txg
//!   metadata     all of the txg at once: until now it has addresses only (`TxgWrites::later`)
//!   flush        if a device lost writes, another pass records that in its DTL
//!   labels, uberblock
//! ```
//!
//! Damage is confined. An object that cannot be read stays as it is on disk, a block that cannot be freed
//! stays allocated, and the pool reports it (`ReadErrors::take_aside`). A txg fails only if the MOS is
//! unreadable or a write fails.
//!
//! The passes end because each can only touch blocks of the MOS that no earlier pass did; blocks touched
//! again keep their place.
//!
//! Source: OpenZFS `spa.c` (`spa_sync`, `spa_sync_iterate_to_convergence`), `dsl_pool.c` (`dsl_pool_sync`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_dataset::mos::MOS_DIR_NAME;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::objset::ZilHeader;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{ObjectId, Txg, VdevId};
use cenote_object::deadlist::Bpobj;
use cenote_object::live::Layer;
use cenote_object::write::{BlockSink, write_objset};
use cenote_object::{DatasetError, Result, ZapEdit};
use cenote_pool::Waits;
use cenote_pool::label::LabelUpdate;
use futures::TryStreamExt;

use crate::account::Account;
use crate::context::SyncContext;
use crate::engine::{LiveDataset, OnDisk, Shared, Task, Tasks, User};
use crate::freeing::free_pending;
use crate::kstat::TxgRecord;
use crate::livelist::livelist;
use crate::logs::settle_log;
use crate::sharing::quota;
use crate::space::missed::{has_missed, write_missed};
use crate::space::write::write_space_maps;
use crate::store::features::Features;
use crate::store::sink::PoolSink;
use crate::store::space_delta::SpaceDelta;
use crate::store::txg::{InFlight, SyncingTxg};
use crate::txg_times::note_txg;

/// `zfs_sync_pass_deferred_free`: later passes leave frees to the next txg.
const SYNC_PASS_DEFERRED_FREE: u32 = 2;
/// More are a bug; a handful is usual.
const MAX_PASSES: u32 = 64;

/// Datasets written concurrently; `store/txg` bounds their blocks in flight.
const DATASETS_AT_ONCE: usize = 32;

struct Frozen {
    datasets: Vec<(LiveDataset, Arc<Layer>)>,
    tasks: Tasks,
}

/// Writes the open txg. Returns its number, also with an error.
pub(crate) async fn sync_open_txg(engine: &Arc<Shared>) -> Result<Txg, (Txg, DatasetError)> {
    let (begun, now) = (engine.txgs.opened(), || engine.runtime.now());
    let (dirty_bytes, closes) = (engine.throttle.dirty().bytes(), now());
    let (txg, frozen) = engine.txgs.close(&engine.runtime, |next| freeze(engine, next)).await;
    let (closed, before) = (now(), engine.on_disk.read().pool.counters().moved());
    if frozen.datasets.is_empty() && frozen.tasks.is_empty() && !engine.mos.is_dirty() && !engine.frees_now()
    {
        return Ok(txg);
    }
    write_txg(engine, txg, frozen).await.map_err(|error| (txg, error))?;
    let after = engine.on_disk.read().pool.counters().moved();
    engine.kstats.txg_written(TxgRecord {
        txg,
        birth_ns: begun.as_ns(),
        dirty_bytes,
        moved: std::array::from_fn(|op| after[op].since(&before[op])),
        open_ns: closes.since(begun).as_nanos() as u64,
        quiesce_ns: closed.since(closes).as_nanos() as u64,
        sync_ns: now().since(closed).as_nanos() as u64,
    });
    Ok(txg)
}

async fn write_txg(engine: &Arc<Shared>, txg: Txg, frozen: Frozen) -> Result<()> {
    engine.mos.relabel(txg);
    // Block dataset opens until the txg is on disk. Taking this lock earlier could deadlock with a txg
    // holder.
    let has_tasks = !frozen.tasks.is_empty();
    let _names = if has_tasks { Some(engine.names.write().await) } else { None };
    let context = &mut new_context(engine, txg);
    if engine.tables.lock().await.deduplicates() {
        context.syncing.tables_are_full = quota::is_reached(&context.mos().await?, &engine.allocator).await?;
    }
    write_frozen(context, frozen).await?;
    if has_tasks && !has_changed(context) {
        return Ok(());
    }
    context.begin_writing().await?;
    note_txg(context).await?;
    converge(context).await?;
    write_labels(context).await?;
    engine.allocator.finish(txg);
    engine.forget_records(txg);
    Ok(())
}

fn freeze(engine: &Shared, next: Txg) -> Frozen {
    let datasets = engine.datasets.lock();
    let closing = Txg(next.0 - 1);
    let has_log = |dataset: &LiveDataset| dataset.log.as_ref().is_some_and(|log| log.is_touched(closing));
    let is_dirty = |dataset: &&LiveDataset| dataset.objset.is_dirty() || has_log(dataset);
    let (dirty, idle): (Vec<&LiveDataset>, Vec<_>) = datasets.values().partition(is_dirty);
    let datasets = dirty.into_iter().map(|dataset| (dataset.clone(), dataset.objset.freeze(next))).collect();
    // Their next change, and its log records, belong to the next txg.
    idle.into_iter().for_each(|dataset| dataset.objset.relabel(next));
    let tasks = std::mem::take(&mut *engine.tasks.lock());
    Frozen { datasets, tasks }
}

fn new_context(engine: &Arc<Shared>, txg: Txg) -> SyncContext {
    let pool = engine.on_disk.read().pool.waiting(Waits::AsTxg);
    let syncing = SyncingTxg {
        pool,
        cache: engine.cache.clone(),
        allocator: engine.allocator.clone(),
        txg,
        pass: 1,
        features: engine.carried.lock().features,
        tables: Some(engine.tables.clone()),
        tables_are_full: false,
        in_flight: InFlight::default(),
    };
    SyncContext {
        engine: engine.clone(),
        syncing,
        dead: Vec::new(),
        born_objsets: Vec::new(),
        config_changed: false,
        features_changed: false,
        deadlists: Default::default(),
        has_begun: false,
        is_forced: false,
        broken: None,
        actor: User::default(),
        touched: None,
    }
}

async fn write_frozen(context: &mut SyncContext, frozen: Frozen) -> Result<()> {
    for task in frozen.tasks.first {
        run(context, task).await?;
    }
    context.activate_gang_headers().await?;
    follow_features(context).await?;
    if !frozen.datasets.is_empty() {
        context.begin_writing().await?;
    }
    write_datasets(context, frozen.datasets).await?;
    for task in frozen.tasks.rest {
        run(context, task).await?;
        follow_features(context).await?;
        write_born(context).await?;
    }
    Ok(())
}

/// Later writes of this txg use features that a task has enabled.
async fn follow_features(context: &mut SyncContext) -> Result<()> {
    if std::mem::take(&mut context.features_changed) {
        let features = Features::of(&context.mos().await?).await?;
        context.syncing.features = features;
        context.engine.carried.lock().features = features;
    }
    Ok(())
}

async fn run(context: &mut SyncContext, task: Task) -> Result<()> {
    task(context).await;
    match context.broken.take() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// False if all tasks were refused.
fn has_changed(context: &SyncContext) -> bool {
    let in_memory = context.engine.mos.is_dirty() || !context.dead.is_empty() || has_missed(context);
    context.has_begun || context.is_forced || context.config_changed || in_memory
}

/// Writes datasets that a task has made, so that the next task can take a snapshot.
async fn write_born(context: &mut SyncContext) -> Result<()> {
    if !context.born_objsets.is_empty() {
        context.begin_writing().await?;
    }
    let next = Txg(context.syncing.txg.0 + 1);
    let born = std::mem::take(&mut context.born_objsets);
    let frozen = born.iter().map(|dataset| (dataset.clone(), dataset.objset.freeze(next))).collect();
    write_datasets(context, frozen).await?;
    let mut open = context.engine.datasets.lock();
    open.extend(born.into_iter().map(|dataset| (dataset.objset.dataset_id(), dataset)));
    Ok(())
}

/// Writes changed datasets concurrently, so that one slow disk does not delay all. The MOS changes only
/// before and after, because deduplication changes it meanwhile.
async fn write_datasets(context: &mut SyncContext, frozen: Vec<(LiveDataset, Arc<Layer>)>) -> Result<()> {
    let mut prepared = Vec::with_capacity(frozen.len());
    for (dataset, layer) in frozen {
        let log = settle_log(context, &dataset).await?;
        let dir = context.dataset_phys(ObjectId(dataset.objset.dataset_id().0)).await?.dir;
        let has_livelist = livelist(context, dir).await?.is_some();
        let sink = PoolSink::new(&context.syncing, &dataset.policy).listing_births(has_livelist);
        prepared.push((dataset, layer, sink, log));
    }
    let write = |(dataset, layer, sink, log): (LiveDataset, Arc<Layer>, PoolSink, ZilHeader)| async move {
        let old = dataset.objset.on_disk().in_view(sink.pool());
        let written = write_objset(&sink, &old, layer.freeze(), log).await?;
        let bp = *written.on_disk.bp();
        // Frees memory without waiting for the other datasets.
        let for_clients = sink.pool().waiting(Waits::AsClient);
        dataset.objset.synced(written.on_disk.in_view(&for_clients));
        for (object, why) in written.damaged {
            let dataset = dataset.objset.dataset_id();
            sink.pool().read_errors().note_lacking(dataset, object);
            sink.pool()
                .read_errors()
                .note_aside(format!("dataset {dataset} object {object} was not written: {why}"));
        }
        Ok::<_, DatasetError>((dataset, bp, sink.take_ledger()))
    };
    let runtime = context.engine.runtime.clone();
    let written: Vec<_> = runtime.map_bounded(DATASETS_AT_ONCE, prepared, write).try_collect().await?;
    for (dataset, bp, ledger) in written {
        let id = dataset.objset.dataset_id();
        context.activate_of_blocks(id, &ledger.features).await?;
        context.settle(id, bp, ledger, dataset.policy.reserved_bytes).await?;
    }
    Ok(())
}

/// Writes the MOS and space maps until a pass changes nothing.
async fn converge(context: &mut SyncContext) -> Result<()> {
    free_deferred(context).await?;
    free_pending(context).await?;
    loop {
        context.charge_leaks().await?;
        if !context.engine.mos.is_dirty() && context.dead.is_empty() && !has_missed(context) {
            // Devices may miss these writes, or lose them in a flush; this txg must record that. Otherwise a
            // device that then takes the uberblock would count as complete after a power cut.
            let (writes, txg) = (context.syncing.pool.txg_writes(), context.syncing.txg);
            writes.finish(txg).await?;
            writes.flush(txg).await?;
            if !has_missed(context) {
                return Ok(());
            }
        }
        if context.syncing.pass > MAX_PASSES {
            return Err(context.damaged("writing it changes it again and again"));
        }
        write_missed(context).await?;
        if context.config_changed {
            write_config(context).await?;
        }
        charge_mos(context).await?;
        write_mos(context).await?;
        free_dead(context).await?;
        write_shared(context).await?;
        write_space_maps(context).await?;
        context.syncing.pass += 1;
    }
}

/// Writes the configuration to the MOS.
pub(crate) async fn write_config(context: &mut SyncContext) -> Result<()> {
    let packed = {
        let mut config = context.engine.config.lock();
        config.txg = context.syncing.txg;
        config.encode().encode()
    };
    let edit = context.edit();
    let object = context.directory_object(names::CONFIG).await?;
    let len = (packed.len() as u64).to_ne_bytes().to_vec();
    edit.write(object, 0, packed.into()).await?;
    edit.set_bonus(object, ObjectType::PACKED_NVLIST_SIZE, len.into()).await
}

/// Charges the last pass to the MOS directory; the final pass is charged in the next txg.
async fn charge_mos(context: &mut SyncContext) -> Result<()> {
    let space = std::mem::take(&mut context.engine.carried.lock().uncharged);
    if space == SpaceDelta::default() {
        return Ok(());
    }
    let mos_dir = context.special_dir(MOS_DIR_NAME).await?;
    context.use_space(mos_dir, space, Account::Head).await
}

async fn write_mos(context: &mut SyncContext) -> Result<()> {
    let engine = context.engine.clone();
    let layer = engine.mos.freeze(context.syncing.txg);
    let frees_at_once = context.syncing.pass < SYNC_PASS_DEFERRED_FREE;
    let sink = PoolSink::new(&context.syncing, &engine.mos_policy).freeing_at_once(frees_at_once);
    let written = write_objset(&sink, &engine.mos.on_disk(), layer.freeze(), ZilHeader::EMPTY).await?;
    // An incomplete MOS is useless: fail the txg.
    if let Some((_, error)) = written.damaged.into_iter().next() {
        return Err(error);
    }
    engine.mos.synced(written.on_disk);
    let ledger = sink.take_ledger();
    let mut cost = ledger.born;
    for bp in ledger.dead {
        cost = cost + -context.space_of(&bp);
        context.free(bp);
    }
    let mut carried = engine.carried.lock();
    carried.uncharged = carried.uncharged + cost;
    Ok(())
}

/// Frees dead blocks in the first pass; later ones defer them to the next txg.
async fn free_dead(context: &mut SyncContext) -> Result<()> {
    let dead = std::mem::take(&mut context.dead);
    if context.syncing.pass >= SYNC_PASS_DEFERRED_FREE && !dead.is_empty() {
        let list = context.directory_object(names::SYNC_BPOBJ).await?;
        return context.append_to_list(list, &dead).await;
    }
    context.free_all(&dead).await
}

async fn free_deferred(context: &mut SyncContext) -> Result<()> {
    let list = context.directory_object(names::SYNC_BPOBJ).await?;
    match context.take_list(list).await {
        Ok(left) => context.free_all(&left).await,
        // The listed blocks leak; a new list takes the next ones.
        Err(error) if error.is_damage() => {
            let header = Bpobj::open(&context.edit().view(), list).await;
            context.syncing.pool.read_errors().note_leak(header.map_or(0, |list| list.phys().bytes), &error);
            let (edit, another) = (context.edit(), context.make_deferred_list().await?);
            ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).update(names::SYNC_BPOBJ, another.0).await
        }
        Err(error) => Err(error),
    }
}

async fn write_shared(context: &SyncContext) -> Result<()> {
    let free = context.engine.tables.lock().await.write(&context.edit(), &context.syncing.pool).await?;
    for bp in free {
        context.free_unshared(&bp).await?;
    }
    Ok(())
}

/// From here on an import finds this txg.
async fn write_labels(context: &mut SyncContext) -> Result<()> {
    let pool = &context.syncing.pool;
    let uberblock = Uberblock {
        txg: context.syncing.txg,
        timestamp_s: pool.runtime().unix_time_ns() / 1_000_000_000,
        rootbp: *context.engine.mos.on_disk().bp(),
        checkpoint_txg: Txg(0),
        ..*pool.uberblock()
    };
    let uberblock = context.engine.multihost.stamp(uberblock);
    let config = context.engine.config.lock().clone();
    let all: Vec<VdevId> = config.vdev_tree.children.iter().map(|top| VdevId(top.id)).collect();
    let dirty = if context.config_changed { &all[..] } else { &[] };
    let began = context.engine.runtime.now();
    pool.labels().write(&LabelUpdate { config: &config, uberblock: &uberblock, dirty }).await?;
    pool.lacking().witnessed().await?;
    if context.config_changed {
        pool.tree().learn_objects(&config.vdev_tree.children);
    }
    let pool = pool.at(&uberblock).waiting(Waits::Never);
    let mos = context.engine.mos.on_disk().in_view(&pool);
    let renames = context.engine.renames.load(Ordering::Acquire);
    *context.engine.on_disk.write() = OnDisk { mos, vdevs: pool.tree().config(), pool, renames };
    context.engine.multihost.synced(&context.engine, began);
    if context.config_changed
        && let Some(listener) = context.engine.told.config_listener.get()
    {
        listener();
    }
    Ok(())
}

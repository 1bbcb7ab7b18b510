//! Runs commands on a pool with forged structures, reading and writing.
//!
//! Loops here are unbounded: the target looks for walks that do not end by themselves.

use cenote_cache::CacheOptions;
use cenote_dataset::{Dataset, ImportOptions, Mos, import};
use cenote_engine::Engine;
use cenote_format::features::SPA_FEATURES;
use cenote_format::units::ObjectId;
use cenote_fs::{Filesystem, FsOptions, FsWriter, Timestamp, replay_logs};
use cenote_inspect::dump::object::{Parts, object, objects};
use cenote_inspect::dump::{Sink, Value};
use cenote_inspect::put::{PutOptions, Putter};
use cenote_inspect::rescue::{Rescue, RescueOptions};
use cenote_inspect::scan::{ScanNeeds, ScanTarget, scan};
use cenote_inspect::verify::{VerifyOptions, verify};
use cenote_object::Objset;
use cenote_pool::{FoundPool, discover_devices};
use cenote_runtime::{Runtime, SimConfig};
use cenote_tasks::{InUse, PoolSetting};

use super::consume;
use crate::forged::{POOL, devices, forge};

/// Steps after which a run counts as endless. An undamaged pool takes some ten thousand.
const STEP_LIMIT: u64 = 5_000_000;
const CACHE_BYTES: usize = 4 << 20;
const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };

/// Reads everything, in every way.
pub fn read(data: &[u8]) {
    run(data, async |runtime, found| {
        let Ok(mos) = import(&runtime, &found, &options()).await else { return };
        consume((mos.pool_properties().await, mos.history().await, mos.features().await));
        consume((mos.damaged_objects().await, mos.pending_destroys().await, mos.checkpoint().await));
        consume(verify(&mos, VerifyOptions::default(), |_| {}).await);
        dump(mos.objset(), Some(&mos)).await;
        for dataset in mos.all_datasets().await.unwrap_or_default() {
            read_dataset(&dataset).await;
            for snapshot in dataset.snapshots().await.unwrap_or_default() {
                read_dataset(&snapshot).await;
            }
        }
        consume(rescue_plan(&runtime, &found).await);
    });
}

/// Changes the pool as commands do. The first byte selects the commands.
pub fn write(data: &[u8]) {
    let Some((&command, changes)) = data.split_first() else { return };
    run(changes, async |runtime, found| {
        let Ok(mos) = import(&runtime, &found, &options()).await else { return };
        let Ok(engine) = Engine::start(&mos).await else { return };
        consume(replay_logs(&engine, NOW).await);
        for turn in 0..3 {
            change(&engine, command.wrapping_add(turn * 5) % 16).await;
        }
        consume(engine.sync_all().await);
    });
}

fn options() -> ImportOptions {
    ImportOptions {
        cache: CacheOptions { data: true, ..CacheOptions::metadata(CACHE_BYTES) },
        ..ImportOptions::default()
    }
}

fn run(changes: &[u8], work: impl AsyncFnOnce(Runtime, FoundPool)) {
    let image = forge(changes);
    let config = SimConfig { step_limit: STEP_LIMIT, ..SimConfig::seed(1) };
    Runtime::simulate(config, |runtime| async move {
        let mut discovery = discover_devices(devices(image)).await;
        let Some(found) = discovery.pools.pop() else { return };
        if let Ok(found) = found.open_for_writing(&runtime).await {
            work(runtime, found).await;
        }
    });
}

async fn dump(objset: &Objset, mos: Option<&Mos>) {
    consume(objects(&mut Silent, objset).await.is_ok());
    let mut dnodes = objset.dnodes(ObjectId(1), objset.last_object());
    while let Some(Ok(batch)) = dnodes.next_batch().await {
        for (id, _) in batch.dnodes {
            let parts = Parts { content: true, blocks: true };
            consume(object(&mut Silent, objset, mos, id, parts).await.is_ok());
        }
    }
}

async fn read_dataset(dataset: &Dataset) {
    consume((dataset.space().await, dataset.properties().await, dataset.bookmarks().await));
    consume((dataset.origin().await, dataset.clones().await, dataset.holds().await));
    if let Ok(Some(previous)) = dataset.previous().await {
        consume(dataset.written_since(&previous).await);
        consume(previous.reclaimable_through(&previous).await);
    }
    let Ok(objset) = dataset.objset().await else { return };
    dump(&objset, None).await;
    consume(objset.intent_log().await);
    let Ok(filesystem) = Filesystem::open(objset).await else { return };
    consume(filesystem.unlinked().await);
    let (name, snapshot) = (dataset.name().to_owned(), dataset.snapshot_name().map(str::to_owned));
    let target = ScanTarget { dataset: name, snapshot, filesystem };
    let needs = ScanNeeds { targets: true, xattrs: true, hashes: true };
    consume(scan(&target, needs, |batch| batch.rows.len(), |_| Ok(())).await);
}

async fn rescue_plan(runtime: &Runtime, found: &FoundPool) -> usize {
    let (snapshots, datasets, back) = (true, Vec::new(), 3);
    let options = RescueOptions { import: options(), snapshots, datasets, back, metadata: true };
    Rescue::new(runtime, found, options).plan().await.map_or(0, |plan| plan.len())
}

async fn change(engine: &Engine, command: u8) {
    let name = |own: &str| format!("{POOL}/{own}");
    let done = match command {
        0 => cenote_tasks::snapshot(engine, &[name("home@new"), name("clone@new")]).await,
        1 => cenote_tasks::destroy_snapshots(engine, &[name("home@b"), name("home@c")], InUse::Defer).await,
        2 => cenote_tasks::destroy_dataset(engine, &name("volume")).await,
        3 => cenote_tasks::destroy_dataset(engine, &name("home/sub")).await,
        4 => cenote_tasks::rename(engine, &name("home"), &name("moved")).await,
        5 => cenote_tasks::promote(engine, &name("clone")).await,
        6 => cenote_tasks::rollback(engine, &name("clone@x")).await,
        7 => cenote_tasks::clone_snapshot(engine, &name("home@c"), &name("home/another"), Vec::new()).await,
        8 => cenote_tasks::set_pool(engine, PoolSetting::Number("autotrim".into(), 1)).await,
        9 => upgrade(engine).await,
        10 => {
            cenote_tasks::set_property(engine, &name("home"), "quota", cenote_dataset::Value::Number(1 << 30))
                .await
        }
        11 => cenote_tasks::release_snapshots(engine, &[name("home@c")], "kept").await,
        12 => cenote_tasks::destroy_bookmark(engine, &name("home#mark")).await,
        13 => cenote_tasks::take_checkpoint(engine).await,
        _ => {
            remove(engine, &name(if command == 14 { "home" } else { "clone" })).await;
            Ok(())
        }
    };
    consume(done);
    consume(engine.frees().finish().await);
}

async fn upgrade(engine: &Engine) -> cenote_object::Result<()> {
    for feature in &SPA_FEATURES {
        cenote_tasks::set_pool(engine, PoolSetting::Feature(feature)).await?;
    }
    Ok(())
}

/// Removes everything in a file system, as `rm -r` does.
async fn remove(engine: &Engine, dataset: &str) {
    let Ok(opened) = engine.dataset(dataset).await else { return };
    let Ok(fs) = FsWriter::open(opened.clone(), FsOptions::default()).await else { return };
    let names = fs.list(fs.root()).await.unwrap_or_default();
    let (root, put) = (fs.root(), PutOptions { replace: true, metadata: true, owner: (0, 0) });
    let putter = Putter::new(engine, dataset, fs, put, |_| {});
    consume(putter.clean_up().await);
    for entry in names {
        consume(putter.remove(root, &entry.name, true).await);
    }
}

/// Accepts a dump and keeps nothing.
struct Silent;

impl Sink for Silent {
    fn open(&mut self, name: &str) {
        consume(name.len());
    }

    fn list(&mut self, name: &str) {
        consume(name.len());
    }

    fn table(&mut self, _: &str, columns: &[&'static str]) {
        consume(columns.len());
    }

    fn row(&mut self, cells: Vec<Value>) {
        consume(cells);
    }

    fn field(&mut self, _: &str, value: Value) {
        consume(value);
    }

    fn close(&mut self) {}

    fn is_closed(&self) -> bool {
        false
    }
}

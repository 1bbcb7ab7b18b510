//! A pool in the simulator: one slow disk, one cache, one policy; and what came of a test.

use std::sync::Arc;
use std::time::Duration;

use cenote_cache::{CacheOptions, CacheStats};
use cenote_dataset::{ImportOptions, KeySource, import};
use cenote_device::{Counted, Counters, Delayed, Device, Latency, MemoryDevice, Op};
use cenote_engine::Engine;
use cenote_format::features::SPA_FEATURES;
use cenote_format::label::PoolState;
use cenote_format::units::Txg;
use cenote_fs::write::{NewFilesystem, create_filesystem};
use cenote_fs::{Change, FsOptions, FsWriter, Timestamp};
use cenote_object::LiveObjset;
use cenote_policy::PolicyName;
use cenote_pool::create::{NewDevice, NewVdev, plan};
use cenote_pool::{VdevClass, VdevKind, discover_devices};
use cenote_runtime::{Runtime, SimConfig};
use cenote_tasks::NewPool;

use super::work::{self, Scale, Test};

const POOL: &str = "arc";
const DISK_BYTES: usize = 256 << 20;
/// A disk as the patches were measured on, with some luck of the head.
const DISK: Latency = Latency {
    fixed: Duration::from_millis(4),
    jitter: Duration::from_millis(4),
    bytes_per_s: std::num::NonZeroU64::new(150 << 20),
};
/// Changes in memory at most.
const DIRTY_BYTES: u64 = 16 << 20;
/// A cache that holds all of it: what a test needs is made with it.
const AMPLE_BYTES: usize = 1 << 30;

/// What came of a test with a policy.
#[derive(Debug, Clone)]
pub struct Run {
    pub test: Test,
    pub policy: PolicyName,
    /// Reads of the disk, and bytes.
    pub reads: u64,
    pub read_bytes: u64,
    pub inodes: u64,
    pub took: Duration,
    pub stats: CacheStats,
    pub panels: Vec<Panel>,
}

/// A look at the cache while a test runs.
#[derive(Debug, Clone)]
pub struct Panel {
    pub at: Duration,
    pub inodes: u64,
    pub reads: u64,
    pub stats: CacheStats,
}

/// A test under way.
pub struct Bench {
    pub rt: Runtime,
    pub engine: Engine,
    pub fs: FsWriter,
    begun: cenote_runtime::Instant,
    counters: Arc<Counters>,
    reads_before: u64,
    bytes_before: u64,
    stats_before: CacheStats,
    inodes: u64,
    panels: Vec<Panel>,
    every: u64,
}

impl Bench {
    /// So many inodes were made.
    pub fn made(&mut self, inodes: u64) {
        let before = self.inodes / self.every;
        self.inodes += inodes;
        if self.inodes / self.every > before {
            let panel = self.look();
            self.panels.push(panel);
        }
    }

    fn look(&self) -> Panel {
        Panel {
            at: self.rt.now().since(self.begun),
            inodes: self.inodes,
            reads: self.counters.of(Op::Read).operations - self.reads_before,
            stats: self.engine.cache().stats().since(&self.stats_before),
        }
    }
}

/// Runs a test with a policy.
///
/// # Errors
/// The engine fails, which it does not.
pub fn run(test: Test, policy: PolicyName, scale: Scale) -> Result<Run, String> {
    // A step is a task that is polled once.
    let config = SimConfig { step_limit: u64::MAX, ..SimConfig::seed(2110) };
    Runtime::simulate(config, |rt| run_in(rt, test, policy, scale)).0
}

async fn run_in(rt: Runtime, test: Test, policy: PolicyName, scale: Scale) -> Result<Run, String> {
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new("disk", DISK_BYTES));
    let engine = create(&rt, memory.clone()).await?;
    let fs = FsWriter::shared(&engine, POOL).await.map_err(said)?;
    work::prepare(&engine, &fs, test, scale).await?;
    engine.sync_all().await.map_err(said)?;
    drop(fs);
    engine.close(PoolState::Exported).await.map_err(said)?;
    drop(engine);

    let slow = Arc::new(Delayed::new(memory, DISK, &rt));
    let counters = Arc::<Counters>::default();
    let counted = Counted::new(slow, counters.clone(), &rt);
    let cache = CacheOptions { budget_bytes: scale.cache_bytes as usize, policy, data: true };
    let engine = open(&rt, Arc::new(counted), cache).await?;
    engine.set_dirty_bytes_max(DIRTY_BYTES);
    let background = engine.sync_in_background();
    let fs = FsWriter::shared(&engine, POOL).await.map_err(said)?;
    let before = counters.of(Op::Read);
    let mut bench = Bench {
        begun: rt.now(),
        reads_before: before.operations,
        bytes_before: before.bytes,
        stats_before: engine.cache().stats(),
        inodes: 0,
        panels: Vec::new(),
        every: (scale.inodes_of(test) / 40).max(1),
        rt,
        engine,
        fs,
        counters,
    };
    work::run(&mut bench, test, scale).await?;
    bench.engine.sync_all().await.map_err(said)?;
    drop(background);
    let last = bench.look();
    let read = bench.counters.of(Op::Read);
    Ok(Run {
        test,
        policy,
        reads: read.operations - bench.reads_before,
        read_bytes: read.bytes - bench.bytes_before,
        inodes: bench.inodes,
        took: last.at,
        stats: last.stats,
        panels: bench.panels,
    })
}

pub fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

async fn create(rt: &Runtime, disk: Arc<dyn Device>) -> Result<Engine, String> {
    let device = NewDevice { path: disk.describe().to_owned(), device: disk, is_file: false };
    let vdev = NewVdev {
        kind: VdevKind::Disk,
        parity: 0,
        draid: None,
        class: VdevClass::Normal,
        devices: vec![device],
    };
    let new = NewPool {
        plan: plan(rt, POOL, &[vdev], None, (1, "lab"), Txg(4)).map_err(said)?,
        features: SPA_FEATURES.iter().collect(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        keys: KeySource::default(),
        cache: CacheOptions { data: true, ..CacheOptions::metadata(AMPLE_BYTES) },
    };
    let now = Timestamp::of_unix_ns(rt.unix_time_ns());
    let fill = Box::new(move |live: LiveObjset| -> futures::future::BoxFuture<'static, _> {
        Box::pin(async move {
            let edit = live.edit();
            let change = Change { edit: &edit, now };
            // A new object set takes it, or nothing would.
            let made =
                create_filesystem(&live, change, &NewFilesystem::default(), FsOptions::default()).await;
            made.map(drop)
                .map_err(|error| live.view().damaged(cenote_format::units::ObjectId(1), error.to_string()))
        })
    });
    cenote_tasks::create_pool(rt, new, fill).await.map_err(said)
}

async fn open(rt: &Runtime, disk: Arc<dyn Device>, cache: CacheOptions) -> Result<Engine, String> {
    let discovery = discover_devices(vec![disk]).await;
    let found = discovery.pools.first().ok_or("the pool is not found again")?;
    let found = found.open_for_writing(rt).await.map_err(said)?;
    let mos = import(rt, &found, &ImportOptions { cache, ..ImportOptions::default() }).await.map_err(said)?;
    Engine::start(&mos).await.map_err(said)
}

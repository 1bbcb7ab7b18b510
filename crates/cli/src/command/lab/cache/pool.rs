//! The pool of a run, its devices, and what came of it.

use std::sync::Arc;
use std::time::Duration;

use cenote_cache::{CacheOptions, CacheStats};
use cenote_dataset::Value;
use cenote_device::{Counted, Counters, Delayed, Device, Latency, MemoryDevice, Op};
use cenote_engine::{Engine, L2Stats};
use cenote_format::label::PoolState;
use cenote_format::units::Guid;
use cenote_fs::FsWriter;
use cenote_policy::PolicyName;
use cenote_pool::VdevClass;
use cenote_runtime::{AbortOnDrop, Runtime, SimConfig};

use super::super::model::{POOL, Spinning, create, open, said};
use super::work::{BLOCK_BYTES, Bench, Case, Effort, MEMORY_BYTES, SECOND_BYTES, Second, Took};

const DISK_BYTES: usize = 384 << 20;
const LOG_BYTES: usize = 128 << 20;
const DIRTY_BYTES: u64 = 16 << 20;
/// `ZIO_COMPRESS_OFF`.
const COMPRESS_OFF: u64 = 2;
const SECOND: Guid = Guid(7);
const SECOND_ASHIFT: u32 = 12;
/// Flash that is read from.
const FLASH: Latency = Latency {
    fixed: Duration::from_micros(80),
    jitter: Duration::from_micros(20),
    bytes_per_s: std::num::NonZeroU64::new(2_000_000_000),
};
/// Flash whose writes are durable at once.
const LOG: Latency = Latency { fixed: Duration::from_micros(30), ..FLASH };

/// What came of a case.
pub struct Run {
    pub case: Case,
    pub operations: u64,
    pub took: Duration,
    pub p50: Duration,
    pub p99: Duration,
    /// Reads and writes of the disk meanwhile.
    pub disk_reads: u64,
    pub disk_writes: u64,
    pub stats: CacheStats,
    pub second: L2Stats,
}

/// The devices of a pool, which hold what they hold and take no time.
struct Devices {
    disk: Arc<dyn Device>,
    log: Option<Arc<dyn Device>>,
    second: Arc<dyn Device>,
}

/// Runs a case.
///
/// # Errors
/// The engine fails, which it does not.
pub fn run(case: Case, effort: Effort) -> Result<Run, String> {
    let config = SimConfig { step_limit: u64::MAX, ..SimConfig::seed(2) };
    Runtime::simulate(config, |rt| run_in(rt, case, effort)).0
}

async fn run_in(rt: Runtime, case: Case, effort: Effort) -> Result<Run, String> {
    let memory = |name, bytes| -> Arc<dyn Device> { Arc::new(MemoryDevice::new(name, bytes)) };
    let has_log = matches!(case, Case::Durable { has_log: true, .. });
    let devices = Devices {
        disk: memory("disk", DISK_BYTES),
        log: has_log.then(|| memory("log", LOG_BYTES)),
        second: memory("cache", SECOND_BYTES),
    };
    let new = [(devices.disk.clone(), VdevClass::Normal)].into_iter();
    let new = new.chain(devices.log.clone().map(|log| (log, VdevClass::Log))).collect();
    let properties = [("compression", COMPRESS_OFF), ("recordsize", BLOCK_BYTES)]
        .map(|(n, v)| (n.to_owned(), Value::Number(v)));
    let engine = create(&rt, new, properties.into()).await?;
    let bench = Bench { rt: rt.clone(), fs: FsWriter::shared(&engine, POOL).await.map_err(said)?, engine };
    bench.fill(case.file_bytes()).await?;
    close(bench).await?;

    let counters = Arc::<Counters>::default();
    if let Case::Reads { working_set_bytes, second: Second::Warm } = case {
        let bench = opened(&rt, &devices, &counters).await?;
        let feeding = use_second(&bench.engine, &devices).await?;
        // Twice: what was read once may be let go before the device takes it.
        bench.reads(working_set_bytes, effort, 1).await?;
        bench.reads(working_set_bytes, effort, 2).await?;
        drop(feeding);
        bench.engine.cache_devices().end().await;
        close(bench).await?;
    }
    let bench = opened(&rt, &devices, &counters).await?;
    let feeding = match case {
        Case::Reads { second: Second::Cold | Second::Warm, .. } => {
            let feeding = use_second(&bench.engine, &devices).await?;
            bench.engine.cache_devices().rebuild().await;
            Some(feeding)
        }
        _ => None,
    };
    let background = bench.engine.sync_in_background();
    let before = [Op::Read, Op::Write].map(|op| counters.of(op).operations);
    let Took { each, whole } = match case {
        Case::Reads { working_set_bytes, .. } => bench.reads(working_set_bytes, effort, 0).await?,
        Case::Durable { clients, .. } => bench.durable_writes(clients, effort).await?,
    };
    let after = [Op::Read, Op::Write].map(|op| counters.of(op).operations);
    let (stats, second) = (bench.engine.cache().stats(), bench.engine.cache_devices().stats());
    drop((feeding, background));
    let at = |percent: usize| each.get(each.len() * percent / 100).copied().unwrap_or_default();
    Ok(Run {
        case,
        operations: each.len() as u64,
        took: whole,
        p50: at(50),
        p99: at(99),
        disk_reads: after[0] - before[0],
        disk_writes: after[1] - before[1],
        stats,
        second,
    })
}

async fn close(bench: Bench) -> Result<(), String> {
    let Bench { engine, fs, .. } = bench;
    drop(fs);
    engine.close(PoolState::Exported).await.map_err(said)
}

/// The pool on devices that take their time.
async fn opened(rt: &Runtime, devices: &Devices, counters: &Arc<Counters>) -> Result<Bench, String> {
    let disk = Arc::new(Spinning::new(devices.disk.clone(), rt));
    let disk: Arc<dyn Device> = Arc::new(Counted::new(disk, counters.clone(), rt));
    let log = devices.log.clone().map(|log| -> Arc<dyn Device> { Arc::new(Delayed::new(log, LOG, rt)) });
    let cache = CacheOptions { budget_bytes: MEMORY_BYTES as usize, policy: PolicyName::OpenZfs, data: true };
    let engine = open(rt, [disk].into_iter().chain(log).collect(), cache).await?;
    engine.set_dirty_bytes_max(DIRTY_BYTES);
    Ok(Bench { rt: rt.clone(), fs: FsWriter::shared(&engine, POOL).await.map_err(said)?, engine })
}

/// The cache device joins, and is fed until what this answers is dropped.
async fn use_second(engine: &Engine, devices: &Devices) -> Result<AbortOnDrop<()>, String> {
    // So small a device would not be warm after an import otherwise.
    let settings = engine.cache_devices().settings();
    settings.set("l2arc_rebuild_blocks_min_l2size", 0).map_err(said)?;
    let flash = Delayed::new(devices.second.clone(), FLASH, engine.runtime());
    if !engine.use_cache_device(SECOND, SECOND_ASHIFT, Arc::new(flash)).await {
        return Err("the cache device is of no use".into());
    }
    Ok(engine.runtime().spawn(engine.feed_cache_devices()).abort_on_drop())
}

//! A run: one case on its devices.

use std::sync::Arc;
use std::time::Duration;

use cenote_cache::CacheOptions;
use cenote_dataset::Value;
use cenote_device::{Counted, Counters, Delayed, Device, Latency, MemoryDevice};
use cenote_engine::L2Stats;
use cenote_format::units::Guid;
use cenote_policy::PolicyName;
use cenote_pool::VdevClass;
use cenote_runtime::{AbortOnDrop, Runtime};
use serde::Serialize;

use super::case::{Case, MEMORY_BYTES, SECOND_BYTES, Second};
use super::work::BLOCK_BYTES;
use crate::bench::{Bench, Load, Meter, Spinning, Steps, open};
use crate::error::{Result, StudyError};

const DISK_BYTES: usize = 384 << 20;
const LOG_BYTES: usize = 128 << 20;
/// `ZIO_COMPRESS_OFF`.
const COMPRESS_OFF: u64 = 2;
const SECOND: Guid = Guid(7);
const SECOND_ASHIFT: u32 = 12;
/// Flash of the cache device.
const FLASH: Latency = Latency {
    fixed: Duration::from_micros(80),
    jitter: Duration::from_micros(20),
    bytes_per_s: std::num::NonZeroU64::new(2_000_000_000),
};
/// Flash with writes durable at once.
const LOG: Latency = Latency { fixed: Duration::from_micros(30), ..FLASH };

/// Result of a case.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// Case that ran.
    #[serde(skip)]
    pub case: Case,
    /// Load, without the device.
    pub load: String,
    /// Device under test.
    pub device: &'static str,
    /// Client operations.
    pub operations: u64,
    /// Seconds of virtual time.
    pub seconds: f64,
    /// Median latency.
    pub p50_ns: u64,
    /// 99th percentile of latency.
    pub p99_ns: u64,
    /// Data look-ups that hit memory.
    pub data_hits: u64,
    /// Data look-ups that missed memory.
    pub data_misses: u64,
    /// Memory misses that hit the cache device.
    pub l2_hits: u64,
    /// Memory misses that missed it.
    pub l2_misses: u64,
    /// Disk reads.
    pub disk_reads: u64,
    /// Disk writes.
    pub disk_writes: u64,
}

impl Run {
    /// Operations per second.
    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Loaded {
    pub(super) case: Case,
    pub(super) reads: u64,
}

impl Load for Loaded {
    type Run = Run;
    const SEED: u64 = 2;

    fn name(&self) -> String {
        self.case.to_string()
    }

    fn steps(&self) -> u64 {
        0
    }

    fn result(run: &Run) -> String {
        run.in_short()
    }

    async fn run(self, rt: Runtime, _: Steps) -> Result<Run> {
        let Loaded { case, reads } = self;
        let devices = Devices::new(&rt, case);
        devices.make_pool(case).await?;
        if let Case::Reads { working_set_bytes, second: Second::Warm } = case {
            let bench = devices.open_pool().await?;
            let feeding = devices.feed(&bench).await?;
            // Read twice: blocks read only once may be evicted before the cache device takes them.
            bench.reads(working_set_bytes, reads, 1).await?;
            bench.reads(working_set_bytes, reads, 2).await?;
            drop(feeding);
            bench.engine.l2arc().devices().end().await;
            bench.close().await?;
        }
        let bench = devices.open_pool().await?;
        let feeding = match case {
            Case::Reads { second: Second::Cold | Second::Warm, .. } => {
                let feeding = devices.feed(&bench).await?;
                bench.engine.l2arc().devices().rebuild().await;
                Some(feeding)
            }
            _ => None,
        };
        let background = bench.engine.sync_in_background();
        let meter = Meter::begin(&bench, &devices.counters);
        let took = match case {
            Case::Reads { working_set_bytes, .. } => bench.reads(working_set_bytes, reads, 0).await?,
            Case::Durable { clients, .. } => bench.durable_writes(clients, reads).await?,
        };
        let seen = meter.look(&bench);
        let L2Stats { hits, misses, .. } = bench.engine.l2arc().devices().stats();
        drop((feeding, background));
        let [p50_ns, p99_ns] = [50, 99].map(|percent| took.percentile(percent).as_nanos() as u64);
        Ok(Run {
            case,
            load: case.load(),
            device: case.device(),
            operations: took.operations(),
            seconds: took.whole.as_secs_f64(),
            p50_ns,
            p99_ns,
            data_hits: seen.stats.data.hits,
            data_misses: seen.stats.data.misses,
            l2_hits: hits,
            l2_misses: misses,
            disk_reads: seen.disk.reads,
            disk_writes: seen.disk.writes,
        })
    }
}

/// The pool's memory devices, which keep their content between opens and take no time.
struct Devices {
    rt: Runtime,
    disk: Arc<dyn Device>,
    log: Option<Arc<dyn Device>>,
    second: Arc<dyn Device>,
    /// Operations of the modelled disk.
    counters: Arc<Counters>,
}

impl Devices {
    fn new(rt: &Runtime, case: Case) -> Devices {
        let memory = |name, bytes| -> Arc<dyn Device> { Arc::new(MemoryDevice::new(name, bytes)) };
        let has_log = matches!(case, Case::Durable { has_log: true, .. });
        Devices {
            rt: rt.clone(),
            disk: memory("disk", DISK_BYTES),
            log: has_log.then(|| memory("log", LOG_BYTES)),
            second: memory("cache", SECOND_BYTES as usize),
            counters: Arc::default(),
        }
    }

    async fn make_pool(&self, case: Case) -> Result<()> {
        let new = [(self.disk.clone(), VdevClass::Normal)].into_iter();
        let new = new.chain(self.log.clone().map(|log| (log, VdevClass::Log))).collect();
        let properties = [("compression", COMPRESS_OFF), ("recordsize", BLOCK_BYTES)]
            .map(|(name, value)| (name.to_owned(), Value::Number(value)));
        let bench = Bench::make(&self.rt, new, properties.into()).await?;
        bench.fill(case.file_bytes()).await?;
        bench.close().await
    }

    async fn open_pool(&self) -> Result<Bench> {
        let disk = Arc::new(Spinning::new(self.disk.clone(), &self.rt));
        let disk: Arc<dyn Device> = Arc::new(Counted::new(disk, self.counters.clone(), &self.rt));
        let log = self.log.clone();
        let log = log.map(|log| -> Arc<dyn Device> { Arc::new(Delayed::new(log, LOG, &self.rt)) });
        let budget_bytes = MEMORY_BYTES as usize;
        let cache = CacheOptions { budget_bytes, policy: PolicyName::OpenZfs, data: true };
        let engine = open(&self.rt, [disk].into_iter().chain(log).collect(), cache).await?;
        Bench::of(&self.rt, engine).await
    }

    /// Adds the cache device and feeds it until the returned guard is dropped.
    async fn feed(&self, bench: &Bench) -> Result<AbortOnDrop<()>> {
        let engine = &bench.engine;
        // By default, so small a device is cold after an import.
        engine.l2arc().devices().settings().set("l2arc_rebuild_blocks_min_l2size", 0)?;
        let flash = Delayed::new(self.second.clone(), FLASH, &self.rt);
        if !engine.l2arc().add(SECOND, SECOND_ASHIFT, Arc::new(flash)).await {
            return Err(StudyError::Bench("the cache device is of no use"));
        }
        Ok(self.rt.spawn(engine.l2arc().feed()).abort_on_drop())
    }
}

//! A pool in the simulator: one slow disk, one cache, one policy; and what came of a test.

use std::sync::Arc;
use std::time::Duration;

use cenote_cache::{CacheOptions, CacheStats};
use cenote_device::{Counted, Counters, Delayed, Device, Latency, MemoryDevice, Op};
use cenote_engine::Engine;
use cenote_format::label::PoolState;
use cenote_fs::FsWriter;
use cenote_policy::PolicyName;
use cenote_pool::VdevClass;
use cenote_runtime::{Runtime, SimConfig};

use super::super::model::{POOL, create, open, said};
use super::Made;
use super::work::{self, Scale, Test};

const DISK_BYTES: usize = 256 << 20;
/// A disk as the patches were measured on, with some luck of the head.
const DISK: Latency = Latency {
    fixed: Duration::from_millis(4),
    jitter: Duration::from_millis(4),
    bytes_per_s: std::num::NonZeroU64::new(150 << 20),
};
/// Changes in memory at most.
const DIRTY_BYTES: u64 = 16 << 20;

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
    made: Made,
}

impl Bench {
    /// So many inodes were made.
    pub fn made(&mut self, inodes: u64) {
        let before = self.inodes / self.every;
        self.inodes += inodes;
        self.made.add(inodes);
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
pub fn run(test: Test, policy: PolicyName, scale: Scale, made: Made) -> Result<Run, String> {
    // A step is a task that is polled once.
    let config = SimConfig { step_limit: u64::MAX, ..SimConfig::seed(2110) };
    Runtime::simulate(config, |rt| run_in(rt, (test, policy, scale), made)).0
}

async fn run_in(
    rt: Runtime,
    (test, policy, scale): (Test, PolicyName, Scale),
    made: Made,
) -> Result<Run, String> {
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new("disk", DISK_BYTES));
    let engine = create(&rt, vec![(memory.clone(), VdevClass::Normal)], Vec::new()).await?;
    let fs = FsWriter::shared(&engine, POOL).await.map_err(said)?;
    work::prepare(&engine, &fs, test, scale, &made).await?;
    engine.sync_all().await.map_err(said)?;
    drop(fs);
    engine.close(PoolState::Exported).await.map_err(said)?;
    drop(engine);

    let slow = Arc::new(Delayed::new(memory, DISK, &rt));
    let counters = Arc::<Counters>::default();
    let counted = Counted::new(slow, counters.clone(), &rt);
    let cache = CacheOptions { budget_bytes: scale.cache_bytes as usize, policy, data: true };
    let engine = open(&rt, vec![Arc::new(counted)], cache).await?;
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
        made,
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

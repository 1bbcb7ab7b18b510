//! A run: one test with one policy, on one slow disk.

use std::sync::Arc;

use cenote_cache::{CacheOptions, CacheStats};
use cenote_device::{Counted, Counters, Delayed, Device, MemoryDevice};
use cenote_policy::PolicyName;
use cenote_pool::VdevClass;
use cenote_runtime::Runtime;
use serde::{Serialize, Serializer};

use super::test::{Scale, Test};
use super::work;
use crate::bench::{Bench, DISK, Load, Meter, Seen, Steps, open};
use crate::error::Result;

const DISK_BYTES: usize = 256 << 20;
const PANELS: u64 = 40;

/// Result of a test with a policy.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// Test that ran.
    pub test: Test,
    /// Policy of the cache.
    #[serde(serialize_with = "by_name")]
    pub policy: PolicyName,
    /// Disk reads.
    pub reads: u64,
    /// Bytes read from disk.
    pub read_bytes: u64,
    /// Created inodes.
    pub inodes: u64,
    /// Seconds of virtual time.
    pub seconds: f64,
    /// Metadata look-ups that missed.
    pub metadata_misses: u64,
    /// Data look-ups that missed.
    pub data_misses: u64,
    /// Cache content at the end.
    #[serde(skip)]
    pub held: Held,
    /// Samples taken meanwhile.
    #[serde(skip)]
    pub panels: Vec<Panel>,
}

/// Content of a cache.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// Bytes of metadata.
    pub metadata_bytes: u64,
    /// Bytes of data.
    pub data_bytes: u64,
    /// `arc_p`, if the policy has one.
    pub p_bytes: Option<u64>,
}

/// A cache sample.
#[derive(Debug, Clone)]
pub struct Panel {
    /// Seconds since the test began.
    pub seconds: f64,
    /// Created inodes.
    pub inodes: u64,
    /// Disk reads.
    pub reads: u64,
    /// The cache.
    pub stats: CacheStats,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Loaded {
    pub(super) test: Test,
    pub(super) policy: PolicyName,
    pub(super) scale: Scale,
}

impl Load for Loaded {
    type Run = Run;
    const SEED: u64 = 2110;

    fn name(&self) -> String {
        format!("test {}, {}", self.test.number(), self.policy)
    }

    fn steps(&self) -> u64 {
        self.scale.total_of(self.test)
    }

    fn result(run: &Run) -> String {
        format!("{} reads", run.reads)
    }

    async fn run(self, rt: Runtime, steps: Steps) -> Result<Run> {
        let Loaded { test, policy, scale } = self;
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new("disk", DISK_BYTES));
        let bench = Bench::make(&rt, vec![(memory.clone(), VdevClass::Normal)], Vec::new()).await?;
        work::prepare(&bench, test, scale, &steps).await?;
        bench.engine.sync_all().await?;
        bench.close().await?;

        let slow = Arc::new(Delayed::new(memory, DISK, &rt));
        let counters = Arc::<Counters>::default();
        let counted = Counted::new(slow, counters.clone(), &rt);
        let cache = CacheOptions { budget_bytes: scale.cache_bytes as usize, policy, data: true };
        let engine = open(&rt, vec![Arc::new(counted)], cache).await?;
        let background = engine.sync_in_background();
        let bench = Bench::of(&rt, engine).await?;
        let meter = Meter::begin(&bench, &counters);
        let mut watched =
            Watched { inodes: 0, panels: Vec::new(), every: (scale.inodes_of(test) / PANELS).max(1), steps };
        work::run(&bench, test, scale, |inodes| watched.made(inodes, || meter.look(&bench))).await?;
        bench.engine.sync_all().await?;
        drop(background);
        let Seen { at, disk, stats } = meter.look(&bench);
        Ok(Run {
            test,
            policy,
            reads: disk.reads,
            read_bytes: disk.read_bytes,
            inodes: watched.inodes,
            seconds: at.as_secs_f64(),
            metadata_misses: stats.metadata.misses,
            data_misses: stats.data.misses,
            held: Held::of(&stats),
            panels: watched.panels,
        })
    }
}

impl Held {
    fn of(stats: &CacheStats) -> Held {
        Held {
            metadata_bytes: stats.metadata.content_bytes,
            data_bytes: stats.data.content_bytes,
            p_bytes: stats.gauges.iter().find(|(name, _)| *name == "p").map(|(_, value)| *value),
        }
    }
}

struct Watched {
    inodes: u64,
    panels: Vec<Panel>,
    /// Inodes between two samples.
    every: u64,
    steps: Steps,
}

impl Watched {
    fn made(&mut self, inodes: u64, look: impl FnOnce() -> Seen) {
        let before = self.inodes / self.every;
        self.inodes += inodes;
        self.steps.add(inodes);
        if self.inodes / self.every > before {
            let Seen { at, disk, stats } = look();
            let (seconds, inodes, reads) = (at.as_secs_f64(), self.inodes, disk.reads);
            self.panels.push(Panel { seconds, inodes, reads, stats });
        }
    }
}

fn by_name<S: Serializer>(policy: &PolicyName, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(policy.name())
}

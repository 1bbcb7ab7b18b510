//! Verification: every live block, every copy and parity column of it, and the space maps.
//!
//! Idea: the walk over metadata only collects block pointers ([`cenote_dataset::traverse`]); blocks are read
//! in disk order, many at once ([`check`]). Both proceed in windows. Each block is met once, however many
//! snapshots, clones or dedup references share it, so space can be summed and compared with the space maps
//! ([`space`]).
//!
//! ```text
//!   uberblock -> tree, logs, pending frees --pointers--> census ----> counts        as zdb -b
//!                                                           |-------> extents ----> compared with space maps
//!                                                           `-------> window --sorted--> Pool::verify_many
//!                                                                                            |
//!                                       report <-- owners: dataset, snapshots, path <-- damage
//! ```
//!
//! Intact blocks without redundancy are not safe: that is a finding, too ([`redundancy`]).
//!
//! Only metadata is decrypted and decompressed. Checksums cover the stored bytes, so encrypted datasets are
//! verified without their keys.
//!
//! A pool in use is verified as of its last txg: the tree keeps its space ([`cenote_pool::alloc::KeptSpace`])
//! until the run ends. If the pool runs short and takes it back, the report ends there, marked incomplete.
//!
//! Memory: a window of pointers (64 MiB by default), a batch of metadata, 16 bytes per gap between extents,
//! and the kept findings. Dropping the future stops everything; [`Stop`] stops it with a partial report.
//!
//! Locking: none. One task walks the tree and sends batches to the verifying task, which owns all state; the
//! channel's bound ([`QUEUED_BATCHES`]) slows the walk down.
//!
//! Source: OpenZFS `zdb.c` (`dump_block_stats`), for the counts.

mod census;
mod check;
mod counts;
mod extent;
mod family;
mod findings;
mod owner;
mod progress;
mod redundancy;
mod report;
mod sharing;
mod space;

use cenote_dataset::Mos;
use cenote_dataset::traverse::{Log, Met, Tree, pending_blocks};
use cenote_format::dnode::ObjectType;
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_pool::{Pool, VerifyItem, Zbookmark};
use futures::SinkExt;
use futures::StreamExt;
use futures::channel::mpsc;
use std::collections::BTreeSet;

use crate::error::Result;
use census::Census;
use check::check_window;
use counts::Under;
use extent::{ExtentSet, subtract};
use findings::{Findings, Found, Names, device_name};
use progress::Meter;
use space::SpaceMaps;

pub use counts::{Counts, Shared, Sums, TypeSums};
pub use extent::Extent;
pub use owner::{Owner, Part};
pub use progress::{Progress, Stop};
pub use redundancy::{UnsoundDevice, WeakVdev};
pub use report::{
    BadBlock, BadPiece, DatasetDamage, DeviceDamage, FaultKind, Finding, LaggingDevice, Severity, SpaceSums,
    VerifyReport,
};
pub use space::ClassSpace;

const QUEUED_BATCHES: usize = 4;

/// Options of a verification.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// Read data blocks too, not only metadata.
    pub data: bool,
    /// Compare the blocks with the space maps.
    pub space: bool,
    /// Number of findings to report, worst first; the rest are only counted.
    pub max_findings: usize,
    /// Memory for pointers to blocks waiting to be verified.
    pub window_bytes: usize,
    /// Stops the verification early.
    pub stop: Stop,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        VerifyOptions {
            data: true,
            space: true,
            max_findings: 10_000,
            window_bytes: 64 << 20,
            stop: Stop::default(),
        }
    }
}

/// Verifies a pool. `progress` is called every few dozen megabytes.
///
/// # Errors
/// Only those that make the whole verification meaningless. Damage is in the report.
pub async fn verify(mos: &Mos, options: VerifyOptions, progress: impl Fn(Progress)) -> Result<VerifyReport> {
    let mut run = Run::start(mos, options).await?;
    run.space_maps().await;
    run.walk(&progress).await;
    run.pending_frees().await;
    run.check(&progress).await;
    run.compare_space();
    run.redundancy();
    Ok(run.report().await)
}

struct Run<'a> {
    mos: &'a Mos,
    options: VerifyOptions,
    census: Census,
    meter: Meter,
    allocated: ExtentSet,
    findings: Findings,
    space: SpaceSums,
    /// Vdevs whose space maps were read.
    mapped: BTreeSet<VdevId>,
}

impl<'a> Run<'a> {
    async fn start(mos: &'a Mos, options: VerifyOptions) -> Result<Run<'a>> {
        Ok(Run {
            mos,
            census: Census::open(mos, options.space).await?,
            meter: Meter::new(mos.pool().runtime(), 0),
            allocated: ExtentSet::default(),
            findings: Findings::new(options.max_findings, Names::now(mos.pool())),
            space: SpaceSums { checked: options.space, ..SpaceSums::default() },
            mapped: BTreeSet::new(),
            options,
        })
    }

    /// Reads the space maps. This comes first, since they tell how much there is to verify.
    async fn space_maps(&mut self) {
        let mut maps = match SpaceMaps::load(self.mos).await {
            Ok(maps) => maps,
            Err(error) => return self.unchecked("space maps".into(), error.to_string()),
        };
        for top in &self.mos.pool_config().vdevs {
            let bad: Vec<(String, String)> = match maps.vdev(self.mos, top, &mut self.allocated).await {
                Err(error) => vec![(format!("space of vdev {}", top.id), error.to_string())],
                Ok(metaslabs) => {
                    if metaslabs.is_empty() {
                        self.mapped.insert(VdevId(top.id));
                    }
                    let why = "its space map allocates an allocated range, or frees a free one";
                    let what = |metaslab| format!("space of vdev {} metaslab {metaslab}", top.id);
                    metaslabs.into_iter().map(|metaslab| (what(metaslab), why.to_owned())).collect()
                }
            };
            bad.into_iter().for_each(|(what, why)| self.unchecked(what, why));
        }
        self.allocated.settle();
        self.census.claim_copies(maps.copies());
        self.space.classes = maps.classes();
        self.meter.total_bytes = self.space.classes.iter().map(|class| class.allocated_bytes).sum();
    }

    /// Walks all metadata, and verifies whenever a window is full.
    async fn walk(&mut self, progress: &impl Fn(Progress)) {
        let pool = self.mos.pool().clone();
        let (mut sender, mut batches) = mpsc::channel::<Vec<Met>>(QUEUED_BATCHES);
        let walker = pool.clone();
        let task = pool.runtime().spawn(async move {
            let mut met = Vec::new();
            let mut tree = Tree::new(&walker, walker.uberblock().rootbp, &mut met);
            while tree.step(&mut met).await {
                if sender.send(std::mem::take(&mut met)).await.is_err() {
                    return;
                }
            }
        });
        let _task = task.abort_on_drop();
        while let Some(batch) = batches.next().await {
            if self.is_stopped() {
                return;
            }
            for met in batch {
                match met {
                    Met::Block { bp, place } => {
                        let verify = self.wanted(bp.level(), bp.object_type());
                        self.census.enter(bp, place, Under::Type, verify);
                    }
                    Met::Log(log) => self.enter_log(&pool, &log).await,
                    Met::Nonsense { place, why } => self.findings.add(Found::Structure(place, why)),
                }
            }
            self.census.open_gangs().await;
            if self.census.window.len() * size_of::<VerifyItem>() >= self.options.window_bytes {
                self.check(progress).await;
            }
        }
    }

    /// Whether the run is over: it was stopped, or the pool in use ran short of space and may have
    /// overwritten blocks freed since, so a mismatch proves nothing.
    fn is_stopped(&self) -> bool {
        self.options.stop.is_stopped() || self.is_overtaken()
    }

    fn is_overtaken(&self) -> bool {
        !self.mos.pool().has_whole_tree()
    }

    async fn enter_log(&mut self, pool: &Pool, log: &Log) {
        let uberblock = pool.uberblock();
        let last = match uberblock.checkpoint_txg {
            Txg(0) => uberblock.txg,
            checkpoint => checkpoint,
        };
        let blocks = log.blocks(pool, Txg(last.0.saturating_add(1))).await;
        for (bp, place) in blocks.live {
            self.census.enter(bp, place, Under::Type, false);
        }
        for place in blocks.lost {
            let why = "a claimed part of the intent log can't be read".into();
            self.findings.add(Found::Structure(place, why));
        }
    }

    /// Enters blocks waiting to be freed.
    async fn pending_frees(&mut self) {
        if self.is_stopped() {
            return;
        }
        self.census.claim_unreferenced();
        let census = &mut self.census;
        let enter = |bp| census.enter(bp, Zbookmark::default(), Under::DeferredFree, false);
        if let Err(error) = pending_blocks(self.mos, enter).await {
            self.unchecked("the list of blocks to be freed".into(), error.to_string());
        }
        self.census.open_gangs().await;
    }

    fn wanted(&self, level: u8, object_type: ObjectType) -> bool {
        self.options.data || level > 0 || object_type.is_metadata()
    }

    /// Verifies the blocks of the window.
    async fn check(&mut self, progress: &impl Fn(Progress)) {
        if self.is_stopped() {
            return;
        }
        let (pool, stop) = (self.mos.pool(), &self.options.stop);
        let (window, meter) = (&mut self.census.window, &mut self.meter);
        check_window(pool, window, meter, stop, progress, |damaged| self.findings.add(Found::Block(damaged)))
            .await;
    }

    /// Compares the referenced space with the allocated space.
    fn compare_space(&mut self) {
        let Some(mut referenced) = self.census.referenced.take() else { return };
        referenced.settle();
        if self.is_stopped() {
            self.space.checked = false;
            return;
        }
        let allocated = std::mem::take(&mut self.allocated);
        // For other vdevs the allocated space is unknown.
        for &vdev in &self.mapped {
            self.space.compared_vdevs += 1;
            let (space, findings) = (&mut self.space, &mut self.findings);
            subtract(allocated.on_vdev(vdev), referenced.on_vdev(vdev), |extent| {
                space.leaked_bytes += extent.len_bytes;
                findings.add(Found::Unowned(Finding::Leaked(extent)));
            });
            subtract(referenced.on_vdev(vdev), allocated.on_vdev(vdev), |extent| {
                space.not_allocated_bytes += extent.len_bytes;
                findings.add(Found::Unowned(Finding::NotAllocated(extent)));
            });
        }
        let (overlaps, bytes) = referenced.overlaps();
        self.space.doubly_allocated_bytes = bytes;
        overlaps.iter().for_each(|&extent| self.find(Finding::DoublyAllocated(extent)));
    }

    fn redundancy(&mut self) {
        for weak in redundancy::weak_vdevs(self.mos.pool()) {
            self.find(Finding::Redundancy(weak));
        }
    }

    fn find(&mut self, finding: Finding) {
        self.findings.add(Found::Unowned(finding));
    }

    /// A list needed for comparing space can't be read.
    fn unchecked(&mut self, what: String, why: String) {
        self.space.checked = false;
        if self.is_overtaken() {
            return;
        }
        self.find(Finding::Unchecked { what, why });
    }

    async fn report(mut self) -> VerifyReport {
        let pool = self.mos.pool();
        let (overtaken, stopped) = (self.is_overtaken(), self.is_stopped());
        for (place, why) in std::mem::take(&mut self.census.bad_addresses) {
            self.findings.add(Found::BadAddress(place, why));
        }
        self.findings.count += self.census.more_bad_addresses;
        let (count, lost_blocks) = (self.findings.count, self.findings.lost_blocks);
        let (repairable_blocks, devices) = (self.findings.repairable_blocks, self.findings.devices(pool));
        let datasets = self.findings.datasets(self.mos).await;
        let findings = self.findings.named(self.mos).await;
        let lagging = redundancy::resilverable(pool).into_iter().map(|leaf| lagging_device(pool, leaf));
        VerifyReport {
            pool: pool.name().to_owned(),
            guid: pool.tree().guid().0,
            txg: pool.uberblock().txg.0,
            complete: !stopped,
            overtaken,
            counts: self.census.counter.finish(),
            verified_blocks: self.meter.blocks,
            verified_bytes: self.meter.done_bytes,
            lost_blocks,
            repairable_blocks,
            datasets,
            devices,
            lagging_devices: lagging.collect(),
            more_findings: count - findings.len() as u64,
            findings,
            space: self.space,
            elapsed_ns: u64::try_from(self.meter.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

fn lagging_device(pool: &Pool, leaf: Guid) -> LaggingDevice {
    // For a pool opened read-only, the txgs noted by its log; only a resilver would know of others.
    let noted = pool.lacking().at_opening().get(&leaf).filter(|runs| !runs.is_empty());
    let missing = match noted.filter(|_| !pool.tree().found().is_writable()) {
        Some(noted) => noted.clone(),
        None => pool.lacking().of_leaf(leaf),
    };
    let missing_txgs = missing.iter().map(|(first, last)| (first.0, last.0)).collect();
    LaggingDevice { device: device_name(pool, leaf), missing_txgs }
}

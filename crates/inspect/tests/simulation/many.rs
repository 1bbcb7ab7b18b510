//! Concurrency: 32 clients work on the file systems of a pool, other tasks give commands, a device leaves and
//! comes back every second, some operations are cancelled, and the power is cut.
//!
//! ```text
//!   clients    files in directories that they share; each knows its own files           client
//!   commands   snapshots, renames, settings, clones, scrubs, of their own                commands
//!   a device   is taken out, or fails, or both; it comes back and is resilvered          devices
//!   a watcher  memory stays within its bounds
//!   in the end, and after power cuts at random: every client finds its files, every snapshot holds the files
//!   of its file system at that time, the pool is sound; and no operation has taken more than five seconds
//! ```
//!
//! `CENOTE_MANY=1000` runs as many seeds instead of a few; `CENOTE_SEED` repeats one of them.

mod client;
mod commands;
mod devices;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::units::DatasetId;
use cenote_fs::{FsOptions, FsWriter};
use cenote_pool::VdevClass::{Log, Normal};
use cenote_pool::VdevKind::{Mirror, Raidz};
use cenote_runtime::{Rng, Runtime};
use cenote_testkit::image::Image;
use parking_lot::Mutex;

use crate::check::{ask_zdb, check_blameless, check_sound};
use crate::cuts::{number, on_kinds, simulate};
use crate::dropped::{check_tree, poll_times};
use crate::journal::{Journal, Moment};
use crate::pools::{Disks, Layout, POOL, create, fill, now, open};
use crate::power_cut::Cutter;
use crate::run::recover;

use client::{Client, Record};
use commands::Snapshots;
use devices::Devices;

const CLIENTS: usize = 32;
/// File systems shared by the clients.
const HEADS: usize = 4;
/// Operations of a client.
const STEPS: usize = 10;
/// Kinds of pools.
const LAYOUTS: usize = 4;
/// Runs: one of each kind of pool; `CENOTE_MANY` sets another number.
const RUNS: u64 = LAYOUTS as u64;
/// Power cuts of a run.
const CUTS: usize = 2;
/// One in this many runs is checked by `zdb`.
const ASK_ZDB: u64 = 20;
/// Longest duration of an operation.
const PATIENCE: Duration = Duration::from_secs(5);
const DIRTY_BYTES_MAX: u64 = 4 << 20;
/// Bytes that all clients together may change at once, above that.
const IN_FLIGHT_BYTES: u64 = 2 << 20;
const CACHE_BYTES: u64 = 4 << 20;

/// State shared by all tasks of a run.
struct Stage {
    rt: Runtime,
    engine: Engine,
    disks: Disks,
    is_over: AtomicBool,
}

impl Stage {
    fn now(&self) -> Moment {
        self.disks.journal.lock().now
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Runs an operation, within the time limit; some are dropped on the way. `None`: it was dropped, and has
    /// ended since, whether done or not.
    async fn ask<T>(&self, rng: &mut Rng, what: &str, operation: impl Future<Output = T>) -> Option<T> {
        if rng.below(5) == 0 {
            let times = 1 + rng.below(12) as usize;
            let done = poll_times(times, operation).await;
            if done.is_none() {
                // Tasks end with their txg, operations before it.
                self.engine.force_sync().await.unwrap();
            }
            return done;
        }
        let begun = self.rt.now();
        let done = operation.await;
        let took = self.rt.now() - begun;
        assert!(took < PATIENCE, "{what} took {took:?}");
        Some(done)
    }

    /// Pauses between operations.
    async fn think(&self, rng: &mut Rng) {
        self.rt.sleep(Duration::from_micros(rng.below(400_000))).await;
    }

    /// Checks that memory stays within its bounds.
    async fn watch(&self) {
        while !self.is_over() {
            let (dirty, cached) = (self.engine.load().dirty_bytes(), self.engine.cache().bytes());
            assert!(dirty <= DIRTY_BYTES_MAX + IN_FLIGHT_BYTES, "{dirty} bytes are dirty");
            assert!(cached <= CACHE_BYTES, "{cached} bytes are cached");
            self.rt.sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The outcome of a run.
struct Left {
    before: Vec<Image>,
    after: Vec<Image>,
    journal: Journal,
    clients: Vec<Record>,
    snapshots: Snapshots,
}

fn layout_of(rng: &mut Rng) -> usize {
    rng.below(LAYOUTS as u64) as usize
}

fn layout(rng: &mut Rng) -> (Layout, usize) {
    // The vdevs, and the disk that leaves.
    let (vdevs, victim) = match layout_of(rng) {
        0 => (vec![(Mirror, 0, 2, Normal)], 1),
        1 => (vec![(Raidz, 1, 3, Normal)], 0),
        2 => (vec![(Raidz, 2, 4, Normal)], 2),
        _ => (vec![(Mirror, 0, 2, Normal), (Mirror, 0, 2, Log)], rng.below(4) as usize),
    };
    (Layout { vdevs, sector_bytes: 512, spares: 0 }, victim)
}

fn head_name(head: usize) -> String {
    format!("{POOL}/head{head}")
}

async fn work(rt: Runtime, layout: &Layout, victim: usize) -> Left {
    let disks = Disks::new(&rt, layout.shape(), layout.blank());
    let devices = Devices::new(&rt, &disks, victim);
    let engine = create(&rt, layout, &devices.all()).await;
    engine.load().set_dirty_bytes_max(DIRTY_BYTES_MAX);
    let at = now(&rt);
    for head in 0..HEADS {
        let fill = Box::new(move |live| -> futures::future::BoxFuture<'static, _> {
            Box::pin(fill(live, at, FsOptions::default()))
        });
        cenote_tasks::create_filesystem(&engine, &head_name(head), Vec::new(), fill).await.unwrap();
    }
    let mut filesystems = Vec::new();
    for head in 0..HEADS {
        filesystems.push(FsWriter::shared(&engine, &head_name(head)).await.unwrap());
    }
    engine.sync_all().await.unwrap();
    disks.take_journal();
    let before = disks.images();
    let (engine_weak, background) = (engine.weak(), engine.sync_in_background());
    let scanner = rt.spawn(async move {
        cenote_tasks::keep_scanning(engine_weak, |error| panic!("the scan failed: {error}")).await;
    });
    let stage = Arc::new(Stage { rt: rt.clone(), engine, disks, is_over: AtomicBool::new(false) });

    let records: Vec<Arc<Mutex<Record>>> = (0..CLIENTS)
        .map(|client| Arc::new(Mutex::new(Record::new(filesystems[client % HEADS].live().dataset_id()))))
        .collect();
    let snapshots: Arc<Mutex<Snapshots>> = Arc::default();
    let mut working = Vec::new();
    for (number, record) in records.iter().enumerate() {
        let mut client = Client::new(&stage, number, &filesystems[number % HEADS], record);
        working.push(rt.spawn(async move { client.run(STEPS).await }));
    }
    let mut apart = vec![rt.spawn(devices.clone().come_and_go(stage.clone()))];
    {
        let stage = stage.clone();
        apart.push(rt.spawn(async move { stage.watch().await }));
    }
    apart.push(rt.spawn(commands::on_heads(stage.clone(), records.clone(), snapshots.clone())));
    apart.push(rt.spawn(commands::apart(stage.clone())));
    apart.push(rt.spawn(commands::scrubs(stage.clone())));
    for client in working {
        client.await.unwrap();
    }
    stage.is_over.store(true, Ordering::Relaxed);
    for task in apart {
        task.await.unwrap();
    }
    // Resilvers the device.
    scanner.abort();
    drop(scanner.await);
    cenote_tasks::run_scan(&stage.engine, &|_| {}).await.unwrap();
    stage.engine.sync_all().await.unwrap();
    check_blameless(&stage.engine.pool()).unwrap();
    drop(background);
    let records = records.iter().map(|record| record.lock().clone()).collect();
    let snapshots = snapshots.lock().clone();
    let (after, journal) = (stage.disks.images(), stage.disks.take_journal());
    Left { before, after, journal, clients: records, snapshots }
}

/// Checks that all clients' files and all snapshots are as of moment `at` or later, or as at the end of the
/// run.
async fn check(left: &Left, mos: &Mos, at: Option<Moment>) -> Result<(), String> {
    for (number, record) in left.clients.iter().enumerate() {
        let dataset = mos.dataset_by_id(record.head).await.map_err(|error| error.to_string())?;
        let fs = client::open(&dataset).await?;
        record.check(&fs, number, at).await.map_err(|why| format!("client {number}: {why}"))?;
    }
    for dataset in mos.all_datasets().await.unwrap() {
        check_tree(&client::open(&dataset).await?)
            .await
            .map_err(|why| format!("{}: {why}", dataset.name()))?;
    }
    left.snapshots.check(&left.clients, mos, at).await
}

async fn check_end(rt: &Runtime, layout: &Layout, left: &Left, victim: usize) -> Result<(), String> {
    let disks = Disks::new(rt, layout.shape(), left.after.clone());
    let mos = open(rt, disks.devices()).await?;
    check_sound(&mos).await?;
    check(left, &mos, None).await?;
    drop(mos);
    // The disk that left so often can stand in for another of its vdev.
    let mut first = 0;
    let mut of_vdev = layout.vdevs.iter().map(|(.., count, _)| {
        first += count;
        first - count..first
    });
    let others: Vec<usize> = of_vdev
        .find(|disks| disks.contains(&victim))
        .into_iter()
        .flatten()
        .filter(|disk| *disk != victim)
        .collect();
    let disks = Disks::new(rt, layout.shape(), left.after.clone());
    let mos = open(rt, disks.devices_but(&others[..1])).await?;
    check(left, &mos, None).await.map_err(|why| format!("without disk {}: {why}", others[0]))
}

fn run(seed: u64) {
    let mut rng = Rng::stream(seed, 9);
    let (layout, victim) = layout(&mut rng);
    let left = simulate(seed, async |rt| work(rt, &layout, victim).await);
    simulate(rng.next_u64(), async |rt| check_end(&rt, &layout, &left, victim).await)
        .unwrap_or_else(|why| panic!("in the end: {why}"));
    if rng.below(ASK_ZDB) == 0 {
        ask_zdb(&left.after).unwrap();
    }
    let mut moments: Vec<Moment> =
        (0..CUTS).map(|_| rng.below(left.journal.now as u64 + 1) as usize).collect();
    moments.sort_unstable();
    let mut cutter = Cutter::new(&left.journal, left.before.clone());
    for moment in moments {
        let images = cutter.cut(moment, layout.sector_bytes, &mut rng);
        let survived = simulate(rng.next_u64(), |rt| {
            let (layout, left) = (&layout, &left);
            async move {
                let pool = recover(&rt, Disks::new(&rt, layout.shape(), images).devices()).await?;
                check(left, &pool.engine.mos().await.unwrap(), Some(moment)).await
            }
        });
        survived.unwrap_or_else(|why| panic!("cut at {moment} of {}: {why}", left.journal.now));
    }
}

#[test]
fn many_at_once_lose_nothing() {
    let runs = number("CENOTE_MANY").unwrap_or(RUNS);
    let kind_of = |seed| layout_of(&mut Rng::stream(seed, 9));
    on_kinds("many_at_once_lose_nothing", runs, &[0, 1, 2, 3], kind_of, run);
}

/// The number of a head.
type Head = DatasetId;

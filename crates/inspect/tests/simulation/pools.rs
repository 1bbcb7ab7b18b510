//! Pools of every layout on journaled disks: created and reopened.

use std::sync::Arc;

use cenote_cache::CacheOptions;
use cenote_dataset::{ImportOptions, KeySource, Mos, import};
use cenote_device::Device;
use cenote_engine::Engine;
use cenote_format::features::SPA_FEATURES;
use cenote_format::units::Txg;
use cenote_fs::write::{NewFilesystem, create_filesystem};
use cenote_fs::{Change, FsOptions, FsWriter, Timestamp};
use cenote_object::LiveObjset;
use cenote_pool::create::{DraidConfig, NewDevice, NewVdev, plan};
use cenote_pool::{VdevClass, VdevKind, discover_devices};
use cenote_runtime::Runtime;
use cenote_tasks::NewPool;
use cenote_testkit::image::Image;

use crate::journal::{DiskShape, Journal, JournaledDisk, SharedJournal};

pub const POOL: &str = "cut";

/// The smallest disks that OpenZFS takes.
const DISK_BYTES: u64 = 64 << 20;
/// Cache size for a pool whose disks are in memory.
const CACHE_BYTES: usize = 4 << 20;

/// A top-level vdev: kind, parity, disks, class.
pub type Vdev = (VdevKind, usize, usize, VdevClass);

/// The layout of a pool.
#[derive(Debug, Clone)]
pub struct Layout {
    pub vdevs: Vec<Vdev>,
    pub sector_bytes: u32,
    /// Distributed spares of each dRAID.
    pub spares: usize,
}

impl Layout {
    pub fn disk_count(&self) -> usize {
        self.vdevs.iter().map(|vdev| vdev.2).sum()
    }

    pub fn shape(&self) -> DiskShape {
        DiskShape { size_bytes: DISK_BYTES, sector_bytes: self.sector_bytes }
    }

    pub fn blank(&self) -> Vec<Image> {
        vec![Image::new(DISK_BYTES); self.disk_count()]
    }
}

/// A pool's disks and the journal of their writes.
#[derive(Clone)]
pub struct Disks {
    pub disks: Vec<Arc<JournaledDisk>>,
    pub journal: SharedJournal,
}

impl Disks {
    /// With this content, and an empty journal.
    pub fn new(rt: &Runtime, shape: DiskShape, images: Vec<Image>) -> Disks {
        let journal = SharedJournal::default();
        let disk = |(index, image)| Arc::new(JournaledDisk::new(rt, index, image, shape, &journal));
        let disks = images.into_iter().enumerate().map(disk).collect();
        Disks { disks, journal }
    }

    pub fn images(&self) -> Vec<Image> {
        self.disks.iter().map(|disk| disk.image()).collect()
    }

    /// Takes the journal so far; its writes count as durable, and a new journal starts.
    pub fn take_journal(&self) -> Journal {
        self.journal.lock().take()
    }

    pub fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.devices_but(&[])
    }

    /// The disks without some.
    pub fn devices_but(&self, gone: &[usize]) -> Vec<Arc<dyn Device>> {
        let there = self.disks.iter().enumerate().filter(|(index, _)| !gone.contains(index));
        there.map(|(_, disk)| disk.clone() as Arc<dyn Device>).collect()
    }
}

pub fn now(rt: &Runtime) -> Timestamp {
    let now_ns = rt.unix_time_ns();
    Timestamp { seconds: (now_ns / 1_000_000_000) as i64, nanoseconds: (now_ns % 1_000_000_000) as u32 }
}

/// Creates an empty file system in an object set.
pub async fn fill(live: LiveObjset, now: Timestamp, options: FsOptions) -> cenote_object::Result<()> {
    let edit = live.edit();
    let change = Change { edit: &edit, now };
    create_filesystem(&live, change, &NewFilesystem::default(), options).await.unwrap();
    Ok(())
}

/// A file system of the pool, to be changed.
pub async fn opened(engine: &Engine, head: &str, record_bytes: u32) -> FsWriter {
    let options = FsOptions { record_bytes, ..FsOptions::default() };
    FsWriter::open(engine.dataset(head).await.unwrap(), options).await.unwrap()
}

/// Changes it in the open txg.
pub async fn change<T>(engine: &Engine, fs: &FsWriter, act: impl AsyncFnOnce(Change<'_>) -> T) -> T {
    let _hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    act(Change { edit: &edit, now: now(engine.runtime()) }).await
}

/// Creates a pool on devices, with all features enabled.
pub async fn create(rt: &Runtime, layout: &Layout, devices: &[Arc<dyn Device>]) -> Engine {
    let mut devices = devices.iter().cloned().map(|device| {
        let path = device.describe().to_owned();
        NewDevice { path, device, is_file: false }
    });
    let vdevs: Vec<NewVdev> = layout
        .vdevs
        .iter()
        .map(|(kind, parity, count, class)| NewVdev {
            kind: kind.clone(),
            parity: *parity,
            // Groups fill whole rows.
            draid: (*kind == VdevKind::Draid).then_some(DraidConfig {
                data: 1,
                groups: (*count - layout.spares) as u64,
                spares: layout.spares as u64,
                failure_groups: 1,
            }),
            class: *class,
            devices: devices.by_ref().take(*count).collect(),
        })
        .collect();
    let new = NewPool {
        plan: plan(rt, POOL, &vdevs, None, (1, "here"), Txg(4)).unwrap(),
        features: SPA_FEATURES.iter().collect(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        keys: KeySource::default(),
        cache: CacheOptions { data: true, ..CacheOptions::metadata(CACHE_BYTES) },
    };
    let now = now(rt);
    let fill_root = Box::new(move |live| -> futures::future::BoxFuture<'static, _> {
        Box::pin(fill(live, now, FsOptions::default()))
    });
    cenote_tasks::create_pool(rt, new, fill_root).await.unwrap()
}

/// Opens a pool for writing and imports the newest state named by its labels, or fails.
pub async fn open(rt: &Runtime, devices: Vec<Arc<dyn Device>>) -> Result<Mos, String> {
    let discovery = discover_devices(devices).await;
    let [found] = &discovery.pools[..] else { return Err(format!("no pool: {:?}", discovery.problems)) };
    let found = found.open_for_writing(rt).await.map_err(|error| error.to_string())?;
    let options = ImportOptions {
        cache: CacheOptions { data: true, ..CacheOptions::metadata(CACHE_BYTES) },
        ..ImportOptions::default()
    };
    let mos = import(rt, &found, &options).await.map_err(|error| error.to_string())?;
    let newest = found.uberblocks.first().map(|uberblock| uberblock.txg);
    if newest != Some(mos.uberblock().txg) {
        return Err(format!("the newest uberblock, {newest:?}, leads nowhere"));
    }
    Ok(mos)
}

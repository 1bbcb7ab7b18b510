//! The pool of a run: created on memory devices, which take no time, and opened on modelled ones, both by the
//! usual code.

use std::sync::Arc;
use std::time::Duration;

use cenote_cache::CacheOptions;
use cenote_dataset::{ImportOptions, KeySource, Value, import};
use cenote_device::{Device, Latency};
use cenote_engine::Engine;
use cenote_format::features::SPA_FEATURES;
use cenote_format::label::PoolState;
use cenote_format::units::{ObjectId, Txg};
use cenote_fs::write::{NewFilesystem, create_filesystem};
use cenote_fs::{Change, FsOptions, FsWriter, Timestamp};
use cenote_object::LiveObjset;
use cenote_pool::create::{NewDevice, NewVdev, plan};
use cenote_pool::{VdevClass, VdevKind, discover_devices};
use cenote_runtime::Runtime;
use cenote_tasks::NewPool;

use crate::error::{Result, StudyError};

/// A disk like the one in the measurements of the ARC patches, with favourable seeks.
pub(crate) const DISK: Latency = Latency {
    fixed: Duration::from_millis(4),
    jitter: Duration::from_millis(4),
    bytes_per_s: std::num::NonZeroU64::new(150 << 20),
};
/// Name of the pool and of its only dataset.
const POOL: &str = "lab";
/// Cache for creating a study's data: it holds everything.
const AMPLE_BYTES: usize = 1 << 30;
/// Limit on dirty data of a pool on modelled devices.
const DIRTY_BYTES: u64 = 16 << 20;

/// A file system under load. Clones share it.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) rt: Runtime,
    pub(crate) engine: Engine,
    pub(crate) fs: FsWriter,
}

impl Bench {
    /// Creates a pool with a top-level vdev per device. `properties` are those of its dataset.
    pub(crate) async fn make(
        rt: &Runtime,
        devices: Vec<(Arc<dyn Device>, VdevClass)>,
        properties: Vec<(String, Value)>,
    ) -> Result<Bench> {
        let vdev = |(device, class): (Arc<dyn Device>, VdevClass)| NewVdev {
            kind: VdevKind::Disk,
            parity: 0,
            draid: None,
            class,
            devices: vec![NewDevice { path: device.describe().to_owned(), device, is_file: false }],
        };
        let vdevs: Vec<NewVdev> = devices.into_iter().map(vdev).collect();
        let new = NewPool {
            plan: plan(rt, POOL, &vdevs, None, (1, "lab"), Txg(4))?,
            features: SPA_FEATURES.iter().collect(),
            properties: Vec::new(),
            root_properties: properties,
            keys: KeySource::default(),
            cache: CacheOptions { data: true, ..CacheOptions::metadata(AMPLE_BYTES) },
        };
        let now = Timestamp::of_unix_ns(rt.unix_time_ns());
        let fill = Box::new(move |live: LiveObjset| -> futures::future::BoxFuture<'static, _> {
            Box::pin(async move {
                let edit = live.edit();
                let change = Change { edit: &edit, now };
                // A new object set always accepts a file system.
                let made =
                    create_filesystem(&live, change, &NewFilesystem::default(), FsOptions::default()).await;
                made.map(drop).map_err(|error| live.view().damaged(ObjectId(1), error.to_string()))
            })
        });
        Bench::of(rt, cenote_tasks::create_pool(rt, new, fill).await?).await
    }

    pub(crate) async fn of(rt: &Runtime, engine: Engine) -> Result<Bench> {
        Ok(Bench { rt: rt.clone(), fs: FsWriter::shared(&engine, POOL).await?, engine })
    }

    pub(crate) async fn close(self) -> Result<()> {
        let Bench { engine, fs, .. } = self;
        drop(fs);
        Ok(engine.close(PoolState::Exported).await?)
    }
}

pub(crate) async fn open(rt: &Runtime, devices: Vec<Arc<dyn Device>>, cache: CacheOptions) -> Result<Engine> {
    let discovery = discover_devices(devices).await;
    let found = discovery.pools.first().ok_or(StudyError::Bench("the pool is not found again"))?;
    let found = found.open_for_writing(rt).await?;
    let mos = import(rt, &found, &ImportOptions { cache, ..ImportOptions::default() }).await?;
    let engine = Engine::start(&mos).await?;
    engine.load().set_dirty_bytes_max(DIRTY_BYTES);
    Ok(engine)
}

//! Pools of the simulator, for studies of Cenote's own engine: made on modelled disks, opened as usual.

mod spinning;

use std::sync::Arc;

use cenote_cache::CacheOptions;
use cenote_dataset::{ImportOptions, KeySource, Value, import};
use cenote_device::Device;
use cenote_engine::Engine;
use cenote_format::features::SPA_FEATURES;
use cenote_format::units::{ObjectId, Txg};
use cenote_fs::write::{NewFilesystem, create_filesystem};
use cenote_fs::{Change, FsOptions, Timestamp};
use cenote_object::LiveObjset;
use cenote_pool::create::{NewDevice, NewVdev, plan};
use cenote_pool::{VdevClass, VdevKind, discover_devices};
use cenote_runtime::Runtime;
use cenote_tasks::NewPool;

pub use spinning::Spinning;

/// The pool's name, and that of its only dataset.
pub const POOL: &str = "lab";
/// A cache that holds all of it: what a study needs is made with it.
const AMPLE_BYTES: usize = 1 << 30;

/// Whatever goes wrong, as words.
pub fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Makes a pool: each device a vdev of its own, of its class. `properties` are those of its dataset.
pub async fn create(
    rt: &Runtime,
    devices: Vec<(Arc<dyn Device>, VdevClass)>,
    properties: Vec<(String, Value)>,
) -> Result<Engine, String> {
    let vdev = |(device, class): (Arc<dyn Device>, VdevClass)| NewVdev {
        kind: VdevKind::Disk,
        parity: 0,
        draid: None,
        class,
        devices: vec![NewDevice { path: device.describe().to_owned(), device, is_file: false }],
    };
    let vdevs: Vec<NewVdev> = devices.into_iter().map(vdev).collect();
    let new = NewPool {
        plan: plan(rt, POOL, &vdevs, None, (1, "lab"), Txg(4)).map_err(said)?,
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
            // A new object set takes it, or nothing would.
            let made =
                create_filesystem(&live, change, &NewFilesystem::default(), FsOptions::default()).await;
            made.map(drop).map_err(|error| live.view().damaged(ObjectId(1), error.to_string()))
        })
    });
    cenote_tasks::create_pool(rt, new, fill).await.map_err(said)
}

/// Opens it for writing.
pub async fn open(
    rt: &Runtime,
    devices: Vec<Arc<dyn Device>>,
    cache: CacheOptions,
) -> Result<Engine, String> {
    let discovery = discover_devices(devices).await;
    let found = discovery.pools.first().ok_or("the pool is not found again")?;
    let found = found.open_for_writing(rt).await.map_err(said)?;
    let mos = import(rt, &found, &ImportOptions { cache, ..ImportOptions::default() }).await.map_err(said)?;
    Engine::start(&mos).await.map_err(said)
}

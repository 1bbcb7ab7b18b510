//! Shared by the engine's tests: pools on files, objects that change along with a model, and `zdb`.

#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use cenote_cache::CacheOptions;
use cenote_dataset::{ImportOptions, KeySource, Mos, import};
use cenote_device::{FileDevice, OpenOptions};
use cenote_engine::Engine;
use cenote_format::dnode::ObjectType;
use cenote_format::features::{FEATURES_OF_2_3, Feature, SPA_FEATURES};
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::{BlockId, ObjectId, Txg};
use cenote_object::{LiveObjset, NewObject, NewZap, Result};
use cenote_pool::create::{NewDevice, NewVdev, plan};
use cenote_pool::{VdevClass, VdevKind, discover};
use cenote_runtime::{Rng, Runtime};
use cenote_tasks::NewPool;
use cenote_testkit::all_said;

pub(crate) const POOL: &str = "made";

/// Kind, parity and number of devices of a vdev.
pub(crate) type Layout = (VdevKind, usize, usize);

/// A file in a folder as a new device.
pub(crate) async fn device(rt: &Runtime, folder: &Path, index: usize) -> NewDevice {
    let path = folder.join(format!("disk{index}.img"));
    std::fs::File::create(&path).unwrap().set_len(96 << 20).unwrap();
    let device = FileDevice::open(&path, OpenOptions::EXCLUSIVE, rt).await.unwrap();
    NewDevice { path: path.display().to_string(), device: Arc::new(device), is_file: true }
}

/// A data vdev on new files, numbered from `first`.
pub(crate) async fn vdev(
    rt: &Runtime,
    folder: &Path,
    first: usize,
    (kind, parity, count): &Layout,
) -> NewVdev {
    let mut devices = Vec::new();
    for index in first..first + count {
        devices.push(device(rt, folder, index).await);
    }
    NewVdev { kind: kind.clone(), parity: *parity, draid: None, class: VdevClass::Normal, devices }
}

/// A pool on these devices, mirrored if several, with a cache too small to spare reads.
pub(crate) async fn create_on(rt: &Runtime, devices: Vec<NewDevice>) -> Engine {
    let kind = if devices.len() > 1 { VdevKind::Mirror } else { VdevKind::Disk };
    create_of(rt, NewVdev { kind, parity: 0, draid: None, class: VdevClass::Normal, devices }).await
}

pub(crate) async fn create_of(rt: &Runtime, vdev: NewVdev) -> Engine {
    let new = NewPool {
        plan: plan(rt, POOL, &[vdev], None, (1, "here"), Txg(4)).unwrap(),
        features: SPA_FEATURES[..FEATURES_OF_2_3].iter().collect(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        keys: KeySource::default(),
        cache: CacheOptions::metadata(4096),
    };
    cenote_tasks::create_pool(rt, new, Box::new(|live| Box::pin(fill(live)))).await.unwrap()
}

pub(crate) async fn create(rt: &Runtime, folder: &Path, layout: &Layout) -> Engine {
    create_with(rt, folder, layout, SPA_FEATURES[..FEATURES_OF_2_3].iter().collect()).await
}

pub(crate) async fn create_with(
    rt: &Runtime,
    folder: &Path,
    layout: &Layout,
    features: Vec<&'static Feature>,
) -> Engine {
    create_with_sectors(rt, folder, layout, None, features).await
}

/// The same with sectors of `1 << ashift` bytes.
pub(crate) async fn create_with_sectors(
    rt: &Runtime,
    folder: &Path,
    layout: &Layout,
    ashift: Option<u32>,
    features: Vec<&'static Feature>,
) -> Engine {
    let vdevs = [vdev(rt, folder, 0, layout).await];
    let plan = plan(rt, POOL, &vdevs, ashift, (1, "here"), Txg(4)).unwrap();
    let new = NewPool {
        plan,
        features,
        properties: Vec::new(),
        root_properties: Vec::new(),
        keys: KeySource::default(),
        cache: CacheOptions::metadata(16 << 20),
    };
    cenote_tasks::create_pool(rt, new, Box::new(|live| Box::pin(fill(live)))).await.unwrap()
}

/// Makes a master node, where every file system's attributes are looked up.
pub(crate) async fn fill(live: LiveObjset) -> Result<()> {
    NewZap::of(ObjectType::MASTER_NODE).create_at(&live.edit(), ObjectId(1)).await
}

pub(crate) async fn reopen(rt: &Runtime, folder: &Path) -> Mos {
    let found = discover(rt, &[PathBuf::from(folder)]).await;
    import(rt, &found.pools[0], &ImportOptions::default()).await.unwrap()
}

pub(crate) async fn reopen_to_write(rt: &Runtime, folder: &Path) -> Engine {
    let found = discover(rt, &[PathBuf::from(folder)]).await;
    let found = found.pools[0].open_for_writing(rt).await.unwrap();
    Engine::start(&import(rt, &found, &ImportOptions::default()).await.unwrap()).await.unwrap()
}

/// `zdb` reads every block, and finds no leaks.
pub(crate) fn assert_zdb_is_content(folder: &Path, name: &str) {
    let Some(said) = zdb(&["-bcc"], folder, name) else { return };
    assert!(said.contains("No leaks"), "{name}: {said}");
}

/// Runs `zdb`, which must succeed; `None` if not installed.
pub(crate) fn zdb(options: &[&str], folder: &Path, name: &str) -> Option<String> {
    let output = cenote_testkit::zdb(folder, &[options, &[POOL]].concat())?;
    let said = all_said(&output);
    assert!(output.status.success(), "{name}: {said}");
    Some(said)
}

/// The seed of a test's random numbers; `CENOTE_SEED` sets it.
pub(crate) fn seed(rt: &Runtime, name: &str) -> u64 {
    let given = std::env::var("CENOTE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| rt.random_u64());
    println!("{name}: CENOTE_SEED={seed}");
    seed
}

/// Destroys an object of the root dataset and syncs.
pub(crate) async fn destroy(engine: &Engine, object: ObjectId) {
    let dataset = engine.dataset(POOL).await.unwrap();
    let hold = engine.hold().await.unwrap();
    dataset.edit(&hold).destroy(object).await.unwrap();
    drop(hold);
    engine.sync_all().await.unwrap();
}

/// Overwrites half of a disk's contents, labels excluded.
pub(crate) fn spoil(disk: &Path) {
    let disk = std::fs::File::options().read(true).write(true).open(disk).unwrap();
    for at in (VDEV_LABEL_START_SIZE..90 << 20).step_by(8192) {
        let mut held = [0; 4096];
        disk.read_exact_at(&mut held, at).unwrap();
        if held.iter().any(|byte| *byte != 0) {
            disk.write_all_at(&[0xb5; 4096], at).unwrap();
        }
    }
}

/// Expected contents of objects.
pub(crate) type Model = BTreeMap<ObjectId, Vec<u8>>;

/// Amount of work at a time.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) steps: u64,
    pub(crate) max_offset: u64,
    pub(crate) max_len: u64,
}

/// Changes some objects of a dataset: writes anywhere, frees blocks, makes and destroys.
pub(crate) async fn work(engine: &Engine, name: &str, model: &mut Model, rng: &mut Rng, load: Load) {
    let dataset = engine.dataset(name).await.unwrap();
    let hold = engine.hold().await.unwrap();
    let edit = dataset.edit(&hold);
    for _ in 0..load.steps {
        let pick = model.keys().nth(rng.below(model.len().max(1) as u64) as usize).copied();
        match (rng.below(10), pick) {
            (0, Some(object)) => {
                edit.destroy(object).await.unwrap();
                model.remove(&object);
            }
            (1..=2, _) | (_, None) => {
                let block_bytes = [512, 4096, 16384, 131072][rng.below(4) as usize];
                let new = NewObject::of(ObjectType::UINT64_OTHER).block_bytes(block_bytes);
                model.insert(edit.create(&new).await.unwrap(), Vec::new());
            }
            (3, Some(object)) => {
                let size = edit.view().object(object).await.unwrap().block_bytes();
                let content = model.get_mut(&object).unwrap();
                let first = rng.below(content.len() as u64 / size + 1);
                edit.punch(object, BlockId(first), 3).await.unwrap();
                let end = content.len().min(((first + 3) * size) as usize);
                let start = ((first * size) as usize).min(end);
                content[start..end].fill(0);
            }
            (_, Some(object)) => {
                let offset = rng.below(load.max_offset) as usize;
                let len = 1 + rng.below(load.max_len) as usize;
                // Half of it is compressible.
                let data: Vec<u8> =
                    (0..len).map(|i| if i % 2 == 0 { 0 } else { rng.below(256) as u8 }).collect();
                edit.write(object, offset as u64, Bytes::from(data.clone())).await.unwrap();
                let content = model.get_mut(&object).unwrap();
                content.resize(content.len().max(offset + len), 0);
                content[offset..offset + len].copy_from_slice(&data);
            }
        }
    }
}

/// `zdb` accepts the pool, and its contents match the model.
pub(crate) async fn assert_is_sound(rt: &Runtime, folder: &Path, model: &Model, name: &str) {
    assert_zdb_is_content(folder, name);
    let mos = reopen(rt, folder).await;
    assert_equal(&mos, POOL, model, name).await;
}

/// A dataset or snapshot matches the model.
pub(crate) async fn assert_equal(mos: &Mos, dataset: &str, model: &Model, name: &str) {
    let objset = mos.dataset(dataset).await.unwrap().objset().await.unwrap();
    for (id, content) in model {
        let object = objset.object(*id).await.unwrap();
        let read = object.read(0, content.len()).await.unwrap();
        assert!(read[..] == content[..], "{name}: {dataset} object {id} differs");
    }
}

//! Commits survive a power cut: committed operations that no txg contains are present after a replay.

mod accepted;
mod batches;
mod meanwhile;
mod module;
mod volumes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_cache::CacheOptions;
use cenote_dataset::{ImportOptions, KeySource, Mos, import};
use cenote_device::{Device, FileDevice, OpenOptions};
use cenote_engine::{Engine, Host};
use cenote_format::features::{FEATURES_OF_2_3, SPA_FEATURES};
use cenote_format::units::Txg;
use cenote_fs::write::{NewFilesystem, XattrStore, create_filesystem};
use cenote_fs::{Change, Filesystem, FsOptions, FsWriter, Timestamp, replay_logs};
use cenote_object::LiveObjset;
use cenote_pool::create::{NewDevice, NewVdev, plan};
use cenote_pool::{PoolState, VdevClass, VdevKind, discover};
use cenote_runtime::Runtime;
use cenote_tasks::{Fill, NewPool};

use crate::against_model::{Pair, seed};
use crate::model::Model;
use crate::on_disk::{POOL, assert_zdb_is_content};
use crate::scratch::at;

/// The time of the replay, which no file has.
pub const NOW: Timestamp = Timestamp { seconds: 4_000_000_000, nanoseconds: 0 };

/// Class, kind, parity and number of devices of a vdev.
pub type Layout = (VdevClass, VdevKind, usize, usize);

pub const DISK: Layout = (VdevClass::Normal, VdevKind::Disk, 0, 1);

/// A pool of files with this size, with a file system in its root dataset.
pub async fn create(rt: &Runtime, folder: &Path, layout: &[Layout], file_bytes: u64) -> Engine {
    let mut devices: BTreeMap<(usize, usize), Arc<dyn Device>> = BTreeMap::new();
    for (vdev, (.., count)) in layout.iter().enumerate() {
        for index in 0..*count {
            let path = folder.join(format!("disk{vdev}-{index}.img"));
            std::fs::File::create(&path).unwrap().set_len(file_bytes).unwrap();
            let device = FileDevice::open(&path, OpenOptions::EXCLUSIVE, rt).await.unwrap();
            devices.insert((vdev, index), Arc::new(device));
        }
    }
    create_on(rt, layout, |vdev, index| devices[&(vdev, index)].clone()).await
}

pub async fn create_on(
    rt: &Runtime,
    layout: &[Layout],
    device: impl Fn(usize, usize) -> Arc<dyn Device>,
) -> Engine {
    let new_device = |device: Arc<dyn Device>| {
        let path = device.describe().to_owned();
        NewDevice { path, device, is_file: false }
    };
    let vdev = |(at, (class, kind, parity, count)): (usize, &Layout)| NewVdev {
        kind: kind.clone(),
        parity: *parity,
        draid: None,
        class: *class,
        devices: (0..*count).map(|index| new_device(device(at, index))).collect(),
    };
    let vdevs: Vec<NewVdev> = layout.iter().enumerate().map(vdev).collect();
    let new = NewPool {
        plan: plan(rt, POOL, &vdevs, None, (1, "here"), Txg(4)).unwrap(),
        features: SPA_FEATURES[..FEATURES_OF_2_3].iter().collect(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        keys: KeySource::default(),
        cache: CacheOptions::metadata(64 << 20),
    };
    cenote_tasks::create_pool(rt, new, empty_filesystem()).await.unwrap()
}

pub fn empty_filesystem() -> Fill {
    let fill = |live: LiveObjset| async move {
        let edit = live.edit();
        let change = Change { edit: &edit, now: at(1) };
        create_filesystem(&live, change, &NewFilesystem::default(), FsOptions::default()).await.unwrap();
        Ok(())
    };
    Box::new(move |live| Box::pin(fill(live)))
}

pub async fn reopen(rt: &Runtime, folder: &Path) -> Mos {
    let found = discover(rt, &[PathBuf::from(folder)]).await;
    import(rt, &found.pools[0], &ImportOptions::default()).await.unwrap()
}

/// Some operations synced in txgs, then some that only the log has.
async fn work(engine: &Engine, name: &str, options: FsOptions, seed: u64) -> Model {
    let dataset = engine.dataset(name).await.unwrap();
    let hold = engine.hold().await.unwrap();
    let fs = FsWriter::open(dataset.clone(), options).await.unwrap();
    let mut pair = Pair::begin(fs.clone(), seed).await;
    // Such an attribute would force a txg sync.
    pair.empty_xattrs = false;
    pair.run(100).await;
    drop(hold);
    fs.commit(None).await.unwrap();
    for _ in 0..4 {
        let hold = engine.hold().await.unwrap();
        pair.run(50).await;
        drop(hold);
        fs.commit(None).await.unwrap();
    }
    pair.into_model()
}

#[test]
fn what_was_committed_is_in_the_log() {
    let rt = Runtime::real(Some(2));
    let seed = seed();
    for (round, xattr) in [XattrStore::Sa, XattrStore::Dir].into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        rt.block_on(async {
            let engine = create(&rt, folder.path(), &[DISK], 256 << 20).await;
            let options = FsOptions { xattr, ..FsOptions::default() };
            let model = work(&engine, POOL, options, seed + round as u64).await;
            // A power cut.
            drop(engine);
            let mos = reopen(&rt, folder.path()).await;
            let objset = mos.dataset(POOL).await.unwrap().objset().await.unwrap();
            let log = objset.intent_log().await;
            assert!(log.damaged.is_none() && !log.records.is_empty(), "{log:?}");
            let (fs, report) = Filesystem::open(objset).await.unwrap().replay(&log.records, NOW).await;
            assert!(report.set_aside == 0, "{report:?}");
            model.compare_with(&fs, Some(NOW)).await;
            assert_zdb_is_content(folder.path());
        });
    }
}

pub async fn reopen_to_write(rt: &Runtime, folder: &Path) -> Engine {
    let found = discover(rt, &[PathBuf::from(folder)]).await;
    let found = found.pools[0].open_for_writing(rt).await.unwrap();
    Engine::start(&import(rt, &found, &ImportOptions::default()).await.unwrap()).await.unwrap()
}

const HOST: (u64, &str) = (1, "here");

pub async fn export(engine: &Engine) {
    let host = Host { id: HOST.0, name: HOST.1.into() };
    engine.ownership().set_state(PoolState::Exported, host).await.unwrap();
}

/// Opens a pool after a cut, replays, and leaves it exported; it must equal the model and have no log.
async fn replay_and_compare(rt: &Runtime, folder: &Path, model: &Model) {
    let engine = reopen_to_write(rt, folder).await;
    let reports = replay_logs(&engine, NOW).await.unwrap();
    assert!(reports.iter().all(|(_, report)| report.set_aside == 0), "{reports:?}");
    assert!(reports.iter().any(|(_, report)| report.applied > 0), "{reports:?}");
    let dataset = engine.dataset(POOL).await.unwrap();
    model.compare_with(&Filesystem::open(dataset.view()).await.unwrap(), Some(NOW)).await;
    export(&engine).await;
    drop((engine, dataset));
    let mos = reopen(rt, folder).await;
    let objset = mos.dataset(POOL).await.unwrap().objset().await.unwrap();
    assert!(objset.phys().zil_header.log.is_hole());
    model.compare_with(&Filesystem::open(objset).await.unwrap(), Some(NOW)).await;
    assert_zdb_is_content(folder);
}

#[test]
fn a_replay_makes_it_a_part_of_the_tree() {
    let rt = Runtime::real(Some(2));
    let seed = seed();
    let log = |kind, count| (VdevClass::Log, kind, 0, count);
    let layouts: [(&[Layout], u64); 5] = [
        (&[DISK], 256 << 20),
        (&[DISK, log(VdevKind::Mirror, 2)], 128 << 20),
        (&[DISK, log(VdevKind::Disk, 1), log(VdevKind::Disk, 1)], 128 << 20),
        (&[(VdevClass::Normal, VdevKind::Raidz, 1, 3)], 128 << 20),
        // Large enough for metaslabs reserved for logs.
        (&[DISK], 40 << 30),
    ];
    for (round, (layout, bytes)) in layouts.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        rt.block_on(async {
            let engine = create(&rt, folder.path(), layout, bytes).await;
            let xattr = if round % 2 == 0 { XattrStore::Sa } else { XattrStore::Dir };
            let options = FsOptions { xattr, ..FsOptions::default() };
            let model = work(&engine, POOL, options, seed + round as u64).await;
            drop(engine);
            replay_and_compare(&rt, folder.path(), &model).await;
        });
    }
}

//! Changes made in memory and synced to a pool are read back from the disks, and by `zdb`.

#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_cache::CacheOptions;
use cenote_dataset::{ImportOptions, KeySource, import};
use cenote_device::{FileDevice, OpenOptions};
use cenote_engine::Engine;
use cenote_format::dnode::ObjectType;
use cenote_format::features::{FEATURES_OF_2_3, SPA_FEATURES};
use cenote_format::units::{ObjectId, Txg};
use cenote_fs::write::{NewFilesystem, create_filesystem};
use cenote_fs::{Change, Filesystem, FsOptions, FsWriter};
use cenote_object::objset::USERUSED_OBJECT;
use cenote_object::{LiveObjset, Objset, Zap};
use cenote_pool::create::{NewDevice, NewVdev, plan};
use cenote_pool::{VdevClass, VdevKind, discover};
use cenote_runtime::Runtime;
use cenote_tasks::NewPool;
use cenote_testkit::zdb;

use crate::against_model::{Pair, seed};
use crate::scratch::at;

pub const POOL: &str = "made";

/// A pool of one file, with a file system in its root dataset.
async fn create(rt: &Runtime, folder: &Path) -> Engine {
    let path = folder.join("disk0.img");
    std::fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
    let device = Arc::new(FileDevice::open(&path, OpenOptions::EXCLUSIVE, rt).await.unwrap());
    let devices = vec![NewDevice { path: path.display().to_string(), device, is_file: true }];
    let vdev = NewVdev { kind: VdevKind::Disk, parity: 0, draid: None, class: VdevClass::Normal, devices };
    let plan = plan(rt, POOL, &[vdev], None, (1, "here"), Txg(4)).unwrap();
    let new = NewPool {
        plan,
        features: SPA_FEATURES[..FEATURES_OF_2_3].iter().collect(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        keys: KeySource::default(),
        cache: CacheOptions::metadata(16 << 20),
    };
    let fill = |live: LiveObjset| async move {
        let edit = live.edit();
        let change = Change { edit: &edit, now: at(1) };
        create_filesystem(&live, change, &NewFilesystem::default(), FsOptions::default()).await.unwrap();
        Ok(())
    };
    cenote_tasks::create_pool(rt, new, Box::new(move |live| Box::pin(fill(live)))).await.unwrap()
}

/// `zdb` finds allocated and referenced space equal, and reads every object of the file system.
pub fn assert_zdb_is_content(folder: &Path) {
    for args in [&["-bcc"][..], &["-dddd"][..]] {
        let Some(output) = zdb(folder, &[args, &[POOL]].concat()) else { return };
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        let tail: String = text.lines().rev().take(30).collect::<Vec<_>>().join("\n");
        assert!(output.status.success(), "zdb {args:?}: {tail} {error}");
        assert!(args[0] != "-bcc" || text.contains("No leaks"), "{text}");
    }
}

/// User accounts hold exactly the space of their objects.
async fn assert_accounts(fs: &Filesystem, objset: &Objset) {
    let mut owned: BTreeMap<String, u64> = BTreeMap::new();
    let mut dnodes = objset.dnodes(ObjectId(1), objset.last_object());
    while let Some(batch) = dnodes.next_batch().await {
        for (id, dnode) in batch.unwrap().dnodes {
            if dnode.bonus_type == ObjectType::SA {
                let uid = fs.attr(id).await.unwrap().uid;
                *owned.entry(format!("{uid:x}")).or_default() += dnode.used_bytes + 512;
                *owned.entry(format!("obj-{uid:x}")).or_default() += 1;
            }
        }
    }
    let accounts = Zap::open_id(objset, USERUSED_OBJECT).await.unwrap().to_vec().await.unwrap();
    let accounts = accounts.iter().map(|entry| (entry.name_text(), entry.value.as_u64().unwrap()));
    assert_eq!(accounts.collect::<BTreeMap<_, _>>(), owned);
}

#[test]
fn file_systems_are_on_disk_what_they_are_in_memory() {
    let rt = Runtime::real(Some(2));
    let folder = tempfile::tempdir().unwrap();
    let seed = seed();
    rt.block_on(async {
        let engine = create(&rt, folder.path()).await;
        let dataset = engine.dataset(POOL).await.unwrap();
        let hold = engine.hold().await.unwrap();
        let fs = FsWriter::open(dataset.clone(), FsOptions::default()).await.unwrap();
        let mut pair = Pair::begin(fs, seed).await;
        drop(hold);
        for _ in 0..4 {
            let hold = engine.hold().await.unwrap();
            pair.run(300).await;
            drop(hold);
            engine.sync_all().await.unwrap();
        }
        drop((engine, dataset));
        let found = discover(&rt, &[PathBuf::from(folder.path())]).await;
        let mos = import(&rt, &found.pools[0], &ImportOptions::default()).await.unwrap();
        let objset = mos.dataset(POOL).await.unwrap().objset().await.unwrap();
        let fs = Filesystem::open(objset.clone()).await.unwrap();
        pair.compare_with(&fs).await;
        assert_accounts(&fs, &objset).await;
        assert_zdb_is_content(folder.path());
    });
}

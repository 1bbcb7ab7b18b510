//! The engine: pools made and changed, then opened anew, and by `zdb`.

#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use cenote_dataset::engine::{Engine, NewPool};
use cenote_dataset::live::NewObject;
use cenote_dataset::{BlockId, ImportOptions, Mos, ObjectId, import};
use cenote_device::{FileDevice, OpenOptions};
use cenote_format::dnode::ObjectType;
use cenote_format::features::SPA_FEATURES;
use cenote_format::units::Txg;
use cenote_pool::create::{NewDevice, NewVdev, plan};
use cenote_pool::{VdevClass, VdevKind, discover};
use cenote_runtime::{Rng, Runtime};

const POOL: &str = "made";

/// Kind, parity and number of devices of a pool's only vdev for data.
const LAYOUTS: [(VdevKind, usize, usize); 5] = [
    (VdevKind::Disk, 0, 1),
    (VdevKind::Mirror, 0, 3),
    (VdevKind::Raidz, 1, 3),
    (VdevKind::Raidz, 2, 5),
    (VdevKind::Raidz, 3, 7),
];

/// Files in a folder as new devices.
fn devices(rt: &Runtime, folder: &Path, count: usize) -> Vec<NewDevice> {
    let device = |index| {
        let path = folder.join(format!("disk{index}.img"));
        std::fs::File::create(&path).unwrap().set_len(96 << 20).unwrap();
        let device = FileDevice::open(&path, OpenOptions::EXCLUSIVE, rt).unwrap();
        NewDevice { path: path.display().to_string(), device: Arc::new(device), is_file: true }
    };
    (0..count).map(device).collect()
}

async fn create(rt: &Runtime, folder: &Path, (kind, parity, count): &(VdevKind, usize, usize)) -> Engine {
    let devices = devices(rt, folder, *count);
    let vdev = NewVdev { kind: kind.clone(), parity: *parity, class: VdevClass::Normal, devices };
    let plan = plan(rt, POOL, &[vdev], None, (1, "here"), Txg(4)).unwrap();
    let new = NewPool {
        plan,
        features: SPA_FEATURES.iter().collect(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        cache_bytes: 16 << 20,
    };
    Engine::create(rt, new, Box::new(|_| Box::pin(async { Ok(()) }))).await.unwrap()
}

async fn reopen(rt: &Runtime, folder: &Path) -> Mos {
    let found = discover(rt, &[PathBuf::from(folder)]).await;
    import(rt, &found.pools[0], &ImportOptions::default()).await.unwrap()
}

async fn reopen_to_write(rt: &Runtime, folder: &Path) -> Engine {
    let found = discover(rt, &[PathBuf::from(folder)]).await;
    let found = found.pools[0].open_for_writing(rt).await.unwrap();
    Engine::start(&import(rt, &found, &ImportOptions::default()).await.unwrap()).await.unwrap()
}

/// `zdb` reads every block, and finds as much allocated as referenced.
fn assert_zdb_is_content(folder: &Path, name: &str) {
    let zdb = Command::new("zdb").args(["-e", "-bcc", "-p"]).arg(folder).arg(POOL).output();
    let Ok(output) = zdb else {
        assert!(std::env::var_os("CENOTE_REQUIRE_ZDB").is_none(), "zdb is missing");
        println!("{name}: zdb is not installed: not compared");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let said = format!("{name}: {text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(text.contains("No leaks"), "{said}");
}

/// What objects should hold.
type Model = BTreeMap<ObjectId, Vec<u8>>;

/// Changes some objects of the root dataset: writes anywhere, frees blocks, makes and destroys.
async fn work(engine: &Engine, model: &mut Model, rng: &mut Rng) {
    let dataset = engine.dataset(POOL).await.unwrap();
    let hold = engine.hold().await;
    let edit = dataset.edit(&hold);
    for _ in 0..20 {
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
                let offset = rng.below(3 << 20) as usize;
                let len = 1 + rng.below(300_000) as usize;
                // Half of it compresses.
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

async fn assert_equal(mos: &Mos, model: &Model, name: &str) {
    let objset = mos.dataset(POOL).await.unwrap().objset().await.unwrap();
    for (id, content) in model {
        let object = objset.object(*id).await.unwrap();
        let read = object.read(0, content.len()).await.unwrap();
        assert!(read[..] == content[..], "{name}: object {id} differs");
    }
}

#[test]
fn objects_survive_groups_and_zdb_finds_nothing_wrong() {
    let rt = Runtime::real(Some(2));
    for layout in &LAYOUTS {
        let name = format!("{:?}", layout);
        let given = std::env::var("CENOTE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| rt.random_u64());
        println!("{name}: CENOTE_SEED={seed}");
        let mut rng = Rng::new(seed);
        let folder = tempfile::tempdir().unwrap();
        rt.block_on(async {
            let mut model = Model::new();
            let engine = create(&rt, folder.path(), layout).await;
            for _ in 0..4 {
                work(&engine, &mut model, &mut rng).await;
                engine.sync_all().await.unwrap();
            }
            drop(engine);
            assert_equal(&reopen(&rt, folder.path()).await, &model, &name).await;
            assert_zdb_is_content(folder.path(), &name);

            let engine = reopen_to_write(&rt, folder.path()).await;
            for _ in 0..4 {
                work(&engine, &mut model, &mut rng).await;
                engine.sync_all().await.unwrap();
            }
            drop(engine);
            assert_equal(&reopen(&rt, folder.path()).await, &model, &name).await;
            assert_zdb_is_content(folder.path(), &name);
        });
    }
}

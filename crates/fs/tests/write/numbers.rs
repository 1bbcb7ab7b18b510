//! Freed object numbers are reused while the file system is open, and holes keep their births when a tree
//! grows.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cenote_device::{Device, MemoryDevice};
use cenote_engine::Engine;
use cenote_format::units::{BlockId, ObjectId, Txg};
use cenote_fs::{Change, FsOptions, FsWriter};
use cenote_runtime::{Runtime, SimConfig};

use crate::intent_log::{DISK, create_on};
use crate::on_disk::POOL;
use crate::scratch::{at, file, noise};

async fn bench(rt: &Runtime) -> (Engine, FsWriter) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("disk", 128 << 20));
    let engine = create_on(rt, &[DISK], |_, _| device.clone()).await;
    let fs = FsWriter::open(engine.dataset(POOL).await.unwrap(), FsOptions::default()).await.unwrap();
    (engine, fs)
}

async fn change<T>(engine: &Engine, fs: &FsWriter, work: impl AsyncFnOnce(Change<'_>) -> T) -> T {
    let _hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    work(Change { edit: &edit, now: at(2) }).await
}

#[test]
fn numbers_of_files_that_are_gone_are_used_again() {
    Runtime::simulate(SimConfig::default(), |rt| async move {
        let (engine, fs) = bench(&rt).await;
        let mut kept: BTreeMap<ObjectId, u64> = BTreeMap::new();
        let mut generations: BTreeMap<ObjectId, u64> = BTreeMap::new();
        for round in 0..40 {
            let mut made = Vec::new();
            for i in 0..100 {
                let name = format!("r{round}-{i}");
                let create = async |c: Change<'_>| {
                    fs.create(c, fs.root(), name.as_bytes(), &file(0o644)).await.unwrap()
                };
                let id = change(&engine, &fs, create).await;
                assert!(!kept.contains_key(&id), "{id} belongs to another file");
                let generation = fs.view().attr(id).await.unwrap().generation;
                let before = generations.insert(id, generation);
                assert!(before.is_none_or(|before| before < generation), "{id} looks like the file before");
                made.push((name, id, generation));
            }
            let (_, id, generation) = made.remove(0);
            kept.insert(id, generation);
            for (name, ..) in made {
                change(&engine, &fs, async |c| {
                    let gone = fs.unlink(c, fs.root(), name.as_bytes()).await.unwrap();
                    fs.free_unlinked(c, gone.unwrap()).await.unwrap();
                })
                .await;
            }
            engine.sync_all().await.unwrap();
        }
        let last = fs.live().view().last_object();
        assert!(last.0 <= 1024, "4000 files were made, 40 are left, and the dnodes reach {last}");
        for (id, generation) in kept {
            assert_eq!(fs.view().attr(id).await.unwrap().generation, generation);
        }
    });
}

#[test]
fn a_hole_knows_its_birth_after_the_tree_has_grown() {
    const BLOCK: u64 = 128 << 10;
    Runtime::simulate(SimConfig::default(), |rt| async move {
        let (engine, fs) = bench(&rt).await;
        // Trees that grow by one level and by two, from one block and from many.
        for (name, old_end, new_block) in
            [(b"a", 1, 600), (b"b", 1, 5000), (b"c", 1, 2_000_000), (b"d", 20, 5000), (b"e", 20, 2_000_000)]
        {
            let f =
                change(&engine, &fs, async |c| fs.create(c, fs.root(), name, &file(0o644)).await.unwrap())
                    .await;
            let write = async |block: u64| {
                let data = Bytes::from(noise(block, BLOCK as usize));
                let write = async |c: Change<'_>| fs.write(c, f, block * BLOCK, data).await.unwrap();
                change(&engine, &fs, write).await;
            };
            for block in 0..old_end {
                write(block).await;
            }
            engine.sync_all().await.unwrap();
            change(&engine, &fs, async |c| fs.punch(c, f, 0..old_end * BLOCK).await.unwrap()).await;
            engine.sync_all().await.unwrap();
            let birth = async |level: u8| {
                let object = fs.live().on_disk().object(f).await.unwrap();
                let bp = object.blkptr(level, BlockId(0)).await.unwrap();
                (bp.is_hole(), bp.logical_birth())
            };
            let (is_hole, punched) = birth(0).await;
            assert!(is_hole && punched > Txg(0));
            write(new_block).await;
            engine.sync_all().await.unwrap();
            let what = String::from_utf8_lossy(name).into_owned();
            assert_eq!(birth(0).await, (true, punched), "{what}");
            let (is_hole, above) = birth(1).await;
            assert!(!is_hole || above >= punched, "{what}: the block above is a hole of {above}");
        }
    });
}

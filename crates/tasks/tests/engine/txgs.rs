//! Consecutive txgs: objects of one dataset, on all kinds of vdevs.

mod times;

use bytes::Bytes;
use cenote_format::dnode::ObjectType;
use cenote_format::units::{DatasetId, ObjectId, VdevId};
use cenote_object::{DatasetError, NewObject, Result};
use cenote_pool::VdevKind;
use cenote_runtime::{Rng, Runtime};
use cenote_tasks::rebuilding;

use crate::common::{
    Layout, Load, Model, POOL, assert_equal, assert_zdb_is_content, create, reopen, reopen_to_write, seed,
    vdev, work,
};

/// Kind, parity and number of devices of a pool's only data vdev.
const LAYOUTS: [Layout; 5] = [
    (VdevKind::Disk, 0, 1),
    (VdevKind::Mirror, 0, 3),
    (VdevKind::Raidz, 1, 3),
    (VdevKind::Raidz, 2, 5),
    (VdevKind::Raidz, 3, 7),
];

const LOAD: Load = Load { steps: 20, max_offset: 3 << 20, max_len: 300_000 };

#[test]
fn objects_survive_txgs_on_mirrors_and_zdb_finds_nothing_wrong() {
    objects_survive_txgs(&LAYOUTS[..2]);
}

#[test]
fn objects_survive_txgs_on_raidz_and_zdb_finds_nothing_wrong() {
    objects_survive_txgs(&LAYOUTS[2..]);
}

fn objects_survive_txgs(layouts: &[Layout]) {
    let rt = Runtime::real(Some(2));
    for layout in layouts {
        let name = format!("{:?}", layout);
        let mut rng = Rng::new(seed(&rt, &name));
        let folder = tempfile::tempdir().unwrap();
        rt.block_on(async {
            let mut model = Model::new();
            for is_new in [true, false] {
                let engine = match is_new {
                    true => create(&rt, folder.path(), layout).await,
                    false => reopen_to_write(&rt, folder.path()).await,
                };
                for _ in 0..4 {
                    work(&engine, POOL, &mut model, &mut rng, LOAD).await;
                    engine.sync_all().await.unwrap();
                }
                drop(engine);
                assert_equal(&reopen(&rt, folder.path()).await, POOL, &model, &name).await;
                assert_zdb_is_content(folder.path(), &name);
            }
        });
    }
}

/// Every txg rewrites metadata; the replaced blocks must leave the cache.
#[test]
fn freed_blocks_leave_the_cache() {
    let rt = Runtime::real(Some(2));
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &LAYOUTS[0]).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(seed(&rt, "cached")));
        let mut bytes = Vec::new();
        for _ in 0..60 {
            let small = Load { steps: 1, max_offset: 4096, max_len: 4096 };
            work(&engine, POOL, &mut model, &mut rng, small).await;
            engine.sync_all().await.unwrap();
            bytes.push(engine.cache().bytes());
        }
        assert!(bytes[59] < 2 * bytes[19], "{bytes:?}");
    });
}

/// A cached block must not pin the buffer it was written with.
#[test]
fn blocks_that_were_written_at_once_do_not_keep_each_other() {
    let rt = Runtime::real(Some(2));
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &LAYOUTS[0]).await;
        let (dataset, hold) = (engine.dataset(POOL).await.unwrap(), engine.hold().await.unwrap());
        let edit = dataset.edit(&hold);
        let object = edit.create(&NewObject::of(ObjectType::UINT64_OTHER).block_bytes(4096)).await.unwrap();
        let data = Bytes::from(vec![7; 1 << 20]);
        edit.write(object, 0, data.clone()).await.unwrap();
        assert!(data.is_unique(), "blocks of 4 KiB keep a megabyte");
        let read = edit.view().object(object).await.unwrap().read(0, data.len()).await.unwrap();
        assert!(read[..] == data[..]);
    });
}

#[test]
fn what_is_written_after_a_vdev_is_added_goes_there_too() {
    let rt = Runtime::real(Some(2));
    let mut rng = Rng::new(seed(&rt, "vdev added"));
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &LAYOUTS[0]).await;
        let mut model = Model::new();
        work(&engine, POOL, &mut model, &mut rng, LOAD).await;
        let new = vdev(&rt, folder.path(), 1, &LAYOUTS[1]).await;
        cenote_tasks::add_vdevs(&engine, vec![new], None).await.unwrap();
        // Allocation switches vdevs every 512 KiB: enough for several turns.
        for _ in 0..16 {
            work(&engine, POOL, &mut model, &mut rng, LOAD).await;
            engine.sync_all().await.unwrap();
        }
        drop(engine);
        let mos = reopen(&rt, folder.path()).await;
        assert_equal(&mos, POOL, &model, "vdev added").await;
        let metaslabs =
            mos.metaslabs(mos.pool().tree().vdevs().top(VdevId(1)).unwrap(), &Default::default()).await;
        let used: u64 = metaslabs.unwrap().iter().map(|metaslab| metaslab.allocated.total_bytes()).sum();
        assert!(used > 100_000, "{used} bytes are used of the new vdev");
        assert_zdb_is_content(folder.path(), "vdev added");
    });
}

/// Commands read the state on disk while the next txg changes the pool: there a new vdev has no objects yet,
/// and a removed one still has its own.
#[test]
fn a_state_of_the_pool_has_the_vdevs_of_its_txg() {
    let rt = Runtime::real(Some(2));
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &LAYOUTS[0]).await;
        let before = engine.mos().await.unwrap();
        let usage = before.usage().await.unwrap();
        let new = vdev(&rt, folder.path(), 1, &LAYOUTS[1]).await;
        cenote_tasks::add_vdevs(&engine, vec![new], None).await.unwrap();
        engine.sync_all().await.unwrap();
        let after = engine.mos().await.unwrap();
        assert_eq!(after.usage().await.unwrap().len(), 2);

        assert_eq!(before.usage().await.unwrap(), usage);
        before.allocator(&before.log_spacemaps().await.unwrap()).await.unwrap();
        assert!(before.usable_bytes().await.unwrap() < after.usable_bytes().await.unwrap());
        assert!(rebuilding(&before).await.unwrap().is_empty());
    });
}

#[test]
fn a_task_that_meets_damage_half_way_stops_the_pool_and_its_txg_is_not_written() {
    let rt = Runtime::real(Some(2));
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &LAYOUTS[0]).await;
        let damage =
            || DatasetError::Damaged { dataset: DatasetId(0), object: ObjectId(1), why: "as a test".into() };
        // Before any change, an error only fails the task.
        let refused: Result<()> = engine.run(move |_| Box::pin(async move { Err(damage()) })).await;
        assert!(matches!(refused, Err(DatasetError::Damaged { .. })));
        engine.sync_all().await.unwrap();
        let before = engine.mos().await.unwrap().uberblock().txg;
        let half_done = engine.run(move |context| {
            let edit = context.edit();
            Box::pin(async move {
                edit.create(&NewObject::of(ObjectType::UINT64_OTHER)).await?;
                Err::<(), _>(damage())
            })
        });
        assert!(matches!(half_done.await, Err(DatasetError::Stopped { .. })));
        assert!(engine.hold().await.is_err());
        assert!(cenote_tasks::snapshot(&engine, &[format!("{POOL}@late")]).await.is_err());
        drop(engine);
        assert_eq!(reopen(&rt, folder.path()).await.uberblock().txg, before);
        assert_zdb_is_content(folder.path(), "stopped");
    });
}

//! Devices that leave a pool while its datasets are open.

use std::sync::{Arc, Weak};

use cenote_device::{Device, MemoryDevice, Op, Traced};
use cenote_format::units::VdevId;
use cenote_object::Objset;
use cenote_pool::create::NewDevice;
use cenote_runtime::{Rng, Runtime, SimConfig};
use cenote_tasks::{Resilver, attach, detach, run_scan};

use crate::common::{Load, Model, POOL, create_on, work};

const DISK_BYTES: usize = 96 << 20;
const LOAD: Load = Load { steps: 60, max_offset: 2_000_000, max_len: 200_000 };

/// A device in memory that counts its I/O.
fn disk(rt: &Runtime, name: &str) -> (NewDevice, Weak<Traced>) {
    let traced = Arc::new(Traced::new(Arc::new(MemoryDevice::new(name, DISK_BYTES)), 0, rt));
    let watched = Arc::downgrade(&traced);
    (NewDevice { path: name.into(), device: traced as Arc<dyn Device>, is_file: false }, watched)
}

/// An object set opened earlier still shows its contents.
async fn assert_shows(objset: &Objset, model: &Model) {
    for (id, content) in model {
        let read = objset.object(*id).await.unwrap().read(0, content.len()).await.unwrap();
        assert!(read[..] == content[..], "object {id} differs");
    }
}

#[test]
fn an_idle_dataset_reads_no_more_from_a_device_that_left_and_lets_it_be_closed() {
    let main = |rt: Runtime| async move {
        let (a, watched_a) = disk(&rt, "a");
        let (b, watched_b) = disk(&rt, "b");
        let engine = create_on(&rt, vec![a, b]).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(7));
        work(&engine, POOL, &mut model, &mut rng, LOAD).await;
        engine.sync_all().await.unwrap();
        // The pool, a read-only dataset, and one open for writing.
        let mos = engine.mos().await.unwrap();
        let read_only = mos.dataset(POOL).await.unwrap().objset().await.unwrap();
        let open = engine.dataset(POOL).await.unwrap();
        assert_shows(&read_only, &model).await;
        assert!(watched_b.upgrade().is_some_and(|b| b.count(Op::Read).ended > 0));

        let leaf = engine.pool().tree().vdevs().top(VdevId(0)).unwrap().children[1].guid;
        detach(&engine, leaf).await.unwrap();
        assert!(watched_b.upgrade().is_none(), "it is still open");
        assert_shows(&read_only, &model).await;
        assert_shows(&open.view(), &model).await;
        assert!(mos.pool().status().root.children[0].children.is_empty(), "the old view has the new tree");

        // A new device replaces the last one, and all open views follow.
        let (c, watched_c) = disk(&rt, "c");
        let last = engine.pool().tree().vdevs().top(VdevId(0)).unwrap().guid;
        attach(&engine, last, c, Resilver::Healing).await.unwrap();
        let lacks = engine.pool().lacking().behind().into_values().next().unwrap();
        run_scan(&engine, &|_| {}).await.unwrap();
        // I/O in flight when it joined may have used the old tree only: it must be on disk before the walk.
        let scan = engine.mos().await.unwrap().scan_status().await.unwrap().unwrap();
        assert!(engine.pool().uberblock().txg >= scan.max_txg, "{scan:?}");
        // OpenZFS resilvers births strictly between these two.
        assert!(scan.min_txg < lacks.0 && lacks.1 < scan.max_txg, "{scan:?} does not bring {lacks:?}");
        let mirror = engine.pool().tree().vdevs().top(VdevId(0)).cloned().unwrap();
        detach(&engine, mirror.children[0].guid).await.unwrap();
        assert!(watched_a.upgrade().is_none(), "it is still open");
        let before = watched_c.upgrade().unwrap().count(Op::Read).ended;
        assert_shows(&read_only, &model).await;
        assert_shows(&open.view(), &model).await;
        assert!(watched_c.upgrade().unwrap().count(Op::Read).ended > before);
    };
    Runtime::simulate(SimConfig::default(), main);
}

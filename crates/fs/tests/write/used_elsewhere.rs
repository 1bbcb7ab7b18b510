//! Sides of a mirror used elsewhere, whose DTLs are therefore wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_dataset::traverse::{Met, Tree};
use cenote_dataset::{ImportOptions, Mos, import};
use cenote_device::{Device, Fault, Faulty, MemoryDevice, Op};
use cenote_engine::Engine;
use cenote_format::units::{BlockId, Guid, ObjectId, TXG_INITIAL, Txg};
use cenote_fs::{Change, FsOptions, FsWriter};
use cenote_pool::label::read_labels;
use cenote_pool::{FoundDevice, ReadContext, VdevClass, VdevConfig, VdevKind, discover_devices};
use cenote_runtime::{Runtime, SimConfig};
use cenote_tasks::{Back, bring_back, run_scan};

use crate::intent_log::{create_on, export};
use crate::on_disk::POOL;
use crate::scratch::{at, file, noise};

const BYTES: usize = 96 << 20;
const MIB: u64 = 1 << 20;
/// Size of the labels at a device's start.
const FRONT_BYTES: u64 = 4 << 20;

/// A mirror of two devices with files, exported.
async fn mirror(rt: &Runtime) -> [Arc<MemoryDevice>; 2] {
    let sides = ["a", "b"].map(|name| Arc::new(MemoryDevice::new(name, BYTES)));
    let layout = [(VdevClass::Normal, VdevKind::Mirror, 0, 2)];
    let engine = create_on(rt, &layout, |_, index| sides[index].clone()).await;
    let fs = opened(&engine).await;
    for n in 0..20 {
        write(&engine, &fs, &format!("f{n}"), MIB, n).await;
        engine.sync_all().await.unwrap();
    }
    drop(fs);
    leave(rt, engine).await;
    sides
}

async fn leave(rt: &Runtime, engine: Engine) {
    export(&engine).await;
    drop(engine);
    rt.sleep(Duration::from_millis(50)).await;
}

async fn found(rt: &Runtime, sides: &[&Arc<MemoryDevice>]) -> Mos {
    let devices = sides.iter().map(|side| (*side).clone() as Arc<dyn Device>).collect();
    import(rt, &discover_devices(devices).await.pools[0], &ImportOptions::default()).await.unwrap()
}

async fn start(rt: &Runtime, sides: &[&Arc<MemoryDevice>]) -> Engine {
    Engine::start(&found(rt, sides).await).await.unwrap()
}

async fn opened(engine: &Engine) -> FsWriter {
    FsWriter::open(engine.dataset(POOL).await.unwrap(), FsOptions::default()).await.unwrap()
}

async fn write(engine: &Engine, fs: &FsWriter, name: &str, offset: u64, seed: u64) -> ObjectId {
    let known = fs.lookup(fs.root(), name.as_bytes()).await.unwrap().map(|entry| entry.object);
    let _hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    let change = Change { edit: &edit, now: at(1) };
    let object = match known {
        Some(object) => object,
        None => fs.create(change, fs.root(), name.as_bytes(), &file(0o644)).await.unwrap(),
    };
    let data = Bytes::from(noise(seed, MIB as usize));
    fs.write(change, object, offset, data).await.unwrap();
    object
}

async fn remove(engine: &Engine, fs: &FsWriter, name: &str) {
    let _hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    let change = Change { edit: &edit, now: at(4) };
    let gone = fs.unlink(change, fs.root(), name.as_bytes()).await.unwrap().unwrap();
    assert!(fs.free_unlinked(change, gone).await.unwrap());
}

/// Number of block copies unreadable from one side alone.
async fn unreadable(rt: &Runtime, side: &Arc<MemoryDevice>) -> usize {
    let mos = found(rt, &[side]).await;
    let pool = mos.pool().clone();
    let (mut met, mut bad) = (Vec::new(), 0);
    let mut tree = Tree::new(&pool, pool.uberblock().rootbp, &mut met);
    loop {
        for one in met.drain(..) {
            let Met::Block { bp, place } = one else { continue };
            for dva in bp.dvas() {
                let copy = bp.with_dvas(&[dva]);
                bad += usize::from(pool.as_stored().read(&copy, &ReadContext::new(place)).await.is_err());
            }
        }
        if !tree.step(&mut met).await {
            return bad;
        }
    }
}

/// Side `a` frees the files and overwrites their space; `b` continues for that many txgs.
async fn use_apart(rt: &Runtime, [a, b]: &[Arc<MemoryDevice>; 2], txgs: u64) {
    let engine = start(rt, &[a]).await;
    let fs = opened(&engine).await;
    for n in 0..20 {
        remove(&engine, &fs, &format!("f{n}")).await;
    }
    for _ in 0..4 {
        engine.sync_all().await.unwrap();
        engine.force_sync().await.unwrap();
    }
    for n in 0..30 {
        write(&engine, &fs, "other", n * MIB, 9000 + n).await;
    }
    drop(fs);
    leave(rt, engine).await;

    let engine = start(rt, &[b]).await;
    let fs = opened(&engine).await;
    for n in 0..txgs {
        write(&engine, &fs, "mine", n % 4 * MIB, 99 + n).await;
        engine.sync_all().await.unwrap();
    }
    drop(fs);
    leave(rt, engine).await;
}

/// The first missing txg of each leaf.
fn behind_from(engine: &Engine) -> Vec<Txg> {
    engine.pool().lacking().behind().values().map(|txgs| txgs.0).collect()
}

#[test]
fn a_mirror_side_that_was_used_elsewhere_is_brought_everything() {
    // The other side's uberblock ring still covers that time, or not.
    for txgs in [20, 150] {
        Runtime::simulate(SimConfig::default(), move |rt| async move {
            let sides = mirror(&rt).await;
            use_apart(&rt, &sides, txgs).await;
            let [a, b] = &sides;
            let engine = start(&rt, &[a, b]).await;
            assert_eq!(behind_from(&engine), [TXG_INITIAL], "{txgs} txgs");
            // The next txg's labels are equal on both sides, but the gap is still known.
            leave(&rt, engine).await;
            let engine = start(&rt, &[a, b]).await;
            assert_eq!(behind_from(&engine), [TXG_INITIAL], "{txgs} txgs");
            // Opening the pool met bad copies before the gap was known.
            let blamed =
                engine.pool().counters().errors().into_iter().filter(|(_, errors)| errors.checksum > 0);
            assert_eq!(blamed.count(), 0, "{txgs} txgs");
            let done = run_scan(&engine, &|_| {}).await.unwrap();
            assert_eq!((done.complete.len(), done.errors), (1, 0), "{done:?}");
            assert!(engine.pool().lacking().behind().is_empty());
            leave(&rt, engine).await;
            assert_eq!([unreadable(&rt, a).await, unreadable(&rt, b).await], [0, 0], "{txgs} txgs");
        });
    }
}

#[test]
fn a_side_that_was_merely_away_is_brought_what_it_missed_alone() {
    for txgs in [20, 150] {
        Runtime::simulate(SimConfig::default(), move |rt| async move {
            let [a, b] = &mirror(&rt).await;
            let engine = start(&rt, &[b]).await;
            let (fs, before) = (opened(&engine).await, engine.pool().uberblock().txg);
            for n in 0..txgs {
                write(&engine, &fs, "mine", n % 4 * MIB, 99 + n).await;
                engine.sync_all().await.unwrap();
            }
            drop(fs);
            leave(&rt, engine).await;
            let engine = start(&rt, &[a, b]).await;
            assert!(behind_from(&engine).iter().all(|from| *from > before), "{:?}", behind_from(&engine));
            let done = run_scan(&engine, &|_| {}).await.unwrap();
            assert_eq!(done.complete.len(), 1);
            // Only the file's last state and metadata are missing.
            assert!(done.written_bytes < 8 * MIB, "{done:?}");
            leave(&rt, engine).await;
            assert_eq!(unreadable(&rt, a).await, 0);
        });
    }
}

#[test]
fn an_old_copy_of_a_side_is_brought_all_since() {
    Runtime::simulate(SimConfig::default(), |rt| async move {
        let sides = mirror(&rt).await;
        let [a, b] = &sides;
        let old = Arc::new(MemoryDevice::with_content("a", a.live_image()));
        let engine = start(&rt, &[a, b]).await;
        let (fs, before) = (opened(&engine).await, engine.pool().uberblock().txg);
        for n in 0..20 {
            write(&engine, &fs, "mine", n % 4 * MIB, 99 + n).await;
            engine.sync_all().await.unwrap();
        }
        drop(fs);
        leave(&rt, engine).await;
        // Its DTL is empty.
        let engine = start(&rt, &[&old, b]).await;
        let from = behind_from(&engine);
        assert!(from.len() == 1 && from[0] <= Txg(before.0 + 1), "{from:?}");
        leave(&rt, engine).await;
        let engine = start(&rt, &[&old, b]).await;
        assert_eq!(behind_from(&engine), from, "also after the next txg");
        let done = run_scan(&engine, &|_| {}).await.unwrap();
        assert_eq!((done.complete.len(), done.errors), (1, 0), "{done:?}");
        leave(&rt, engine).await;
        assert_eq!(unreadable(&rt, &old).await, 0);
    });
}

#[test]
fn a_device_whose_log_cannot_be_read_lacks_everything() {
    Runtime::simulate(SimConfig::default(), |rt| async move {
        let sides = mirror(&rt).await;
        let [a, b] = &sides;
        // A write fails every other txg: that many runs need their own DTL block.
        let failing = Faulty::new(a.clone(), 1);
        let devices: Vec<Arc<dyn Device>> = vec![Arc::new(failing.clone()), b.clone()];
        let mos = import(&rt, &discover_devices(devices).await.pools[0], &ImportOptions::default()).await;
        let engine = Engine::start(&mos.unwrap()).await.unwrap();
        let fs = opened(&engine).await;
        for n in 0..120 {
            if n % 2 == 0 {
                failing.add(Fault::error(Op::Write).within(8 * MIB..100 * MIB).times(1));
            }
            write(&engine, &fs, "mine", 0, 99 + n).await;
            engine.sync_all().await.unwrap();
        }
        drop(fs);
        leave(&rt, engine).await;

        let mos = found(&rt, &[a, b]).await;
        let config = mos.pool().tree().config();
        let logs = config.vdevs.iter().flat_map(VdevConfig::leaves).filter(|leaf| leaf.dtl != ObjectId(0));
        let logs: Vec<(Guid, ObjectId)> = logs.map(|leaf| (leaf.guid, leaf.dtl)).collect();
        let [(leaf, log)] = logs[..] else { panic!("{logs:?}") };
        let bp = mos.objset().object(log).await.unwrap().blkptr(0, BlockId(0)).await.unwrap();
        assert!(bp.dvas().count() > 0, "{bp:?}");
        for (side, dva) in sides.iter().flat_map(|side| bp.dvas().map(move |dva| (side, dva))) {
            let junk = Bytes::from(vec![0xa5; dva.asize.0 as usize]);
            side.write_at(dva.offset_bytes + FRONT_BYTES, junk).await.unwrap();
            side.flush().await.unwrap();
        }
        drop((mos, config));

        let engine = start(&rt, &[a, b]).await;
        let behind = engine.pool().lacking().behind();
        assert_eq!(behind.get(&leaf).map(|txgs| txgs.0), Some(TXG_INITIAL), "{behind:?}");
        let done = run_scan(&engine, &|_| {}).await.unwrap();
        assert_eq!((&done.complete[..], done.errors), (&[leaf][..], 0), "{done:?}");
        leave(&rt, engine).await;
        assert!(start(&rt, &[a, b]).await.pool().lacking().behind().is_empty());
        assert_eq!(unreadable(&rt, a).await, 0);
    });
}

#[test]
fn a_side_that_was_used_elsewhere_comes_back_to_a_pool_in_use() {
    Runtime::simulate(SimConfig::default(), |rt| async move {
        let sides = mirror(&rt).await;
        use_apart(&rt, &sides, 20).await;
        let [a, b] = &sides;
        let leaf = {
            let labels = read_labels(&**a).await;
            let config = labels[0].config.clone().unwrap();
            Guid(config.get_u64("guid").unwrap())
        };
        let engine = start(&rt, &[b]).await;
        let devices = BTreeMap::from([(leaf, FoundDevice::new(a.clone()))]);
        bring_back(&engine, Some(leaf), Back::Online, devices).await.unwrap();
        assert_eq!(behind_from(&engine), [TXG_INITIAL]);
        let done = run_scan(&engine, &|_| {}).await.unwrap();
        assert_eq!((&done.complete[..], done.errors), (&[leaf][..], 0), "{done:?}");
        leave(&rt, engine).await;
        assert_eq!([unreadable(&rt, a).await, unreadable(&rt, b).await], [0, 0]);
    });
}

//! Unreadable metadata: operations that need them fail, all others succeed.
//!
//! A pool is created once. Then each of its metadata blocks in turn is destroyed, with all copies, and the
//! pool is opened and used: other data can be written, damaged files work or report errors, and the pool
//! keeps writing txgs.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cenote_dataset::mos::LEAK_DIR_NAME;
use cenote_dataset::traverse::{Met, Tree};
use cenote_dataset::{ImportOptions, Mos, import};
use cenote_device::{Device, MemoryDevice};
use cenote_engine::Engine;
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::{BlockId, ObjectId, VdevId};
use cenote_fs::write::{CloneSource, SetAttr, SetXattr};
use cenote_fs::{Change, FsError, FsOptions, FsWriter};
use cenote_object::DatasetError;
use cenote_pool::{Zbookmark, discover_devices};
use cenote_runtime::{Runtime, SimConfig};
use cenote_testkit::{all_said, zdb};

use crate::intent_log::{DISK, create_on, empty_filesystem};
use crate::on_disk::POOL;
use crate::scratch::{at, dir, file, noise};

const CHILD: &str = "made/a";
const DISK_BYTES: usize = 96 << 20;
const RECORD: usize = 128 << 10;
/// Bytes below a level-1 block.
const L1_SPAN: u64 = 128 << 20;
/// Blocks destroyed of each kind.
const OF_EACH_KIND: usize = 2;
/// Files of the large directory.
const MANY: usize = 400;

async fn open(engine: &Engine, name: &str) -> Result<FsWriter, FsError> {
    FsWriter::open(engine.dataset(name).await?, FsOptions::default()).await
}

/// Runs a change in the open txg.
macro_rules! change {
    ($engine:expr, $fs:expr, |$change:ident| $work:expr) => {{
        let _hold = $engine.hold().await.unwrap();
        let edit = $fs.live().edit();
        let $change = Change { edit: &edit, now: at(2) };
        $work.await
    }};
}

async fn make(
    engine: &Engine,
    fs: &FsWriter,
    name: &str,
    blocks: &[(u64, Vec<u8>)],
) -> Result<ObjectId, FsError> {
    let object = change!(engine, fs, |c| fs.create(c, fs.root(), name.as_bytes(), &file(0o644)))?;
    for (offset, data) in blocks {
        change!(engine, fs, |c| fs.write(c, object, *offset, Bytes::copy_from_slice(data)))?;
    }
    Ok(object)
}

async fn remove(engine: &Engine, fs: &FsWriter, name: &[u8]) -> Result<(), FsError> {
    if let Some(gone) = change!(engine, fs, |c| fs.unlink(c, fs.root(), name))? {
        while !change!(engine, fs, |c| fs.free_unlinked(c, gone))? {
            engine.sync_all().await?;
        }
    }
    Ok(())
}

/// A pool on one disk with every kind of metadata.
async fn filled(rt: &Runtime) -> Arc<MemoryDevice> {
    let memory = Arc::new(MemoryDevice::new("disk", DISK_BYTES));
    let engine = create_on(rt, &[DISK], |_, _| memory.clone() as Arc<dyn Device>).await;
    cenote_tasks::create_filesystem(&engine, CHILD, Vec::new(), empty_filesystem()).await.unwrap();
    let fs = open(&engine, CHILD).await.unwrap();
    let parts: Vec<_> = (0..4).map(|i| (i * L1_SPAN, noise(i, RECORD))).collect();
    let large = make(&engine, &fs, "large", &parts).await.unwrap();
    for i in 0..4 {
        make(&engine, &fs, &format!("small{i}"), &[(0, noise(50 + i, 3000))]).await.unwrap();
    }
    let cloned = make(&engine, &fs, "cloned", &[(0, noise(70, 3 * RECORD))]).await.unwrap();
    let attributes = make(&engine, &fs, "attributes", &[(0, noise(60, 3000))]).await.unwrap();
    let value = noise(61, 4000);
    change!(engine, fs, |c| fs.set_xattr(c, attributes, b"user.long", Some(&value), SetXattr::Any)).unwrap();
    let folder = change!(engine, fs, |c| fs.create(c, fs.root(), b"folder", &dir(0o755))).unwrap();
    for i in 0..MANY {
        let name = format!("a name that is not short, number {i}");
        change!(engine, fs, |c| fs.create(c, folder, name.as_bytes(), &file(0o600))).unwrap();
    }
    engine.sync_all().await.unwrap();
    let copy = make(&engine, &fs, "copy", &[]).await.unwrap();
    change!(engine, fs, |c| fs.clone_range(
        c,
        CloneSource::Live(&fs),
        (cloned, 0),
        (copy, 0),
        3 * RECORD as u64
    ))
    .unwrap();
    cenote_tasks::snapshot(&engine, &[format!("{CHILD}@s")]).await.unwrap();
    for (offset, data) in [(0, noise(80, RECORD)), (2 * L1_SPAN, noise(81, RECORD))] {
        change!(engine, fs, |c| fs.write(c, large, offset, Bytes::copy_from_slice(&data))).unwrap();
    }
    remove(&engine, &fs, b"small3").await.unwrap();
    engine.sync_all().await.unwrap();
    engine.force_sync().await.unwrap();
    memory
}

async fn imported(rt: &Runtime, memory: &Arc<MemoryDevice>) -> Result<Mos, DatasetError> {
    let found = discover_devices(vec![memory.clone() as Arc<dyn Device>]).await;
    import(rt, &found.pools[0], &ImportOptions::default()).await
}

/// All blocks of metadata of a pool.
async fn metadata_of(mos: &Mos) -> Vec<(Blkptr, Zbookmark)> {
    let (pool, mut met) = (mos.pool(), Vec::new());
    let mut tree = Tree::new(pool, mos.uberblock().rootbp, &mut met);
    while tree.step(&mut met).await {}
    let is_metadata =
        |bp: &Blkptr| bp.level() > 0 || bp.object_type().is_metadata() || bp.object_type() == ObjectType::SA;
    let blocks = met.into_iter().filter_map(|met| match met {
        Met::Block { bp, place } if is_metadata(&bp) && !bp.is_embedded() => Some((bp, place)),
        _ => None,
    });
    blocks.collect()
}

fn destroyed(image: &[u8], bp: &Blkptr) -> Arc<MemoryDevice> {
    let mut image = image.to_vec();
    for dva in bp.dvas() {
        assert_eq!(dva.vdev, VdevId(0));
        let start = (dva.offset_bytes + VDEV_LABEL_START_SIZE) as usize;
        image[start..start + bp.psize().0 as usize].fill(0xd5);
    }
    Arc::new(MemoryDevice::with_content("disk", image))
}

/// Every operation on the damaged file system must succeed or report an error.
async fn use_damaged(engine: &Engine, contents: &BTreeMap<Vec<u8>, Vec<u8>>, what: &str) {
    let Ok(fs) = open(engine, CHILD).await else { return };
    for (name, expected) in contents {
        let Ok(Some(entry)) = fs.lookup(fs.root(), name).await else { continue };
        if let Ok(open) = fs.view().open_file(entry.object).await
            && let Ok(read) = open.read(0, expected.len() as u64).await
        {
            assert!(read == *expected, "{what}: {} has other content", String::from_utf8_lossy(name));
        }
        change!(engine, fs, |c| fs.write(c, entry.object, 10, Bytes::from_static(b"in part"))).ok();
        change!(engine, fs, |c| fs.write(c, entry.object, L1_SPAN, noise(1, RECORD).into())).ok();
        let size = Some(L1_SPAN / 2);
        change!(engine, fs, |c| fs.set_attr(c, entry.object, &SetAttr { size, ..SetAttr::default() })).ok();
    }
    engine.sync_all().await.unwrap_or_else(|error| panic!("{what}: files were changed: {error}"));
    make(engine, &fs, "new", &[(0, noise(3, RECORD))]).await.ok();
    for name in contents.keys() {
        remove(engine, &fs, name).await.ok();
    }
    engine.sync_all().await.unwrap_or_else(|error| panic!("{what}: files were removed: {error}"));
}

/// Uses the pool with a block destroyed. Returns whether anything could be written.
async fn survives(
    rt: &Runtime,
    memory: Arc<MemoryDevice>,
    contents: &BTreeMap<Vec<u8>, Vec<u8>>,
    what: &str,
) -> bool {
    for round in 0..2 {
        let Ok(mos) = imported(rt, &memory).await else { return false };
        let Ok(engine) = Engine::start(&mos).await else { return false };
        drop(mos);
        let root = open(&engine, POOL).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let text = noise(90 + round, 5000);
        make(&engine, &root, &format!("other{round}"), &[(0, text)]).await.unwrap();
        engine.sync_all().await.unwrap_or_else(|error| panic!("{what}, round {round}: {error}"));
        if round == 0 {
            use_damaged(&engine, contents, what).await;
        } else {
            cenote_tasks::destroy_dataset(&engine, &format!("{CHILD}@s")).await.ok();
            cenote_tasks::destroy_dataset(&engine, CHILD).await.ok();
        }
        for _ in 0..4 {
            engine.force_sync().await.unwrap_or_else(|error| panic!("{what}, round {round}: {error}"));
        }
    }
    true
}

#[test]
fn any_block_of_metadata_may_be_lost_and_the_pool_goes_on() {
    Runtime::simulate(SimConfig::default(), move |rt| async move {
        let memory = filled(&rt).await;
        let image = memory.durable_image();
        let mos = imported(&rt, &memory).await.unwrap();
        let contents = {
            let objset = mos.dataset(CHILD).await.unwrap().objset().await.unwrap();
            let fs = cenote_fs::Filesystem::open(objset).await.unwrap();
            let mut contents = BTreeMap::new();
            for entry in fs.list(fs.root()).await.unwrap() {
                let open = fs.open_file(entry.object).await;
                if let Ok(open) = open {
                    let size = open.attr().size.min(2 * RECORD as u64);
                    contents.insert(entry.name.to_vec(), open.read(0, size).await.unwrap().to_vec());
                }
            }
            contents
        };
        assert!(contents.len() >= 7, "{contents:?}");
        let mut damaged = Vec::new();
        for name in [CHILD.to_owned(), format!("{CHILD}@s")] {
            damaged.push(mos.dataset(&name).await.unwrap().id());
        }
        let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
        let mut of_datasets = 0;
        for (bp, place) in metadata_of(&mos).await {
            if !damaged.contains(&place.dataset) {
                continue;
            }
            let kind = kinds.entry((bp.object_type().0, bp.level())).or_default();
            *kind += 1;
            if *kind > OF_EACH_KIND {
                continue;
            }
            of_datasets += 1;
            let what = format!("{place}, {:?}, level {}", bp.object_type(), bp.level());
            survives(&rt, destroyed(&image, &bp), &contents, &what).await;
        }
        assert!(of_datasets >= 10, "{kinds:?}");
    });
}

/// Everything depends on the MOS. If it is unreadable the pool may fail to open, or stop; but the loss of its
/// history or the list of deferred frees is not worth that.
#[test]
fn a_pool_goes_on_without_its_history_or_its_deferred_frees() {
    Runtime::simulate(SimConfig::default(), move |rt| async move {
        let memory = filled(&rt).await;
        let image = memory.durable_image();
        let mos = imported(&rt, &memory).await.unwrap();
        for name in ["history", "sync_bplist"] {
            let object = mos.directory_u64(name).await.unwrap().unwrap();
            let blocks: Vec<_> = metadata_of(&mos).await;
            let of_it = |(_, place): &&(Blkptr, Zbookmark)| place.dataset.0 == 0 && place.object.0 == object;
            let (bp, _) = blocks.iter().find(of_it).unwrap_or_else(|| panic!("{name} has no blocks"));
            let memory = destroyed(&image, bp);
            let mos = imported(&rt, &memory).await.unwrap();
            let engine = Engine::start(&mos).await.unwrap();
            cenote_tasks::snapshot(&engine, &[format!("{CHILD}@later")]).await.unwrap();
            for _ in 0..4 {
                engine.force_sync().await.unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            assert!(!engine.pool().read_errors().take_aside().is_empty(), "{name}: nobody was told");
        }
    });
}

/// Changes read their metadata before they are accepted. Metadata lost later cost one object its changes of
/// this txg, and no other anything.
#[test]
fn what_is_lost_before_a_txg_is_written_is_confined_to_its_object() {
    Runtime::simulate(SimConfig::default(), move |rt| async move {
        let memory = filled(&rt).await;
        let mos = imported(&rt, &memory).await.unwrap();
        let engine = Engine::start(&mos).await.unwrap();
        let blocks = metadata_of(&mos).await;
        drop(mos);
        let fs = open(&engine, CHILD).await.unwrap();
        let of = async |name: &str| fs.lookup(fs.root(), name.as_bytes()).await.unwrap().unwrap().object;
        let (large, small) = (of("large").await, of("small0").await);
        let write = async |object: ObjectId, offset: u64, data: Vec<u8>| {
            change!(engine, fs, |c| fs.write(c, object, offset, data.clone().into()))
        };
        write(large, L1_SPAN + RECORD as u64, noise(1, RECORD)).await.unwrap();
        write(large, 0, noise(2, RECORD)).await.unwrap();
        write(small, 0, noise(3, 3000)).await.unwrap();
        make(&engine, &fs, "new", &[(0, noise(4, RECORD))]).await.unwrap();
        let above = |place: &Zbookmark| place.object == large && (place.level, place.block.0) == (1, 1);
        let (bp, _) = blocks.iter().find(|(_, place)| above(place)).unwrap();
        for dva in bp.dvas() {
            let rubbish = Bytes::from(vec![0xd5; bp.psize().0 as usize]);
            memory.write_at(dva.offset_bytes + VDEV_LABEL_START_SIZE, rubbish).await.unwrap();
        }
        engine.cache().set_budget(0);
        engine.sync_all().await.unwrap();
        let told = engine.pool().read_errors().take_aside();
        assert!(told.len() == 1 && told[0].contains(&format!("object {}", large.0)), "{told:?}");
        // From now on operations report the error.
        let error = write(large, L1_SPAN, noise(5, RECORD)).await.unwrap_err();
        assert!(matches!(error, FsError::Dataset(DatasetError::Pool(_))), "{error:?}");
        drop((fs, engine));

        let mos = imported(&rt, &memory).await.unwrap();
        mos.allocator(&mos.log_spacemaps().await.unwrap()).await.unwrap();
        let fs = cenote_fs::Filesystem::open(mos.dataset(CHILD).await.unwrap().objset().await.unwrap())
            .await
            .unwrap();
        let read = async |name: &str, len: usize| {
            let entry = fs.lookup(fs.root(), name.as_bytes()).await.unwrap().unwrap();
            fs.open_file(entry.object).await.unwrap().read(0, len as u64).await.unwrap().to_vec()
        };
        assert!(read("small0", 3000).await == noise(3, 3000));
        assert!(read("new", RECORD).await == noise(4, RECORD));
        assert!(read("large", RECORD).await == noise(80, RECORD), "it stays as it was, whole");
    });
}

/// Space recorded as leaked: not freed, for lack of metadata.
async fn leaked_bytes(mos: &Mos) -> u64 {
    let dir = mos.root_dir().await.unwrap().child(LEAK_DIR_NAME).await.unwrap();
    dir.map_or(0, |dir| dir.phys().used_bytes)
}

/// If zdb is installed, it finds exactly this many leaked bytes, and no other error.
fn zdb_finds_leaked(memory: &MemoryDevice, bytes: u64) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk"), memory.durable_image()).unwrap();
    let Some(zdb) = zdb(folder.path(), &["-bcc", POOL]) else { return };
    let said = all_said(&zdb);
    if bytes == 0 {
        assert!(said.contains("No leaks (block sum matches space maps exactly)"), "{said}");
        return;
    }
    let (_, rest) = said.split_once("(leaked ").unwrap_or_else(|| panic!("no leak: {said}"));
    let found: i64 = rest.split(')').next().unwrap().parse().unwrap();
    assert_eq!(found, bytes as i64, "{said}");
    assert!(!said.contains("errors"), "{said}");
}

#[test]
fn a_gang_block_whose_header_is_lost_stops_nobody_when_it_is_freed() {
    Runtime::simulate(SimConfig::default(), move |rt| async move {
        let memory = filled(&rt).await;
        let mos = imported(&rt, &memory).await.unwrap();
        let engine = Engine::start(&mos).await.unwrap();
        drop(mos);
        let fs = open(&engine, CHILD).await.unwrap();
        // No free range is large enough for a block.
        let top = engine.pool().tree().vdevs().top(VdevId(0)).cloned().unwrap();
        let mut held = Vec::new();
        for metaslab in 0..top.asize_bytes >> top.metaslab_shift {
            let mut from = metaslab << top.metaslab_shift;
            loop {
                let piece = engine.allocator().borrow_free(VdevId(0), metaslab, from, 64 << 10);
                let Some(last) = piece.ranges().last().copied() else { break };
                from = last.1 + (64 << 10);
                held.push(piece);
            }
        }
        let gang = make(&engine, &fs, "gang", &[(0, noise(7, RECORD))]).await.unwrap();
        engine.sync_all().await.unwrap();
        drop(held);
        let bp = fs.live().on_disk().object(gang).await.unwrap().blkptr(0, BlockId(0)).await.unwrap();
        assert!(bp.is_gang(), "{bp:?}");
        for dva in bp.dvas() {
            memory.write_at(dva.offset_bytes + VDEV_LABEL_START_SIZE, vec![0; 512].into()).await.unwrap();
        }
        remove(&engine, &fs, b"gang").await.unwrap();
        for round in 0..4 {
            engine.force_sync().await.unwrap_or_else(|error| panic!("txg {round}: {error}"));
        }
        assert!(!engine.pool().read_errors().take_aside().is_empty(), "nobody was told");
        make(&engine, &fs, "after", &[(0, noise(8, RECORD))]).await.unwrap();
        engine.sync_all().await.unwrap();
        let leaked = leaked_bytes(&engine.mos().await.unwrap()).await;
        assert!((RECORD as u64..=bp.dvas().map(|dva| dva.asize.0).sum()).contains(&leaked), "{leaked}");
        drop((fs, engine));
        let mos = imported(&rt, &memory).await.unwrap();
        mos.allocator(&mos.log_spacemaps().await.unwrap()).await.unwrap();
        zdb_finds_leaked(&memory, leaked);
        Engine::start(&mos).await.unwrap().force_sync().await.unwrap();
    });
}

/// The fate of a pool with a destroyed MOS block.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
enum Fate {
    /// It does not open; nothing was accepted.
    DoesNotOpen,
    /// It opens read-only.
    IsRead,
    GoesOn,
}

/// Writes, snapshots and destroys as far as possible. Panics if the pool stops writing txgs, or if a pool
/// that does not open for writing was modified or does not report the damage.
async fn use_pool(rt: &Runtime, memory: Arc<MemoryDevice>, what: &str) -> Fate {
    let goes_on = async |engine: &Engine, after: &str| {
        engine.sync_all().await.unwrap_or_else(|error| panic!("{what}: stopped after {after}: {error}"));
    };
    let image = memory.durable_image();
    for round in 0..2 {
        let mos = match imported(rt, &memory).await {
            Ok(mos) => mos,
            Err(error) => {
                assert!(matches!(error, DatasetError::Unopenable { .. }), "{what}: {error:?}");
                return Fate::DoesNotOpen;
            }
        };
        let engine = match Engine::start(&mos).await {
            Ok(engine) => engine,
            Err(error) => {
                assert!(matches!(error, DatasetError::Unchangeable { .. }), "{what}: {error:?}");
                assert_eq!(round, 0, "{what}: could be changed before");
                assert!(memory.durable_image() == image, "{what}: was written to");
                let child = mos.dataset(CHILD).await.unwrap().objset().await.unwrap();
                let fs = cenote_fs::Filesystem::open(child).await.unwrap();
                assert!(!fs.list(fs.root()).await.unwrap().is_empty(), "{what}: can't be read");
                return Fate::IsRead;
            }
        };
        drop(mos);
        for name in [POOL, CHILD] {
            if let Ok(fs) = open(&engine, name).await {
                let text = noise(90 + round, 5000);
                make(&engine, &fs, &format!("other{round}"), &[(0, text)]).await.ok();
            }
            goes_on(&engine, name).await;
        }
        let taken = format!("{CHILD}@t{round}");
        cenote_tasks::snapshot(&engine, std::slice::from_ref(&taken)).await.ok();
        goes_on(&engine, "a snapshot").await;
        let gone = [format!("{CHILD}@s"), taken];
        cenote_tasks::destroy_snapshots(&engine, &gone, cenote_tasks::InUse::Refuse).await.ok();
        goes_on(&engine, "snapshots were destroyed").await;
        if round == 1 {
            cenote_tasks::destroy_dataset(&engine, CHILD).await.ok();
            goes_on(&engine, "a dataset was destroyed").await;
        }
        for _ in 0..4 {
            engine.force_sync().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
    Fate::GoesOn
}

#[test]
fn a_lost_block_of_the_mos_stops_no_pool_that_has_opened() {
    Runtime::simulate(SimConfig::default(), move |rt| async move {
        let memory = filled(&rt).await;
        let image = memory.durable_image();
        let mos = imported(&rt, &memory).await.unwrap();
        let child = mos.dataset(CHILD).await.unwrap();
        let phys = (*child.dir().phys(), *child.phys());
        let of_child = [
            child.dir().id(),
            phys.0.props_zap,
            phys.0.child_dirs_zap,
            phys.1.snapshot_names_zap,
            phys.1.deadlist,
        ];
        let vdev = &mos.pool_config().vdevs[0];
        let places = mos.metaslab_places(vdev).await.unwrap();
        let space_maps: Vec<_> = places.iter().filter_map(|place| place.map).collect();
        let (mut seen, mut fates) = (BTreeMap::<_, usize>::new(), BTreeMap::<Fate, usize>::new());
        let mut of_space = 0;
        for (bp, place) in metadata_of(&mos).await.into_iter().filter(|(_, place)| place.dataset.0 == 0) {
            let of_object = seen.entry((place.object, bp.level())).or_default();
            *of_object += 1;
            if *of_object > OF_EACH_KIND {
                continue;
            }
            let what = format!("{place}, {:?}", bp.object_type());
            let fate = use_pool(&rt, destroyed(&image, &bp), &what).await;
            let is_of_child = of_child.contains(&place.object);
            assert!(fate == Fate::GoesOn || !is_of_child, "{what} is of one dataset: {fate:?}");
            let is_of_space = space_maps.contains(&place.object);
            of_space += usize::from(is_of_space);
            assert!(fate == Fate::GoesOn || !is_of_space, "{what} is of one metaslab: {fate:?}");
            *fates.entry(fate).or_default() += 1;
        }
        assert!(fates[&Fate::GoesOn] >= 6 && of_space > 0, "{fates:?}, {of_space} space maps");
        assert!(fates[&Fate::IsRead] >= 3 && fates[&Fate::DoesNotOpen] >= 5, "{fates:?}");
    });
}

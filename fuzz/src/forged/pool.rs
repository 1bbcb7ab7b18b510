//! The pool to forge, created by the engine.
//!
//! Locking: the disk's mutex guards its image; it is held within one device call and never across an await.

use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cenote_cache::CacheOptions;
use cenote_codec::checksum::embedded::label_verifier;
use cenote_codec::checksum::{Checksum, Stored};
use cenote_dataset::{ImportOptions, KeySource, Mos, import};
use cenote_device::{Device, DeviceError, DeviceInfo, Io, Nature, Op};
use cenote_engine::Engine;
use cenote_format::blkptr::BLKPTR_BYTES;
use cenote_format::dnode::{DNODE_CORE_BYTES, DNODE_MIN_BYTES, ObjectType};
use cenote_format::features::SPA_FEATURES;
use cenote_format::label::{
    UBERBLOCK_RING_OFFSET, VDEV_LABEL_START_SIZE, label_offset, uberblock_count, uberblock_slot_bytes,
};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{ObjectId, Txg};
use cenote_fs::write::{NewFile, NewFilesystem, NewKind, SetXattr, create_filesystem};
use cenote_fs::{Change, FsOptions, FsWriter, Timestamp, VolumeWriter};
use cenote_object::object::Visited;
use cenote_object::{LiveObjset, Result};
use cenote_pool::create::{NewDevice, NewVdev, plan};
use cenote_pool::{VdevClass, VdevKind, discover_devices};
use cenote_runtime::{Runtime, SimConfig};
use cenote_tasks::{InUse, NewPool};
use cenote_testkit::image::Image;

use super::{Base, Block, NATIVE};
use crate::flatten::{FlatBlock, Room, flatten};

/// Pool name.
pub const POOL: &str = "forged";
const DISK_BYTES: u64 = 128 << 20;
/// The file whose space the flattened blocks occupy.
const ROOM_BYTES: usize = 32 << 20;
const ASHIFT: u32 = 9;
const LEFT_TO_UPGRADE: [&str; 3] = ["blake3", "head_errlog", "zilsaxattr"];
const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };

/// A RAM disk.
struct ImageDisk {
    info: DeviceInfo,
    image: Mutex<Image>,
}

impl Device for ImageDisk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        let checked = self.info.check_range(Op::Read, offset, len as u64);
        Io::done(checked.map(|()| self.lock().read(offset, len)))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        let checked = self.info.check_writable(Op::Write, offset, data.len() as u64);
        Io::done(checked.map(|()| self.lock().write(offset, &data)))
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        self.write_at(offset, data)
    }

    fn flush(&self) -> Io<()> {
        Io::done(Ok(()))
    }

    fn discard(&self, _: u64, _: u64) -> Io<()> {
        Io::done(Err(DeviceError::Unsupported { path: self.info.path.clone(), op: Op::Discard }))
    }
}

impl ImageDisk {
    fn new(image: Image) -> Arc<ImageDisk> {
        let info = DeviceInfo {
            path: "forged".into(),
            size_bytes: DISK_BYTES,
            sector_bytes: 512,
            rotational: None,
            read_only: false,
            others_may_write: false,
            nature: Nature::LOCAL,
        };
        Arc::new(ImageDisk { info, image: Mutex::new(image) })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Image> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The devices of a pool on this image.
pub fn devices(image: Image) -> Vec<Arc<dyn Device>> {
    vec![ImageDisk::new(image)]
}

/// Creates the pool and flattens it.
pub fn make() -> Base {
    let build = |runtime: Runtime| async move {
        let disk = ImageDisk::new(Image::new(DISK_BYTES));
        fill(&runtime, disk.clone()).await.unwrap_or_else(|error| panic!("the pool can't be made: {error}"));
        let mut image = disk.lock().clone();
        let discovery = discover_devices(vec![disk]).await;
        let mos = import(&runtime, &discovery.pools[0], &ImportOptions::default()).await;
        let mos = mos.unwrap_or_else(|error| panic!("the pool can't be opened: {error}"));
        let logs = log_blocks(&mos).await;
        let extents = room(&mos).await.unwrap_or_else(|error| panic!("{error}"));
        let flat = flatten(mos.pool(), Room { extents, keep_space_maps: true }).await;
        let blocks: Vec<Block> = flat.blocks.into_iter().map(Block::of).chain(logs).collect();
        blocks.iter().for_each(|block| image.write(block.offset_bytes, &block.bytes));
        put_uberblock(&mut image, &Uberblock { rootbp: flat.rootbp, ..*mos.uberblock() });
        Base { image, blocks }
    };
    Runtime::simulate(SimConfig::seed(1), build).0
}

impl Block {
    fn of(flat: FlatBlock) -> Block {
        let FlatBlock { offset_bytes, object_type, level, bytes } = flat;
        let pointers = match (level, object_type) {
            (0, ObjectType::DNODE) => (0..bytes.len())
                .step_by(DNODE_MIN_BYTES)
                .filter(|&at| bytes[at] != 0)
                .map(|at| at + DNODE_CORE_BYTES)
                .collect(),
            (0, ObjectType::OBJSET) => vec![DNODE_CORE_BYTES],
            (0, _) => Vec::new(),
            _ => (0..bytes.len()).step_by(BLKPTR_BYTES).filter(|&at| bytes[at..at + 8] != [0; 8]).collect(),
        };
        Block { offset_bytes: VDEV_LABEL_START_SIZE + offset_bytes, bytes, pointers, log: None }
    }
}

/// The space of the file made for flattened blocks.
async fn room(mos: &Mos) -> Result<Vec<Range<u64>>> {
    let objset = mos.dataset(POOL).await?.objset().await?;
    let mut largest: Option<(u64, ObjectId)> = None;
    let mut dnodes = objset.dnodes(ObjectId(1), objset.last_object());
    while let Some(batch) = dnodes.next_batch().await {
        let sizes = batch?.dnodes.into_iter().map(|(id, dnode)| (dnode.used_bytes, id));
        largest = largest.into_iter().chain(sizes).max();
    }
    let (_, file) = largest.unwrap_or_default();
    let mut walk = objset.object(file).await?.walk();
    let mut extents: Vec<Range<u64>> = Vec::new();
    while let Some(batch) = walk.next_batch().await {
        for visited in batch {
            let Visited::Block { level: 0, bp, .. } = visited else { continue };
            let places = bp.dvas().take(1).map(|dva| dva.offset_bytes..dva.offset_bytes + dva.asize.0);
            extents.extend(places);
        }
    }
    Ok(extents)
}

/// Intent-log blocks, in place.
async fn log_blocks(mos: &Mos) -> Vec<Block> {
    let mut blocks = Vec::new();
    for dataset in mos.all_datasets().await.unwrap_or_default() {
        let Ok(objset) = dataset.objset().await else { continue };
        let mut bp = objset.phys().zil_header.log;
        while let Ok(Some(block)) = objset.read_log_block(&bp, false).await {
            let Some(dva) = bp.dvas().next() else { break };
            let context = objset.context(ObjectId(0), 0, Default::default());
            let Ok(bytes) = mos.pool().as_stored().read(&bp, &context).await else { break };
            let offset_bytes = VDEV_LABEL_START_SIZE + dva.offset_bytes;
            blocks.push(Block { offset_bytes, bytes: bytes.into(), pointers: Vec::new(), log: Some(bp) });
            bp = block.next;
        }
    }
    assert!(!blocks.is_empty(), "the pool has no log");
    blocks
}

fn put_uberblock(image: &mut Image, uberblock: &Uberblock) {
    let slot_bytes = uberblock_slot_bytes(ASHIFT);
    let slot = uberblock.txg.0 % uberblock_count(ASHIFT) * slot_bytes;
    for label in 0..4 {
        let Some(start) = label_offset(DISK_BYTES, label) else { continue };
        let offset = start + UBERBLOCK_RING_OFFSET + slot;
        let mut bytes = uberblock.encode();
        bytes.resize(slot_bytes as usize, 0);
        let sealed = Checksum::Label.seal_as(&mut bytes, label_verifier(offset), NATIVE, Stored::Checksum);
        sealed.unwrap_or_else(|error| panic!("an uberblock has room for its checksum: {error}"));
        image.write(offset, &bytes);
    }
}

type Filling = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

fn empty_filesystem(live: LiveObjset) -> Filling {
    Box::pin(async move {
        let edit = live.edit();
        let change = Change { edit: &edit, now: NOW };
        create_filesystem(&live, change, &NewFilesystem::default(), FsOptions::default())
            .await
            .map_err(inner)?;
        Ok(())
    })
}

fn inner(error: cenote_fs::FsError) -> cenote_object::DatasetError {
    match error {
        cenote_fs::FsError::Dataset(error) => error,
        other => panic!("the pool can't be filled: {other}"),
    }
}

async fn fill(runtime: &Runtime, disk: Arc<ImageDisk>) -> Result<()> {
    let device = NewDevice { path: "forged".into(), device: disk, is_file: false };
    let vdev = NewVdev {
        kind: VdevKind::Disk,
        parity: 0,
        draid: None,
        class: VdevClass::Normal,
        devices: vec![device],
    };
    let plan = plan(runtime, POOL, &[vdev], Some(ASHIFT), (1, "here"), Txg(4));
    let new = NewPool {
        plan: plan.unwrap_or_else(|error| panic!("{error}")),
        features: SPA_FEATURES.iter().filter(|feature| !LEFT_TO_UPGRADE.contains(&feature.name)).collect(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        keys: KeySource::default(),
        cache: CacheOptions::metadata(4 << 20),
    };
    let engine = cenote_tasks::create_pool(runtime, new, Box::new(empty_filesystem)).await?;
    let names = |names: &[&str]| names.iter().map(|name| format!("{POOL}/{name}")).collect::<Vec<_>>();
    let name = |own: &str| format!("{POOL}/{own}");
    for own in ["home", "home/sub"] {
        cenote_tasks::create_filesystem(&engine, &name(own), Vec::new(), Box::new(empty_filesystem)).await?;
    }
    let volume = |live: LiveObjset| -> Filling {
        Box::pin(async move {
            let edit = live.edit();
            VolumeWriter::create(live.clone(), &edit, 1 << 20, 8 << 10).await.map_err(inner)?;
            Ok(())
        })
    };
    cenote_tasks::create_volume(&engine, &name("volume"), Vec::new(), Box::new(volume)).await?;
    let root = writer(&engine, POOL, 1 << 20).await?;
    let noise: Vec<u8> =
        (0..ROOM_BYTES as u32 / 4).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    file(&engine, &root, "room", &noise).await?;
    let home = writer(&engine, &name("home"), 4096).await?;
    many_files(&engine, &home, 0..40).await?;
    cenote_tasks::snapshot(&engine, &names(&["home@a", "home/sub@a"])).await?;
    many_files(&engine, &home, 20..60).await?;
    cenote_tasks::snapshot(&engine, &names(&["home@b"])).await?;
    cenote_tasks::clone_snapshot(&engine, &name("home@b"), &name("clone"), Vec::new()).await?;
    let clone = writer(&engine, &name("clone"), 4096).await?;
    many_files(&engine, &clone, 50..70).await?;
    many_files(&engine, &home, 0..10).await?;
    cenote_tasks::snapshot(&engine, &names(&["home@c", "clone@x"])).await?;
    cenote_tasks::destroy_snapshots(&engine, &names(&["home@a"]), InUse::Refuse).await?;
    cenote_tasks::hold_snapshots(&engine, &names(&["home@c"]), "kept").await?;
    cenote_tasks::bookmark(&engine, &name("home@c"), &name("home#mark")).await?;
    engine.sync_all().await?;
    // The first commit starts the log and waits for a txg. Later commits are in the log only.
    many_files(&engine, &home, 99..100).await?;
    home.commit(None).await.map_err(inner)?;
    many_files(&engine, &home, 100..104).await?;
    home.commit(None).await.map_err(inner)
}

async fn writer(engine: &Engine, name: &str, record_bytes: u32) -> Result<FsWriter> {
    let options = FsOptions { record_bytes, ..FsOptions::default() };
    FsWriter::open(engine.dataset(name).await?, options).await.map_err(inner)
}

/// Creates or replaces a file in the root directory.
async fn file(engine: &Engine, fs: &FsWriter, name: &str, content: &[u8]) -> Result<ObjectId> {
    let need = cenote_engine::Need::Write(content.len() as u64);
    let (fs, name, content) = (fs.clone(), name.to_owned(), Bytes::copy_from_slice(content));
    let live = fs.live().clone();
    let change = |edit| async move {
        let change = Change { edit: &edit, now: NOW };
        let id = match fs.lookup(fs.root(), name.as_bytes()).await.map_err(inner)? {
            Some(entry) => entry.object,
            None => {
                let new = NewFile { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
                fs.create(change, fs.root(), name.as_bytes(), &new).await.map_err(inner)?
            }
        };
        fs.write(change, id, 0, content).await.map_err(inner)?;
        Ok(id)
    };
    engine.change(&live, need, change).await
}

/// Files of several blocks, folders, links, attributes in spill blocks. Long names make the folder a fat ZAP.
async fn many_files(engine: &Engine, fs: &FsWriter, numbers: Range<u32>) -> Result<()> {
    for number in numbers {
        let name = format!("{number:04}-{}", "long".repeat(16));
        let id = file(engine, fs, &name, &vec![number as u8; 300 * number as usize]).await?;
        let hold = engine.hold().await?;
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: NOW };
        if number.is_multiple_of(5) {
            let value = [number as u8; 2000];
            fs.set_xattr(change, id, b"user.x", Some(&value), SetXattr::Any).await.map_err(inner)?;
        }
        let folder = format!("folder{number:03}");
        let is_new = fs.lookup(fs.root(), folder.as_bytes()).await.map_err(inner)?.is_none();
        if number.is_multiple_of(8) && is_new {
            let new = |kind| NewFile { kind, mode: 0o750, umask: 0, uid: 7, gid: 8 };
            let dir = fs
                .create(change, fs.root(), folder.as_bytes(), &new(NewKind::Directory))
                .await
                .map_err(inner)?;
            fs.create(change, dir, b"inner", &new(NewKind::Directory)).await.map_err(inner)?;
            fs.create(change, dir, b"link", &new(NewKind::Symlink(b"../elsewhere"))).await.map_err(inner)?;
            fs.link(change, id, dir, b"again").await.map_err(inner)?;
        }
        drop(hold);
    }
    Ok(())
}

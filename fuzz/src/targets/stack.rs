//! The whole stack, in the simulator, on a pool with arbitrary bytes.
//!
//! An input is a *tree*, made by `examples/extract`: a pool without checksums or compression.
//!
//! ```text
//!   length of the configuration (u32 LE) | configuration (packed nvlist) | uberblock, 1 KiB | blocks
//! ```
//!
//! The blocks fill the only disk's allocatable space from its start.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cenote_cache::CacheOptions;
use cenote_dataset::{Dataset, ImportOptions, Mos, import};
use cenote_device::{Device, DeviceInfo, Io, Nature, Op};
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::nvlist::Nvlist;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{ObjectId, Txg};
use cenote_fs::{FileKind, Filesystem, Volume};
use cenote_inspect::scan::{ScanNeeds, ScanTarget, scan};
use cenote_object::{Object, Zap};
use cenote_pool::{FoundDevice, FoundPool, PoolConfig};
use cenote_runtime::{Runtime, SimConfig};

use super::consume;

const UBERBLOCK_BYTES: usize = 1024;
/// Simulator steps after which a run counts as endless. An undamaged tree takes some thousand.
const STEP_LIMIT: u64 = 20_000_000;
/// Most objects of each kind examined: a damaged tree may claim any number.
const MOST: usize = 200;
/// Bytes read per file.
const READ_BYTES: u64 = 256 << 10;

/// Assembles a tree.
pub fn join(config: &[u8], uberblock: &[u8], blocks: &[u8]) -> Vec<u8> {
    let len = (config.len() as u32).to_le_bytes();
    let mut uberblock = uberblock.to_vec();
    uberblock.resize(UBERBLOCK_BYTES, 0);
    [&len[..], config, &uberblock, blocks].concat()
}

fn split(tree: &[u8]) -> Option<(PoolConfig, Uberblock, Bytes)> {
    let (len, rest) = tree.split_first_chunk::<4>()?;
    let (config, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    let (uberblock, blocks) = rest.split_at_checked(UBERBLOCK_BYTES)?;
    let config = PoolConfig::from_mos(&Nvlist::decode(config).ok()?).ok()?;
    Some((config, Uberblock::decode(uberblock).ok()?, Bytes::copy_from_slice(blocks)))
}

/// Opens a tree and reads everything.
pub fn tree(data: &[u8]) {
    consume(files_of(data));
}

/// Reads everything in a tree. Returns the number of files its scans met.
pub fn files_of(data: &[u8]) -> usize {
    let Some((config, uberblock, blocks)) = split(data) else { return 0 };
    let leaves: Vec<_> = config.vdevs.iter().flat_map(|top| top.leaves()).map(|leaf| leaf.guid).collect();
    let device: Arc<dyn Device> = Arc::new(Blocks::new(blocks));
    let device = |path| {
        let mut found = FoundDevice::new(device.clone());
        (found.path, found.label_txg, found.good_labels) = (path, Txg(u64::MAX), 4);
        found
    };
    let devices: BTreeMap<_, _> = leaves.into_iter().map(|guid| (guid, device(guid.to_string()))).collect();
    let found = FoundPool {
        config,
        uberblocks: vec![uberblock],
        devices,
        auxiliary: BTreeMap::new(),
        notes: Vec::new(),
        lost: None,
        duplicates: Vec::new(),
        taps: None,
        fence: None,
    };
    consume(found.status());
    let config = SimConfig { step_limit: STEP_LIMIT, ..SimConfig::seed(1) };
    let look = |runtime: Runtime| async move {
        let options = ImportOptions { cache: CacheOptions::metadata(4 << 20), ..ImportOptions::default() };
        match import(&runtime, &found, &options).await {
            Ok(mos) => look_at_pool(&mos).await,
            Err(_) => 0,
        }
    };
    Runtime::simulate(config, look).0
}

async fn look_at_pool(mos: &Mos) -> usize {
    consume(mos.pool_properties().await);
    consume(mos.history().await);
    consume(mos.error_log().await);
    consume(mos.cloned_summary().await);
    consume(mos.checkpoint().await);
    if let Ok(log) = mos.log_spacemaps().await {
        for vdev in mos.pool().tree().config().vdevs.iter().take(4) {
            consume(mos.metaslabs(vdev, &log).await);
        }
    }
    look_at_objects(mos.objset()).await;
    let mut files = 0;
    for dataset in mos.all_datasets().await.into_iter().flatten().take(MOST) {
        files += look_at_dataset(&dataset).await;
        for snapshot in dataset.snapshots().await.into_iter().flatten().take(4) {
            files += look_at_dataset(&snapshot).await;
        }
    }
    files
}

async fn look_at_objects(objset: &cenote_object::Objset) {
    let mut dnodes = objset.dnodes(ObjectId(0), objset.last_object());
    let mut seen = 0;
    while let Some(Ok(batch)) = dnodes.next_batch().await {
        for (id, dnode) in batch.dnodes {
            seen += 1;
            let object = Object::new(objset.clone(), id, dnode);
            if object.dnode().object_type.is_zap()
                && let Ok(zap) = Zap::open(object.clone()).await
            {
                consume(zap.lookup(b"type").await);
                let mut entries = zap.entries();
                for _ in 0..MOST {
                    let Some(Ok(batch)) = entries.next_batch().await else { break };
                    consume(batch);
                }
            }
            let mut walk = object.walk();
            for _ in 0..MOST {
                let Some(blocks) = walk.next_batch().await else { break };
                consume(blocks);
            }
        }
        if seen > 20 * MOST {
            return;
        }
    }
}

async fn look_at_dataset(dataset: &Dataset) -> usize {
    consume((dataset.space().await, dataset.properties().await, dataset.bookmarks().await));
    consume((dataset.origin().await, dataset.clones().await, dataset.holds().await));
    let Ok(objset) = dataset.objset().await else { return 0 };
    consume(objset.intent_log().await);
    if let Ok(volume) = Volume::open(objset.clone()).await {
        consume((volume.read(0, READ_BYTES).await, volume.next_data(1).await, volume.next_hole(1).await));
    }
    look_at_objects(&objset).await;
    let Ok(filesystem) = Filesystem::open(objset).await else { return 0 };
    consume(filesystem.unlinked().await);
    look_at_files(&filesystem).await;
    let (name, snapshot) = (dataset.name().to_owned(), dataset.snapshot_name().map(str::to_owned));
    let target = ScanTarget { dataset: name, snapshot, filesystem };
    let needs = ScanNeeds { targets: true, xattrs: true, hashes: true };
    let mut rows = 0;
    let sink = |count: usize| {
        rows += count;
        let enough = || std::io::Error::other("enough");
        if rows > 100 * MOST { Err(cenote_inspect::InspectError::io("rows")(enough())) } else { Ok(()) }
    };
    consume(scan(&target, needs, |batch| batch.rows.len(), sink).await);
    rows
}

async fn look_at_files(filesystem: &Filesystem) {
    let mut folders = vec![filesystem.root()];
    for _ in 0..MOST {
        let Some(folder) = folders.pop() else { return };
        for entry in filesystem.list(folder).await.into_iter().flatten().take(MOST) {
            consume(filesystem.lookup(folder, &entry.name).await);
            let Ok(attr) = filesystem.attr(entry.object).await else { continue };
            consume((filesystem.path_of(entry.object).await, filesystem.acl(entry.object).await));
            consume((filesystem.xattrs(entry.object).await, filesystem.read_link(entry.object).await));
            if attr.is_dir() {
                folders.push(entry.object);
            }
            if attr.kind() == FileKind::Regular
                && let Ok(file) = filesystem.open_file(entry.object).await
            {
                consume((file.read(0, READ_BYTES).await, file.read(u64::MAX - 10, 100).await));
            }
        }
    }
}

/// A read-only device that stores only the allocatable space.
struct Blocks {
    info: DeviceInfo,
    blocks: Bytes,
}

impl Blocks {
    fn new(blocks: Bytes) -> Blocks {
        let size_bytes = VDEV_LABEL_START_SIZE + blocks.len() as u64;
        let info = DeviceInfo {
            path: "tree".into(),
            size_bytes,
            sector_bytes: 512,
            rotational: None,
            read_only: true,
            others_may_write: false,
            nature: Nature::LOCAL,
        };
        Blocks { info, blocks }
    }
}

impl Device for Blocks {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        Io::done(self.info.check_range(Op::Read, offset, len as u64).map(|()| {
            match offset.checked_sub(VDEV_LABEL_START_SIZE) {
                Some(at) => self.blocks.slice(at as usize..at as usize + len),
                None => Bytes::from(vec![0; len]),
            }
        }))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        Io::done(self.info.check_writable(Op::Write, offset, data.len() as u64))
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        self.write_at(offset, data)
    }

    fn flush(&self) -> Io<()> {
        Io::done(Ok(()))
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        Io::done(self.info.check_writable(Op::Discard, offset, len))
    }
}

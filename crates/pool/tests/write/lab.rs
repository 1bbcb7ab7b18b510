//! A pool in memory, made as an engine makes one: devices labelled and assembled, space empty.

#![allow(clippy::print_stderr, reason = "tests say what they skip")]

use bytes::Bytes;
use cenote_device::{Delayed, Device, Faulty, Latency, MemoryDevice};
use cenote_format::blkptr::Blkptr;
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::label::{
    DraidConfig, LabelConfig, PoolConfig as LabelPool, PoolState, VdevConfig, VdevKind,
};
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::uberblock::{MMP_MAGIC, Uberblock};
use cenote_format::units::{Guid, ObjectId, Txg, VdevId};
use cenote_pool::alloc::{Allocator, NewMetaslab};
use cenote_pool::label::{LabelUpdate, init_device};
use cenote_pool::{
    FoundDevice, FoundPool, Pool, PoolConfig, PoolError, Trusted, WriteProps, Written, Zbookmark,
};
use cenote_runtime::{Rng, Runtime, SimConfig};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub const POOL_GUID: Guid = Guid(0xce07e);
/// The smallest possible device.
const DISK_BYTES: usize = 64 << 20;
const METASLAB_BYTES: u64 = 16 << 20;
/// A leaf's share of its vdev, in whole rows of a dRAID.
const LEAF_ASIZE: u64 = 48 << 20;
/// Lets concurrent writes complete in any order.
const LATENCY: Latency =
    Latency { fixed: Duration::from_micros(80), jitter: Duration::from_micros(40), bytes_per_s: None };
pub const FIRST_TXG: Txg = Txg(4);

#[derive(Debug, Clone, Copy)]
pub enum Layout {
    Disk,
    Mirror(usize),
    /// Parity, width.
    Raidz(usize, usize),
    /// Parity, data, children, spares.
    Draid(usize, u64, usize, u64),
}

impl Layout {
    fn children(self) -> usize {
        match self {
            Layout::Disk => 1,
            Layout::Mirror(width) | Layout::Raidz(_, width) | Layout::Draid(_, _, width, _) => width,
        }
    }

    /// Number of disks that may be lost.
    pub fn tolerance(self) -> usize {
        match self {
            Layout::Disk => 0,
            Layout::Mirror(width) => width - 1,
            Layout::Raidz(parity, _) | Layout::Draid(parity, ..) => parity,
        }
    }

    /// A whole redundancy group of a dRAID.
    fn metaslab_bytes(self) -> u64 {
        match self {
            Layout::Draid(parity, data, ..) => (parity as u64 + data) * METASLAB_BYTES,
            _ => METASLAB_BYTES,
        }
    }

    fn config(self, id: u64, ashift: u32) -> VdevConfig {
        let leaf = |child: usize| VdevConfig {
            path: Some(format!("/disk/{id}-{child}")),
            create_txg: FIRST_TXG,
            ..VdevConfig::new(VdevKind::Disk, child as u64, Guid(1000 + 100 * id + child as u64))
        };
        let (kind, disks) = match self {
            Layout::Disk => (VdevKind::Disk, 1),
            Layout::Mirror(_) => (VdevKind::Mirror, 1),
            Layout::Raidz(_, width) => (VdevKind::Raidz, width as u64),
            Layout::Draid(_, _, width, spares) => (VdevKind::Draid, width as u64 - spares),
        };
        let mut top = match self {
            Layout::Disk => leaf(0),
            _ => VdevConfig {
                children: (0..self.children()).map(leaf).collect(),
                ..VdevConfig::new(kind, id, Guid(1000 + 100 * id + 99))
            },
        };
        top.id = id;
        let metaslab = self.metaslab_bytes();
        (top.ashift, top.asize_bytes) = (ashift, LEAF_ASIZE * disks / metaslab * metaslab);
        (top.metaslab_array, top.metaslab_shift) = (ObjectId(100 + id), 25);
        match self {
            Layout::Raidz(parity, _) => top.parity = parity,
            Layout::Draid(parity, data, width, spares) => {
                top.parity = parity;
                let disks = width as u64 - spares;
                let groups =
                    (1..=disks).find(|n| (n * (data + parity as u64)).is_multiple_of(disks)).unwrap();
                top.draid = Some(DraidConfig { data, groups, spares, failure_groups: 1 });
            }
            _ => {}
        }
        top
    }
}

pub struct Lab {
    pub rt: Runtime,
    pub pool: Pool,
    pub space: Allocator,
    pub config: LabelPool,
    pub disks: BTreeMap<Guid, Disk>,
}

/// A disk that fails on demand.
#[derive(Clone)]
pub struct Disk {
    pub memory: Arc<MemoryDevice>,
    pub faulty: Arc<Faulty>,
}

/// Runs a test in the simulator; the seed is printed if it fails.
pub fn simulate<T>(seed: u64, test: impl AsyncFnOnce(Runtime) -> T) -> T {
    eprintln!("seed {seed}");
    Runtime::simulate(SimConfig::seed(seed), |rt| test(rt)).0
}

/// The pool's configuration as the MOS would have it.
fn pool_config(vdevs: Vec<VdevConfig>) -> LabelPool {
    let root = VdevConfig { children: vdevs, ..VdevConfig::new(VdevKind::Root, 0, POOL_GUID) };
    let mut list = Nvlist::new();
    list.insert("version", NvValue::Uint64(5000))
        .insert("name", NvValue::String(b"lab".to_vec()))
        .insert("state", NvValue::Uint64(PoolState::Active.into()))
        .insert("txg", NvValue::Uint64(FIRST_TXG.0))
        .insert("pool_guid", NvValue::Uint64(POOL_GUID.0))
        .insert("errata", NvValue::Uint64(0))
        .insert("hostname", NvValue::String(b"here".to_vec()))
        .insert("vdev_children", NvValue::Uint64(root.children.len() as u64))
        .insert("vdev_tree", NvValue::Nvlist(root.encode()))
        .insert("features_for_read", NvValue::Nvlist(Nvlist::new()));
    LabelPool::decode(&list).unwrap()
}

pub fn uberblock(txg: Txg, rootbp: Blkptr) -> Uberblock {
    Uberblock {
        endian: Endian::NATIVE,
        version: 5000,
        txg,
        guid_sum: 0,
        timestamp_s: 1_700_000_000 + txg.0,
        rootbp,
        software_version: 5000,
        mmp_magic: MMP_MAGIC,
        mmp_delay_ns: 0,
        mmp_config: 0,
        checkpoint_txg: Txg(0),
        raidz_reflow_info: 0,
    }
}

impl Lab {
    /// A pool of these vdevs, all with this ashift; each device is labelled, and no txg has been synced.
    pub async fn new(rt: &Runtime, layouts: &[Layout], ashift: u32) -> Lab {
        let ids = (0..).zip(layouts);
        let config = pool_config(ids.map(|(id, layout)| layout.config(id, ashift)).collect());
        let mut disks = BTreeMap::new();
        for top in &config.vdev_tree.children {
            for leaf in top.leaves() {
                let memory = Arc::new(MemoryDevice::new(leaf.path.as_ref().unwrap(), DISK_BYTES));
                let delayed = Delayed::new(memory.clone(), LATENCY, rt);
                let faulty = Arc::new(Faulty::new(Arc::new(delayed), rt.random_u64()));
                let label =
                    LabelPool { txg: Txg(0), create_txg: Some(FIRST_TXG), ..config.for_leaf(top, leaf) };
                init_device(&*faulty, &LabelConfig::Member(label)).await.unwrap();
                disks.insert(leaf.guid, Disk { memory, faulty });
            }
        }
        let found = FoundPool {
            config: PoolConfig::from_mos(&config.encode()).unwrap(),
            uberblocks: Vec::new(),
            devices: disks
                .iter()
                .map(|(guid, disk)| (*guid, FoundDevice::new(disk.faulty.clone())))
                .collect(),
            auxiliary: BTreeMap::new(),
            notes: Vec::new(),
            lost: None,
            duplicates: Vec::new(),
            taps: None,
            fence: None,
        };
        let pool = Pool::assemble(rt, &found, &uberblock(Txg(0), Blkptr::HOLE)).await.unwrap();
        let pool = pool.with_trusted(trusted(&found.config)).await.unwrap();
        let lab = Lab { rt: rt.clone(), pool, space: Allocator::new(), config, disks };
        for (top, layout) in lab.config.vdev_tree.children.iter().zip(layouts) {
            lab.space.add_vdev(top, metaslabs(top.asize_bytes, layout.metaslab_bytes()));
        }
        lab
    }

    pub async fn of(rt: &Runtime, layout: Layout, ashift: u32) -> Lab {
        Lab::new(rt, &[layout], ashift).await
    }

    pub async fn without(&self, lost: &[Guid]) -> Pool {
        let mut found = FoundPool::clone(&self.pool.tree().found());
        found.devices.retain(|guid, _| !lost.contains(guid));
        let pool = Pool::assemble(&self.rt, &found, self.pool.uberblock()).await.unwrap();
        pool.with_trusted(trusted(&found.config)).await.unwrap()
    }

    pub async fn write(&self, data: &Bytes, props: &WriteProps, txg: Txg) -> Written {
        self.pool.write(&self.space, data.clone(), props, txg).await.unwrap()
    }

    /// Writes a root and makes it the pool's state.
    pub async fn sync(&mut self, txg: Txg, root: &Bytes, dirty: &[VdevId]) -> Result<(), PoolError> {
        let written = self.write(root, &props(), txg).await;
        let uberblock = uberblock(txg, written.bp);
        self.config.txg = txg;
        let update = LabelUpdate { config: &self.config, uberblock: &uberblock, dirty };
        self.pool.labels().write(&update).await?;
        self.pool = self.pool.at(&uberblock);
        Ok(())
    }

    pub fn all_vdevs(&self) -> Vec<VdevId> {
        (0..self.config.vdev_tree.children.len() as u64).map(VdevId).collect()
    }

    pub fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.disks.values().map(|disk| disk.faulty.clone() as Arc<dyn Device>).collect()
    }

    pub fn checksum_errors(&self) -> u64 {
        self.pool.counters().errors().iter().map(|(_, errors)| errors.checksum).sum()
    }

    pub fn allocated_bytes(&self) -> u64 {
        self.all_vdevs().iter().map(|&vdev| self.space.vdev_space(vdev).unwrap().allocated_bytes).sum()
    }
}

fn trusted(config: &PoolConfig) -> Trusted {
    Trusted {
        config: config.clone(),
        indirect: BTreeMap::new(),
        noted: BTreeMap::new(),
        behind: BTreeMap::new(),
        checksum_salt: Some([0x5a; 32]),
    }
}

fn metaslabs(asize_bytes: u64, size_bytes: u64) -> Vec<NewMetaslab> {
    let metaslab = |index| NewMetaslab {
        index,
        start_bytes: index * size_bytes,
        size_bytes,
        allocated: Default::default(),
    };
    (0..asize_bytes / size_bytes).map(metaslab).collect()
}

pub fn props() -> WriteProps {
    WriteProps::new(Zbookmark::default(), ObjectType::PLAIN_FILE_CONTENTS)
}

/// A block that compresses to about half.
pub fn block(rng: &mut Rng, len: usize) -> Bytes {
    let mut data = vec![0; len];
    rng.fill(&mut data[..len / 2]);
    for (index, byte) in data.iter_mut().enumerate().skip(len / 2) {
        *byte = (index / 64) as u8;
    }
    data[len - 1] = 1;
    data.into()
}

/// A block that does not compress.
pub fn noise(rng: &mut Rng, len: usize) -> Bytes {
    let mut data = vec![0; len];
    rng.fill(&mut data);
    data.into()
}

//! Machines that share disks, and an oracle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_cache::CacheOptions;
use cenote_dataset::{ImportOptions, KeySource, import};
use cenote_device::{
    Delayed, Device, DeviceError, DeviceInfo, Fence, Gate, Io, Latency, MemoryDevice, Op, StorageLock,
};
use cenote_engine::{Engine, Host};
use cenote_format::dnode::ObjectType;
use cenote_format::features::SPA_FEATURES;
use cenote_format::units::{ObjectId, Txg};
use cenote_object::NewZap;
use cenote_pool::create::{NewDevice, NewVdev, plan};
use cenote_pool::multihost::{Legs, MultihostSettings, Watched, begin_stake};
use cenote_pool::{FoundPool, PoolState, VdevClass, VdevKind, discover_devices};
use cenote_runtime::{Instant, Runtime};
use cenote_tasks::NewPool;
use parking_lot::Mutex;

pub const POOL: &str = "tank";
/// The smallest disks that OpenZFS takes.
pub const DISK_BYTES: usize = 64 << 20;

/// Heartbeats each 100 ms; suspended after 500 ms, so watched for 1 s.
pub fn settings() -> MultihostSettings {
    let settings = MultihostSettings::default();
    for (name, value) in [("zfs_multihost_interval", 100), ("zfs_multihost_fail_intervals", 5)] {
        settings.set(name, value).unwrap();
    }
    settings
}

/// The disks that all machines see.
#[derive(Clone)]
pub struct Disks {
    pub rt: Runtime,
    pub memory: Vec<Arc<MemoryDevice>>,
    pub oracle: Oracle,
    /// Locks that the storage enforces, as Ceph's; `None`: it has none.
    pub locks: Option<Locks>,
}

/// The import with each disk's lock.
pub type Locks = Arc<Mutex<BTreeMap<String, u64>>>;

/// Knows which import of the pool wrote to the disks last.
#[derive(Clone, Default)]
pub struct Oracle(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    sessions: u64,
    owner: u64,
    past: BTreeSet<u64>,
    /// Writes of an import after those of a later one.
    wrong: Vec<String>,
}

impl Oracle {
    fn new_session(&self) -> u64 {
        let mut seen = self.0.lock();
        seen.sessions += 1;
        seen.sessions
    }

    fn writes(&self, session: u64, what: &str) {
        let mut seen = self.0.lock();
        if seen.owner == session {
            return;
        }
        if seen.past.contains(&session) {
            let owner = seen.owner;
            seen.wrong.push(format!("import {session} {what} after import {owner} had taken the pool"));
            return;
        }
        let before = std::mem::replace(&mut seen.owner, session);
        seen.past.insert(before);
    }

    /// A write under a lock in the storage: of the import with the disk, so right by itself. Imports that
    /// take locks at the same time may each get some, in any order; all but one are fenced at one of them.
    fn writes_under_lock(&self, session: u64) {
        let mut seen = self.0.lock();
        let before = std::mem::replace(&mut seen.owner, session);
        if before != session {
            seen.past.insert(before);
        }
    }

    /// The number of imports that wrote.
    pub fn owners(&self) -> usize {
        self.0.lock().past.len()
    }

    pub fn assert_one_at_a_time(&self, what: &str) {
        let seen = self.0.lock();
        assert!(seen.wrong.is_empty(), "{what}: {:?}", seen.wrong);
    }
}

impl Disks {
    pub fn new(rt: &Runtime, count: usize) -> Disks {
        let disk = |index| Arc::new(MemoryDevice::new(&format!("disk{index}"), DISK_BYTES));
        let (memory, oracle) = ((0..count).map(disk).collect(), Oracle::default());
        Disks { rt: rt.clone(), memory, oracle, locks: None }
    }

    /// Creates the pool with `multihost` as given, exported by machine 1.
    pub async fn create(&self, kind: VdevKind, parity: usize, multihost: u64) {
        let device = |memory: &Arc<MemoryDevice>| NewDevice {
            path: memory.describe().into(),
            device: memory.clone(),
            is_file: false,
        };
        let devices = self.memory.iter().map(device).collect();
        let vdev = NewVdev { kind, parity, draid: None, class: VdevClass::Normal, devices };
        let new = NewPool {
            plan: plan(&self.rt, POOL, &[vdev], None, (1, "first"), Txg(4)).unwrap(),
            features: SPA_FEATURES[..33].iter().collect(),
            properties: vec![("multihost", multihost)],
            root_properties: Vec::new(),
            keys: KeySource::default(),
            cache: CacheOptions::metadata(1 << 20),
        };
        let fill = |live: cenote_object::LiveObjset| -> futures::future::BoxFuture<'static, _> {
            Box::pin(
                async move { NewZap::of(ObjectType::MASTER_NODE).create_at(&live.edit(), ObjectId(1)).await },
            )
        };
        let engine = cenote_tasks::create_pool(&self.rt, new, Box::new(fill)).await.unwrap();
        engine.multihost().settings().set("zfs_multihost_interval", 100).unwrap();
        engine.multihost().settings().set("zfs_multihost_fail_intervals", 5).unwrap();
        engine.ownership().set_state(PoolState::Exported, host(1)).await.unwrap();
    }

    fn raw(&self, name: &str) -> Arc<dyn Device> {
        let found = self.memory.iter().find(|memory| memory.describe() == name);
        self.far(found.unwrap().clone())
    }

    /// Breaks the lock of another import, and takes it.
    fn taken_over(&self, name: &str, locks: &Locks, session: u64) -> Arc<dyn Device> {
        locks.lock().insert(name.into(), session);
        let inner = self.memory.iter().find(|memory| memory.describe() == name).unwrap().clone();
        let mut info = inner.info().clone();
        info.nature.storage_lock = StorageLock::Held;
        let (locks, oracle) = (locks.clone(), self.oracle.clone());
        // The storage decides when a request arrives.
        self.far(Arc::new(Locked { inner, info, locks, oracle, session }))
    }

    fn far(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        let latency = Latency {
            fixed: Duration::from_micros(100),
            jitter: Duration::from_millis(3),
            bytes_per_s: None,
        };
        Arc::new(Delayed::new(device, latency, &self.rt))
    }
}

fn host(id: u64) -> Host {
    Host { id, name: format!("machine{id}") }
}

/// A machine. While stopped, nothing that it does reaches the disks.
#[derive(Clone)]
pub struct Machine {
    pub id: u64,
    pub disks: Disks,
    stopped_until: Arc<Mutex<Instant>>,
    /// Disks that it does not see.
    pub blind: Arc<Mutex<BTreeSet<usize>>>,
}

impl Machine {
    pub fn new(id: u64, disks: &Disks) -> Machine {
        Machine { id, disks: disks.clone(), stopped_until: Arc::default(), blind: Arc::default() }
    }

    pub fn stop_for(&self, time: Duration) {
        *self.stopped_until.lock() = self.disks.rt.now() + time;
    }

    fn view(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(View { inner, rt: self.disks.rt.clone(), stopped_until: self.stopped_until.clone() })
    }

    pub async fn discover(&self) -> FoundPool {
        let names: Vec<_> = self.disks.memory.iter().map(|memory| memory.describe().to_owned()).collect();
        let blind = self.blind.lock().clone();
        let seen = names.iter().enumerate().filter(|(index, _)| !blind.contains(index));
        let devices = seen.map(|(_, name)| self.view(self.disks.raw(name))).collect();
        discover_devices(devices).await.pools.into_iter().next().unwrap()
    }

    /// Imports the pool, as a session does.
    pub async fn import(&self) -> Result<Engine, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        if let Some(locks) = &self.disks.locks {
            let opened = self.take_over(locks).await.ok_or("another machine has taken a disk")?;
            return self.start(opened.clone(), opened, None).await;
        }
        let found = self.discover().await;
        let watched = found.watch(&self.disks.rt, self.id, &settings(), &|_| {}).await;
        let watched = watched.map_err(|error| text(&error))?;
        let opened = found.open_for_writing(&self.disks.rt).await.map_err(|error| text(&error))?;
        if watched.is_none() && cenote_pool::multihost::must_watch(&opened, self.id) {
            return Err("used meanwhile".into());
        }
        let session = self.disks.oracle.new_session();
        let mut below = opened.clone();
        for found in below.devices.values_mut() {
            let (inner, oracle) = (self.disks.raw(&found.path), self.disks.oracle.clone());
            found.device = Arc::new(Tagged { inner, oracle, session });
        }
        self.start(opened, below, watched).await
    }

    /// Opens all disks under locks in the storage. Others have theirs meanwhile.
    async fn take_over(&self, locks: &Locks) -> Option<FoundPool> {
        let session = self.disks.oracle.new_session();
        let mut devices = Vec::new();
        for memory in &self.disks.memory {
            devices.push(self.view(self.disks.taken_over(memory.describe(), locks, session)));
            self.disks.rt.sleep(Duration::from_millis(self.disks.rt.random_u64() % 70)).await;
        }
        // As `FoundPool::take_over`: a disk whose lock is lost by now is missing.
        let found = discover_devices(devices).await.pools.into_iter().next();
        found.filter(|found| found.devices.len() == self.disks.memory.len())
    }

    async fn start(
        &self,
        opened: FoundPool,
        below: FoundPool,
        watched: Option<Watched>,
    ) -> Result<Engine, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let gate = Gate::default();
        let mut found = below.fenced(&Fence::new(&self.disks.rt));
        // Above the fence, so that what a stopped machine was about to do meets it late.
        found.devices.values_mut().for_each(|found| found.device = self.view(found.device.clone()));
        let found = found.behind(&gate);
        let mos = import(&self.disks.rt, &found, &ImportOptions::default()).await;
        let engine =
            Engine::start(&mos.map_err(|error| text(&error))?).await.map_err(|error| text(&error))?;
        for (name, value) in settings().all() {
            engine.multihost().settings().set(&name, value).unwrap();
        }
        if let Some(newest) = opened.uberblocks.first().filter(|newest| newest.mmp_is_on()) {
            let legs = Legs::of(&self.disks.rt, &opened, &engine.pool().tree().config());
            let stake = begin_stake(legs, *newest, watched, &|_| {}).await.map_err(|error| text(&error))?;
            engine.multihost().hold(stake);
        }
        engine.ownership().take(&gate, host(self.id));
        Ok(engine)
    }

    /// Imports the pool and writes to it, as a daemon does.
    pub async fn take(&self) -> Result<Engine, String> {
        let engine = self.import().await?;
        let active = engine.ownership().set_state(PoolState::Active, host(self.id)).await;
        active.map(|()| engine).map_err(|error| error.to_string())
    }
}

struct View {
    inner: Arc<dyn Device>,
    rt: Runtime,
    stopped_until: Arc<Mutex<Instant>>,
}

impl View {
    fn when_running<T: Send>(&self, begin: impl FnOnce(&dyn Device) -> Io<T> + Send + 'static) -> Io<T> {
        let (inner, rt, until) = (self.inner.clone(), self.rt.clone(), self.stopped_until.clone());
        let steps = async move {
            loop {
                let left = until.lock().since(rt.now());
                if left.is_zero() {
                    return begin(&*inner).await;
                }
                rt.sleep(left).await;
            }
        };
        Io::pending(&self.rt, steps)
    }
}

impl Device for View {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        self.when_running(move |inner| inner.read_at(offset, len))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        self.when_running(move |inner| inner.write_at(offset, data))
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        self.when_running(move |inner| inner.write_through(offset, data))
    }

    fn flush(&self) -> Io<()> {
        self.when_running(|inner| inner.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        self.when_running(move |inner| inner.discard(offset, len))
    }
}

/// A disk below the fence, as one import has it.
struct Tagged {
    inner: Arc<dyn Device>,
    oracle: Oracle,
    session: u64,
}

impl Device for Tagged {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        self.inner.read_at(offset, len)
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        self.oracle.writes(self.session, "writes");
        self.inner.write_at(offset, data)
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        self.oracle.writes(self.session, "writes through");
        self.inner.write_through(offset, data)
    }

    fn flush(&self) -> Io<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        self.oracle.writes(self.session, "discards");
        self.inner.discard(offset, len)
    }
}

/// A disk under a lock that the storage enforces, as one import has it.
struct Locked {
    inner: Arc<MemoryDevice>,
    info: DeviceInfo,
    locks: Locks,
    oracle: Oracle,
    session: u64,
}

impl Locked {
    fn arrives<T: Send>(&self, op: Op, begin: impl FnOnce(&MemoryDevice) -> Io<T>) -> Io<T> {
        if self.locks.lock().get(&*self.info.path) != Some(&self.session) {
            let (path, why) = (self.info.path.clone(), "the lock is broken".into());
            return Io::done(Err(DeviceError::Fenced { path, op, why }));
        }
        if op != Op::Read {
            self.oracle.writes_under_lock(self.session);
        }
        begin(&self.inner)
    }
}

impl Device for Locked {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        self.arrives(Op::Read, |inner| inner.read_at(offset, len))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        self.arrives(Op::Write, |inner| inner.write_at(offset, data))
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        self.arrives(Op::Write, |inner| inner.write_through(offset, data))
    }

    fn flush(&self) -> Io<()> {
        self.arrives(Op::Flush, |inner| inner.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        self.arrives(Op::Discard, |inner| inner.discard(offset, len))
    }
}

//! Pools left by a crash, with intent logs that have not been replayed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cenote_dataset::{ImportOptions, import};
use cenote_device::DeviceError;
use cenote_engine::{Engine, Host};
use cenote_format::label::PoolConfig;
use cenote_fs::write::{NewFile, NewKind};
use cenote_fs::{Change, FsOptions, FsWriter, Timestamp};
use cenote_pool::{FoundPool, PoolError, PoolState, discover};
use cenote_runtime::Runtime;

use crate::common::disks::{Disks, POOL};

/// A file that exists only in the log.
pub const COMMITTED: &str = "committed";

/// This machine's identity as the program computes it.
fn this_host() -> Host {
    let id = std::fs::read("/etc/hostid").ok();
    let id = id.and_then(|bytes| bytes.first_chunk::<4>().copied()).map_or(0, u32::from_ne_bytes);
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Host { id: id.into(), name }
}

async fn open(rt: &Runtime, folder: &Path) -> FoundPool {
    let found = discover(rt, &[PathBuf::from(folder)]).await;
    loop {
        match found.pools[0].open_for_writing(rt).await {
            // A program that another test is starting holds all files of this process, and their locks, until
            // `exec`.
            Err(PoolError::Device(DeviceError::InUse { .. })) => rt.sleep(Duration::from_millis(10)).await,
            opened => return opened.unwrap(),
        }
    }
}

/// A pool left by a crash: a file was made durable only by the log.
pub fn make_pool(folder: &Path) -> String {
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank", &[&disks.path().join("a")]);
    std::fs::copy(disks.path().join("a"), folder.join("a")).unwrap();
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let mos = import(&rt, &open(&rt, folder).await, &ImportOptions::default()).await.unwrap();
        let engine = Engine::start(&mos).await.unwrap();
        engine.ownership().set_state(PoolState::Active, this_host()).await.unwrap();
        let dataset = engine.dataset(POOL).await.unwrap();
        let fs = FsWriter::open(dataset.clone(), FsOptions::default()).await.unwrap();
        // The first commit syncs a txg, which leads to the log.
        fs.commit(None).await.unwrap();
        let hold = engine.hold().await.unwrap();
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: Timestamp { seconds: 1, nanoseconds: 0 } };
        let new = NewFile { kind: NewKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0 };
        fs.create(change, fs.root(), COMMITTED.as_bytes(), &new).await.unwrap();
        drop(hold);
        fs.commit(None).await.unwrap();
    });
    // The runtime's tasks may still have the disks open.
    drop(rt);
    // Otherwise a no-op, such as `mkdir -p` of an existing folder, would export the pool.
    mark_exported(folder);
    POOL.into()
}

/// Marks the pool exported, as if the crashed machine had exported it with its logs.
pub fn mark_exported(folder: &Path) {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let found = open(&rt, folder).await;
        let mos = import(&rt, &found, &ImportOptions::default()).await.unwrap();
        let config = PoolConfig::decode(mos.config()).unwrap();
        let config = PoolConfig { state: PoolState::Exported, txg: mos.uberblock().txg, ..config };
        mos.pool().labels().write_config(&config).await.unwrap();
    });
}

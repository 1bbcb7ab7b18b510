//! File systems to be changed: new and golden ones.

use bytes::Bytes;
use cenote_dataset::Mos;
use cenote_format::bytes::Endian;
use cenote_format::objset::ObjsetPhys;
use cenote_format::units::{DatasetId, Txg};
use cenote_fs::attr::Timestamp;
use cenote_fs::write::{NewFile, NewFilesystem, NewKind, create_filesystem};
use cenote_fs::{Change, FsOptions, FsWriter};
use cenote_object::{LiveObjset, Objset};
use cenote_runtime::Runtime;
use cenote_testkit::golden;

/// The txg in which changes start: later than in any golden pool.
pub const TXG: Txg = Txg(1 << 40);

pub fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: 7 }
}

/// `DMU_OST_ZFS`, `DMU_OST_ZVOL`.
pub const ZFS: u64 = 2;
pub const ZVOL: u64 = 3;

/// An empty object set in a golden pool.
pub fn empty(mos: &Mos, kind: u64) -> LiveObjset {
    let base = mos.objset();
    let (pool, cache) = (base.pool(), base.cache());
    // Zeros, except for the type.
    let mut head = vec![0; 4096];
    head[704..712].copy_from_slice(&kind.to_ne_bytes());
    let phys = ObjsetPhys::decode(&head.into(), Endian::NATIVE).unwrap();
    let set = Objset::empty(pool, cache, DatasetId(1 << 40), None, phys);
    LiveObjset::new(set, TXG)
}

/// Runs a test on a new file system, in a golden pool.
pub fn on_new(new: NewFilesystem, options: FsOptions, test: impl AsyncFnOnce(FsWriter)) {
    let pool = golden("single");
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let mos = crate::common::open_golden(&rt, &pool).await;
        let live = empty(&mos, ZFS);
        let edit = live.edit();
        let change = Change { edit: &edit, now: at(1) };
        test(create_filesystem(&live, change, &new, options).await.unwrap()).await;
    });
}

pub fn file(mode: u32) -> NewFile<'static> {
    NewFile { kind: NewKind::Regular, mode, umask: 0, uid: 1000, gid: 100 }
}

pub fn dir(mode: u32) -> NewFile<'static> {
    NewFile { kind: NewKind::Directory, ..file(mode) }
}

/// Incompressible bytes.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Bytes that depend on their position.
pub fn pattern(seed: u64, len: usize) -> Bytes {
    (0..len as u64).map(|i| ((i.wrapping_mul(seed | 1)) >> 5) as u8 ^ seed as u8).collect()
}

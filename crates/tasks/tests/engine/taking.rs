//! Pools taken and given back unchanged.

use std::fs::{File, read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cenote_dataset::{ImportOptions, import};
use cenote_device::{FileDevice, Gate, OpenOptions};
use cenote_engine::{Engine, Host};
use cenote_format::label::{UBERBLOCK_RING_OFFSET, VDEV_LABELS, VDEV_UBERBLOCK_RING, label_offset};
use cenote_format::units::Txg;
use cenote_pool::label::read_labels;
use cenote_pool::{PoolState, VdevKind, discover};
use cenote_runtime::Runtime;

use crate::common::{assert_zdb_is_content, create};

fn host() -> Host {
    Host { id: 1, name: "here".into() }
}

fn disk(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("disk{index}.img"))
}

/// The newest uberblock of a disk.
async fn newest(rt: &Runtime, disk: &Path) -> Txg {
    let device = FileDevice::open(disk, OpenOptions::READ_ONLY, rt).await.unwrap();
    let labels = read_labels(&device).await;
    labels.iter().flat_map(|label| &label.uberblocks).map(|uberblock| uberblock.txg).max().unwrap()
}

/// Restores the old uberblock rings, as after a power cut before a txg's uberblocks reach the disk.
fn put_rings_back(disk: &Path, before: &[u8]) {
    let file = File::options().write(true).open(disk).unwrap();
    for label in 0..VDEV_LABELS {
        let at = label_offset(before.len() as u64, label).unwrap() + UBERBLOCK_RING_OFFSET;
        file.write_all_at(&before[at as usize..][..VDEV_UBERBLOCK_RING as usize], at).unwrap();
    }
}

/// Takes a pool and gives it back unchanged.
async fn look(rt: &Runtime, folder: &Path) {
    let gate = Gate::default();
    let found = discover(rt, &[PathBuf::from(folder)]).await;
    let found = found.pools[0].open_for_writing(rt).await.unwrap().behind(&gate);
    let engine = Engine::start(&import(rt, &found, &ImportOptions::default()).await.unwrap()).await.unwrap();
    engine.ownership().take(&gate, host());
    engine.close(PoolState::Exported).await.unwrap();
}

#[test]
fn what_one_disk_alone_knows_all_know_once_the_pool_was_taken() {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let engine = create(&rt, folder.path(), &(VdevKind::Mirror, 0, 2)).await;
        engine.ownership().set_state(PoolState::Active, host()).await.unwrap();
        let before = read(disk(folder.path(), 1)).unwrap();
        engine.ownership().set_state(PoolState::Exported, host()).await.unwrap();
        drop(engine);
        put_rings_back(&disk(folder.path(), 1), &before);
        let txgs = [newest(&rt, &disk(folder.path(), 0)).await, newest(&rt, &disk(folder.path(), 1)).await];
        assert!(txgs[0] > txgs[1], "{txgs:?}: the test leaves disks alike");

        // A state seen once is found again, or a later one, even if the disk with it fails now.
        look(&rt, folder.path()).await;
        let both = [newest(&rt, &disk(folder.path(), 0)).await, newest(&rt, &disk(folder.path(), 1)).await];
        assert!(both[1] >= txgs[0] && both[0] == both[1], "{txgs:?}, then {both:?}");
        assert_zdb_is_content(folder.path(), "after a cut between uberblocks");

        // If all disks have the last uberblock, nothing is written.
        let images = || [0, 1].map(|index| read(disk(folder.path(), index)).unwrap());
        let before = images();
        look(&rt, folder.path()).await;
        assert!(images() == before, "a look has changed a pool");
    });
}

//! Labels are found again after any interruption of their writing.

use crate::lab::{FIRST_TXG, Lab, Layout, block, simulate};
use bytes::Bytes;
use cenote_device::{Device, DeviceInfo, Io, MemoryDevice, Op};
use cenote_format::label::{UBERBLOCK_RING_OFFSET, VDEV_LABELS, VDEV_UBERBLOCK_RING, label_offset};
use cenote_format::units::{Txg, VdevId};
use cenote_pool::label::{clear_labels, read_labels};
use cenote_pool::{FoundPool, Pool, ReadContext, VdevState, discover_devices};
use cenote_runtime::{Rng, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

async fn the_pool(devices: Vec<Arc<dyn Device>>) -> FoundPool {
    let mut discovery = discover_devices(devices).await;
    assert_eq!(discovery.pools.len(), 1, "{:?}", discovery.problems);
    discovery.pools.remove(0)
}

async fn read_root(rt: &Runtime, found: &FoundPool) -> (Txg, Bytes) {
    let newest = &found.uberblocks[0];
    let pool = Pool::assemble(rt, found, newest).await.unwrap();
    (newest.txg, pool.read(&newest.rootbp, &ReadContext::default()).await.unwrap())
}

#[test]
fn a_pool_that_was_made_is_found() {
    simulate(300, async |rt| {
        let layouts = [Layout::Mirror(2), Layout::Raidz(1, 3), Layout::Disk, Layout::Draid(1, 2, 7, 1)];
        let mut lab = Lab::new(&rt, &layouts, 12).await;
        // Before the first txg the devices belong to no pool.
        assert!(discover_devices(lab.devices()).await.pools.is_empty());
        let root = block(&mut Rng::new(300), 4096);
        lab.sync(FIRST_TXG, &root, &lab.all_vdevs()).await.unwrap();
        let found = the_pool(lab.devices()).await;
        assert_eq!(found.status().state(), VdevState::Online);
        assert_eq!(found.config.vdevs, lab.pool.tree().config().vdevs);
        assert!(found.notes.is_empty(), "{:?}", found.notes);
        assert_eq!(read_root(&rt, &found).await, (FIRST_TXG, root));
        for disk in lab.disks.values() {
            let labels = read_labels(&*disk.memory).await;
            assert!(labels.iter().all(|label| label.config.is_some() && label.uberblocks.len() == 1));
        }
    });
}

#[test]
fn groups_without_changes_of_configuration_go_round_the_ring_of_three_vdevs() {
    simulate(301, async |rt| {
        let mut lab = Lab::new(&rt, &[Layout::Disk; 5], 13).await;
        let mut rng = Rng::new(301);
        lab.sync(FIRST_TXG, &block(&mut rng, 4096), &lab.all_vdevs()).await.unwrap();
        let mut last = Bytes::new();
        for txg in 5..60 {
            last = block(&mut rng, 4096);
            lab.sync(Txg(txg), &last, &[]).await.unwrap();
            let mut holders = 0;
            for disk in lab.disks.values() {
                let labels = read_labels(&*disk.memory).await;
                holders += usize::from(labels.iter().all(|l| l.uberblocks.iter().any(|u| u.txg == Txg(txg))));
                assert!(labels.iter().all(|label| label.config.as_ref().unwrap().get_u64("txg") == Some(4)));
            }
            assert_eq!(holders, 3);
        }
        assert_eq!(read_root(&rt, &the_pool(lab.devices()).await).await, (Txg(59), last));
    });
}

/// After this many writes, flushes included, silently drops all changes.
struct Cut {
    inner: Arc<MemoryDevice>,
    left: Arc<AtomicI64>,
}

impl Cut {
    fn goes_through(&self) -> bool {
        self.left.fetch_sub(1, Ordering::Relaxed) > 0
    }
}

impl Device for Cut {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        self.inner.read_at(offset, len)
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        if self.goes_through() { self.inner.write_at(offset, data) } else { Io::done(Ok(())) }
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        if self.goes_through() { self.inner.write_through(offset, data) } else { Io::done(Ok(())) }
    }

    fn flush(&self) -> Io<()> {
        if self.goes_through() { self.inner.flush() } else { Io::done(Ok(())) }
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        Io::done(self.info().check_writable(Op::Discard, offset, len))
    }
}

/// Syncs one txg, then interrupts a second one after `writes` by a power cut: unflushed writes are kept, lost
/// or torn. Returns whether the second txg was complete before.
async fn cut_after(rt: &Runtime, seed: u64, writes: i64, dirty: bool) -> bool {
    let layouts = [Layout::Mirror(2), Layout::Disk];
    let mut lab = Lab::new(rt, &layouts, 9).await;
    let mut rng = Rng::new(seed);
    let first = block(&mut rng, 4096);
    lab.sync(FIRST_TXG, &first, &lab.all_vdevs()).await.unwrap();

    let left = Arc::new(AtomicI64::new(writes));
    let cuts = lab
        .disks
        .values()
        .map(|disk| Arc::new(Cut { inner: disk.memory.clone(), left: left.clone() }) as Arc<dyn Device>);
    let found = the_pool(cuts.collect()).await;
    lab.pool = Pool::assemble(rt, &found, &found.uberblocks[0]).await.unwrap();
    let second = block(&mut rng, 4096);
    lab.config.comment = Some("changed".into());
    let vdevs: Vec<VdevId> = if dirty { lab.all_vdevs() } else { Vec::new() };
    lab.sync(Txg(5), &second, &vdevs).await.unwrap();
    lab.disks.values().for_each(|disk| disk.memory.power_cut(&mut rng));

    let memory = lab.disks.values().map(|disk| disk.memory.clone() as Arc<dyn Device>);
    let found = the_pool(memory.collect()).await;
    assert_eq!(found.status().state(), VdevState::Online, "{found:?}");
    let (txg, root) = read_root(rt, &found).await;
    assert!((txg, &root) == (FIRST_TXG, &first) || (txg, &root) == (Txg(5), &second), "{txg}");
    let changed = found.config.comment.is_some();
    assert_eq!(changed, dirty && txg == Txg(5), "the configuration is that of the group");
    let done = left.load(Ordering::Relaxed) >= 0;
    assert!(!done || txg == Txg(5));
    done
}

/// Twice, before the pool is opened and after, the power fails when only one disk of a mirror has a txg's
/// uberblock. Returns the number of disks that count as away.
async fn cut_twice(rt: &Runtime, evens_out: bool) -> usize {
    let mut lab = Lab::new(rt, &[Layout::Mirror(2)], 9).await;
    let root = block(&mut Rng::new(1), 4096);
    lab.sync(FIRST_TXG, &root, &lab.all_vdevs()).await.unwrap();
    let disks: Vec<Arc<MemoryDevice>> = lab.disks.values().map(|disk| disk.memory.clone()).collect();
    let all = || disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
    for txg in [5, 6] {
        let found = the_pool(all()).await;
        let last = found.uberblocks[0];
        lab.pool = Pool::assemble(rt, &found, &last).await.unwrap();
        if evens_out {
            lab.pool.labels().even_out().await;
        }
        // Everything but the uberblock reaches both.
        let ring = |label| {
            let at = label_offset(disks[1].size_bytes(), label).unwrap() + UBERBLOCK_RING_OFFSET;
            (at, VDEV_UBERBLOCK_RING as usize)
        };
        let mut before = Vec::new();
        for (at, len) in (0..VDEV_LABELS).map(ring) {
            before.push((at, disks[1].read_at(at, len).await.unwrap()));
        }
        lab.sync(Txg(txg), &root, &[]).await.unwrap();
        for (at, bytes) in before {
            disks[1].write_at(at, bytes).await.unwrap();
        }
    }
    the_pool(all()).await.devices.values().filter(|found| found.stale).count()
}

#[test]
fn a_disk_that_missed_two_uberblocks_in_a_row_was_not_away_if_it_got_the_first_meanwhile() {
    simulate(303, async |rt| {
        assert_eq!(cut_twice(&rt, false).await, 1);
        assert_eq!(cut_twice(&rt, true).await, 0);
    });
}

fn cut_at_any_write(dirty: bool) {
    let mut writes = 0;
    loop {
        let seed = 1000 + writes as u64;
        let all_done = simulate(seed, async |rt| cut_after(&rt, seed, writes, dirty).await);
        if all_done {
            break;
        }
        writes += 1;
    }
    assert!(writes > 10, "{writes}");
}

#[test]
fn a_cut_at_any_write_leaves_the_old_txg_or_the_new_one() {
    cut_at_any_write(false);
}

#[test]
fn a_cut_at_any_write_of_new_configurations_leaves_the_old_txg_or_the_new_one() {
    cut_at_any_write(true);
}

#[test]
fn a_pool_in_a_partition_is_written_there() {
    const PARTITION_AT: usize = 1 << 20;
    simulate(320, async |rt| {
        let mut lab = Lab::of(&rt, Layout::Disk, 9).await;
        let mut rng = Rng::new(320);
        lab.sync(FIRST_TXG, &block(&mut rng, 4096), &lab.all_vdevs()).await.unwrap();
        let partition = lab.disks.values().next().unwrap().memory.live_image();
        let mut image = vec![0; PARTITION_AT];
        // One entry of the table: type, first sector, sectors.
        image[450] = 0xbf;
        image[454..458].copy_from_slice(&(PARTITION_AT as u32 / 512).to_le_bytes());
        image[458..462].copy_from_slice(&(partition.len() as u32 / 512).to_le_bytes());
        image[510..512].copy_from_slice(&[0x55, 0xaa]);
        image.extend(partition);
        let disk: Arc<dyn Device> = Arc::new(MemoryDevice::with_content("disk", image));

        let found = the_pool(vec![disk.clone()]).await.open_for_writing(&rt).await.unwrap();
        lab.pool = Pool::assemble(&rt, &found, &found.uberblocks[0]).await.unwrap();
        let root = block(&mut rng, 8192);
        lab.sync(Txg(5), &root, &lab.all_vdevs()).await.unwrap();
        assert_eq!(read_root(&rt, &the_pool(vec![disk.clone()]).await).await, (Txg(5), root));
        assert!(read_labels(&*disk).await.iter().all(|label| label.config.is_none()));
    });
}

#[test]
fn cleared_labels_are_gone_and_nothing_else() {
    simulate(310, async |rt| {
        let mut lab = Lab::of(&rt, Layout::Disk, 9).await;
        let root = block(&mut Rng::new(310), 4096);
        lab.sync(FIRST_TXG, &root, &lab.all_vdevs()).await.unwrap();
        let disk = &lab.disks.values().next().unwrap().memory;
        assert_eq!(clear_labels(&**disk).await.unwrap(), 4);
        assert_eq!(clear_labels(&**disk).await.unwrap(), 0);
        assert!(discover_devices(lab.devices()).await.pools.is_empty());
        let rootbp = &lab.pool.uberblock().rootbp;
        assert_eq!(lab.pool.read(rootbp, &ReadContext::default()).await.unwrap(), root);
    });
}

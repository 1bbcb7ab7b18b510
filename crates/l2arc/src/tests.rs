//! Cache devices in the simulator: offered blocks are found, also after an import; damaged ones are refused;
//! a failing device does no harm.

use std::time::Duration;

use cenote_device::{Fault, Faulty, MemoryDevice, Op};
use cenote_format::units::{PhysicalBirth, VdevId};
use cenote_pool::Offer;
use cenote_runtime::{Rng, SimConfig};

use super::*;

const MIB: u64 = 1 << 20;
const DEMAND: Offer = Offer { is_ahead: false, is_special: false };

fn bp(n: u64, sectors: u64) -> Blkptr {
    let mut words = [0; 16];
    (words[0], words[1]) = (sectors | 1 << 32, n << 8);
    words[6] = (sectors - 1) | (sectors - 1) << 16 | 2 << 32 | 7 << 40 | 19 << 48 | 1 << 63;
    (words[10], words[12]) = (n + 1, n);
    let bp = Blkptr::from_words(words);
    assert_eq!((bp.psize().0, bp.physical_birth()), (sectors << 9, PhysicalBirth(n + 1)));
    assert_eq!(bp.dvas().next().map(|dva| dva.vdev), Some(VdevId(1)));
    bp
}

fn memory(mib: usize) -> MemoryDevice {
    MemoryDevice::new("cache", mib << 20)
}

fn content(n: u64, sectors: u64) -> Bytes {
    n.to_le_bytes().repeat(sectors as usize * 64).into()
}

async fn reads(devices: &CacheDevices, n: u64, sectors: u64) -> bool {
    let bp = bp(n, sectors);
    let Some(read) = devices.read(&bp) else { return false };
    read.await.is_some_and(|stored| stored == content(n, sectors))
}

async fn fill(devices: &CacheDevices, from: u64, to: u64) {
    for n in from..to {
        devices.offer(&bp(n, 1 + n % 200), &content(n, 1 + n % 200), DEMAND);
        if n % 20 == 0 {
            while devices.feed(|_| Use::Once, 4 * MIB).await > 0 {}
        }
    }
    while devices.feed(|_| Use::Once, 4 * MIB).await > 0 {}
}

fn simulated(test: impl AsyncFn(Runtime)) {
    let runtime = Runtime::simulated(SimConfig::seed(1));
    runtime.clone().block_on(test(runtime));
}

async fn made(runtime: &Runtime, device: Arc<dyn Device>) -> CacheDevices {
    let devices = CacheDevices::new(runtime, Guid(5));
    devices.settings().set("l2arc_rebuild_blocks_min_l2size", 0).unwrap();
    assert!(devices.add(Guid(6), 9, device).await);
    devices.rebuild().await;
    devices
}

#[test]
fn what_was_fed_is_found_until_it_is_written_over() {
    simulated(async |runtime| {
        let device: Arc<dyn Device> = Arc::new(memory(128));
        let devices = made(&runtime, device).await;
        fill(&devices, 0, 1000).await;
        for n in 0..1000 {
            assert!(reads(&devices, n, 1 + n % 200).await, "{n}");
        }
        assert!(!reads(&devices, 5000, 4).await);
        // Several rounds of the ring.
        fill(&devices, 1000, 10_000).await;
        let there = (0..10_000).map(|n| devices.has(&bp(n, 1 + n % 200))).collect::<Vec<_>>();
        assert!(there[..5000].iter().all(|there| !there) && there[9000..].iter().all(|there| *there));
        for n in 0..10_000 {
            assert_eq!(reads(&devices, n, 1 + n % 200).await, there[n as usize], "{n}");
        }
        let stats = devices.stats();
        assert!(stats.asize <= 128 * MIB && stats.cksum_bad == 0, "{stats:?}");
        assert!(stats.hdr_size < 100 * stats.bufs, "{stats:?}");
    });
}

#[test]
fn it_is_warm_after_an_import_and_a_header_of_another_pool_is_not_believed() {
    simulated(async |runtime| {
        for blocks in [300, 1000, 4000] {
            let device: Arc<dyn Device> = Arc::new(memory(128));
            let devices = made(&runtime, device.clone()).await;
            fill(&devices, 0, blocks).await;
            let mut before: Vec<u64> = (0..blocks).filter(|n| devices.has(&bp(*n, 1 + n % 200))).collect();
            drop(devices);
            let devices = made(&runtime, device.clone()).await;
            assert_eq!(devices.stats().rebuild_success, 1);
            let found: Vec<u64> = (0..blocks).filter(|n| devices.has(&bp(*n, 1 + n % 200))).collect();
            // Some of the newest are not in a log block yet; some of the oldest share theirs with blocks that
            // are gone.
            before.retain(|n| !found.contains(n));
            assert!(before.len() <= 14 && !found.is_empty(), "{blocks}: {before:?}");
            for n in found {
                assert!(reads(&devices, n, 1 + n % 200).await, "{n}");
            }
            // It continues after the known blocks.
            fill(&devices, 20_000, 20_100).await;
            for n in 20_000..20_100 {
                assert!(reads(&devices, n, 1 + n % 200).await, "{n}");
            }
            let other = CacheDevices::new(&runtime, Guid(55));
            assert!(other.add(Guid(6), 9, device).await);
            other.rebuild().await;
            assert_eq!((other.stats().bufs, other.stats().rebuild_unsupported), (0, 1));
        }
    });
}

#[test]
fn a_log_with_any_byte_wrong_yields_only_what_was_there() {
    simulated(async |runtime| {
        let device: Arc<dyn Device> = Arc::new(memory(96));
        let devices = made(&runtime, device.clone()).await;
        fill(&devices, 0, 300).await;
        let mut rng = Rng::stream(3, 3);
        for _ in 0..300 {
            let at = match rng.below(2) {
                0 => 4 * MIB + rng.below(512),
                _ => 4 * MIB + rng.below(16 * MIB),
            };
            let was = device.read_at(at, 1).await.unwrap();
            device.write_at(at, vec![was[0] ^ (1 << rng.below(8))].into()).await.unwrap();
            let again = CacheDevices::new(&runtime, Guid(5));
            again.settings().set("l2arc_rebuild_blocks_min_l2size", 0).unwrap();
            // A damaged header is written anew.
            let header = device.read_at(4 * MIB, 512).await.unwrap();
            assert!(again.add(Guid(6), 9, device.clone()).await);
            again.rebuild().await;
            assert!(again.stats().bufs <= 300);
            device.write_at(4 * MIB, header).await.unwrap();
            device.write_at(at, was).await.unwrap();
        }
    });
}

#[test]
fn a_device_that_fails_is_let_go() {
    simulated(async |runtime| {
        let faulty = Arc::new(Faulty::new(Arc::new(memory(128)), 1));
        let devices = made(&runtime, faulty.clone()).await;
        fill(&devices, 0, 100).await;
        faulty.add(Fault::error(Op::Read));
        faulty.add(Fault::error(Op::Write));
        assert!(!reads(&devices, 3, 4).await);
        assert_eq!(devices.stats().io_error, 1);
        fill(&devices, 100, 200).await;
        assert_eq!((devices.devices(), devices.stats().bufs), (Vec::new(), 0));
        assert_eq!(devices.stats().writes_error, 1);
        assert!(!reads(&devices, 7, 8).await && devices.stats().io_error == 1);
    });
}

#[test]
fn blocks_read_ahead_wait_until_they_are_wanted_and_a_rejected_block_is_forgotten() {
    simulated(async |runtime| {
        let devices = made(&runtime, Arc::new(memory(128))).await;
        let block = bp(1, 8);
        devices.offer(&block, &content(1, 8), Offer { is_ahead: true, is_special: false });
        assert_eq!(devices.feed(|_| Use::Ahead, MIB).await, 0);
        assert!(!devices.has(&block));
        assert!(devices.feed(|_| Use::Once, MIB).await > 0);
        assert!(devices.has(&block));
        devices.reject(&block);
        assert!(!devices.has(&block));
        assert_eq!(devices.stats().cksum_bad, 1);

        devices.settings().set("l2arc_mfuonly", 1).unwrap();
        devices.offer(&bp(2, 8), &content(2, 8), DEMAND);
        assert_eq!(devices.feed(|_| Use::Once, MIB).await, 0);
        assert!(devices.feed(|_| Use::Often, MIB).await > 0);
        // A block that never qualifies does not stay.
        devices.offer(&bp(3, 8), &content(3, 8), DEMAND);
        for _ in 0..20 {
            devices.feed(|_| Use::Once, MIB).await;
            runtime.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(devices.stats().staged_size, 0);
    });
}

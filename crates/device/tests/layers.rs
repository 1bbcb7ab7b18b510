//! Layers compose and fail as told; under the simulator one seed is one history.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use cenote_device::{
    Bytes, Delayed, Device, DeviceError, Event, Fault, Faulty, Latency, MemoryDevice, Op, Traced,
};
use cenote_runtime::{Rng, Runtime, SimConfig};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

const SIZE: usize = 1 << 20;

fn content() -> Vec<u8> {
    let mut content = vec![0; SIZE];
    Rng::new(1).fill(&mut content);
    content
}

fn disk() -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::with_content("disk0", content()))
}

fn simulate<F: Future>(seed: u64, main: impl FnOnce(Runtime) -> F) -> F::Output {
    Runtime::simulate(SimConfig::seed(seed), main).0
}

fn read<T: Device>(device: &T, offset: u64, len: usize) -> Result<Bytes, DeviceError> {
    simulate(0, |_| device.read_at(offset, len))
}

/// Eight readers on a slow, worn disk; returns the events of a trace above it.
fn worn_disk_history(seed: u64) -> Vec<Event> {
    simulate(seed, |rt| async move {
        let faulty = Faulty::new(disk(), rt.random_u64())
            .with(Fault::error(Op::Read).sectors(0.002))
            .with(Fault::error(Op::Read).chance(0.05));
        let latency = Latency {
            fixed: Duration::from_micros(80),
            jitter: Duration::from_micros(40),
            bytes_per_s: NonZeroU64::new(500_000_000),
        };
        let slow = Delayed::new(Arc::new(faulty), latency, &rt);
        let traced = Arc::new(Traced::new(Arc::new(slow), 1000, &rt));
        rt.for_each_bounded(8, 0..8, |_| {
            let (device, mut rng) = (traced.clone(), rt.rng());
            async move {
                for _ in 0..20 {
                    // Errors are expected: the trace records them.
                    let _ = device.read_at(rng.below(SIZE as u64 - 8192), 8192).await;
                }
                Ok::<(), ()>(())
            }
        })
        .await
        .expect("readers do not fail");
        traced.take_events()
    })
}

#[test]
fn one_seed_is_one_history_of_faults() {
    let histories: Vec<_> = (0..10).map(worn_disk_history).collect();
    for (seed, history) in histories.iter().enumerate() {
        assert_eq!(history, &worn_disk_history(seed as u64), "seed {seed}");
        assert_eq!(history.len(), 160);
        let failed = history.iter().filter(|event| event.failed).count();
        assert!((1..80).contains(&failed), "seed {seed}: {failed} of 160 failed");
        assert!(history.iter().all(|event| event.took >= Duration::from_nanos(80_000 + 16_384)));
    }
    for (seed, pair) in histories.windows(2).enumerate() {
        assert_ne!(pair[0], pair[1], "seeds {seed} and {}", seed + 1);
    }
}

#[test]
fn bad_sectors_stay_bad_and_others_good() {
    let faulty = Faulty::new(disk(), 9).with(Fault::error(Op::Read).sectors(0.05));
    let bad = |faulty: &Faulty| -> Vec<bool> {
        (0..2048).map(|sector| read(faulty, sector * 512, 512).is_err()).collect()
    };
    let first = bad(&faulty);
    let count = first.iter().filter(|bad| **bad).count();
    assert!((50..160).contains(&count), "{count} of 2048 at 5 %");
    assert_eq!(first, bad(&faulty), "the second time as the first");
    assert_ne!(first, bad(&Faulty::new(disk(), 10).with(Fault::error(Op::Read).sectors(0.05))));
    faulty.heal();
    assert!(!bad(&faulty).contains(&true));
}

#[test]
fn corruption_is_one_bit_within_its_range() {
    let faulty = Faulty::new(disk(), 3).with(Fault::corruption().within(4096..8192));
    let original = content();
    for _ in 0..100 {
        let bytes = read(&faulty, 0, 16384).expect("reads");
        let wrong: Vec<usize> = (0..16384).filter(|at| bytes[*at] != original[*at]).collect();
        let [at] = wrong[..] else { panic!("{} bytes are wrong", wrong.len()) };
        assert!((4096..8192).contains(&at));
        assert_eq!((bytes[at] ^ original[at]).count_ones(), 1);
    }
    assert!(read(&faulty, 0, 4096).expect("reads") == original[..4096]);
}

#[test]
fn torn_and_lost_writes_lie() {
    let below = disk();
    let faulty =
        Faulty::new(below.clone(), 5).with(Fault::torn_write().times(1)).with(Fault::lost_write().times(1));
    let write = |offset| simulate(0, |_| faulty.write_at(offset, Bytes::from(vec![0; 8192])));
    write(0).expect("says it is written");
    write(65536).expect("says it is written");
    write(131_072).expect("is written");
    let after = below.live_image();
    let kept = (0..8192).take_while(|at| after[*at] == 0).count();
    assert!(kept < 8192 && kept.is_multiple_of(512), "{kept} of 8192 bytes kept");
    assert!(after[kept..131_072] == content()[kept..131_072]);
    assert!(after[131_072..131_072 + 8192].iter().all(|byte| *byte == 0));
    assert_eq!(faulty.injected(), 2);
}

#[test]
fn errors_name_device_and_place_and_hangs_can_be_timed_out() {
    let faulty = Faulty::new(disk(), 6)
        .with(Fault::error(Op::Read).within(512..1024))
        .with(Fault::hang(Op::Read).within(4096..4097))
        .with(Fault::error(Op::Flush).times(1));
    let error = read(&faulty, 0, 1024).expect_err("fails").to_string();
    assert!(error.starts_with("disk0: read of 1024 bytes at offset 0 failed: "), "{error}");
    simulate(1, |rt| async move {
        let waited = rt.timeout(Duration::from_secs(30), faulty.read_at(4000, 500)).await;
        assert!(waited.is_err());
        assert_eq!(rt.now().as_ns(), 30_000_000_000);
        assert!(faulty.flush().await.is_err());
        assert!(faulty.flush().await.is_ok());
    });
}

#[test]
fn a_trace_counts_what_passed() {
    let rt = Runtime::simulated(SimConfig::seed(2));
    let traced = Traced::new(disk(), 2, &rt);
    rt.block_on(async {
        traced.read_at(10, 100).await.expect("reads");
        traced.read_at(SIZE as u64, 1).await.expect_err("beyond the end");
        traced.write_at(0, Bytes::from_static(b"abc")).await.expect("writes");
    });
    let reads = traced.count(Op::Read);
    assert_eq!((reads.ended, reads.failed, reads.bytes), (2, 1, 100));
    assert_eq!(traced.count(Op::Write).bytes, 3);
    assert_eq!(traced.count(Op::Flush).ended, 0);
    let events = traced.take_events();
    assert_eq!(
        events.iter().map(|event| (event.offset, event.failed)).collect::<Vec<_>>(),
        [(10, false), (SIZE as u64, true)]
    );
}

#[test]
fn a_power_cut_keeps_what_was_flushed_and_tears_the_rest_by_sector() {
    let mut outcomes = std::collections::HashSet::new();
    for seed in 0..30 {
        let cut = || {
            let device = MemoryDevice::new("disk0", 64 * 512);
            simulate(0, |_| async {
                device.write_at(0, Bytes::from(vec![1; 16 * 512])).await.expect("writes");
                device.flush().await.expect("flushes");
                device.write_at(8 * 512, Bytes::from(vec![2; 16 * 512])).await.expect("writes");
                device.write_at(12 * 512 + 100, Bytes::from(vec![3; 512])).await.expect("writes");
            });
            device.power_cut(&mut Rng::new(seed));
            assert!(device.live_image() == device.durable_image(), "seed {seed}");
            device.live_image()
        };
        let after = cut();
        assert!(after == cut(), "seed {seed} gives one outcome");
        assert!(after[..8 * 512].iter().all(|byte| *byte == 1), "seed {seed}: flushed and not written since");
        assert!(after[24 * 512..].iter().all(|byte| *byte == 0), "seed {seed}: never written");
        for (number, sector) in after.chunks(512).enumerate().filter(|(number, _)| ![12, 13].contains(number))
        {
            assert!(
                sector.iter().all(|byte| *byte == sector[0]),
                "seed {seed}: sector {number} is half written"
            );
        }
        outcomes.insert(after);
    }
    assert!(outcomes.len() > 5, "{} outcomes of 30 seeds", outcomes.len());
}

#[test]
fn an_older_write_does_not_come_back_over_one_that_is_durable() {
    let device = MemoryDevice::new("disk0", 64 * 512);
    simulate(0, |_| async {
        device.write_at(0, Bytes::from(vec![1; 8 * 512])).await.expect("writes");
        device.write_through(2 * 512, Bytes::from(vec![2; 512])).await.expect("writes");
        device.flush().await.expect("flushes");
    });
    assert_eq!([0, 1024, 1536].map(|at| device.durable_image()[at]), [1, 2, 1]);
}

#[test]
fn a_failed_flush_loses_what_it_was_for_and_the_next_succeeds() {
    let outcome = |seed| {
        let device = Arc::new(MemoryDevice::new("disk0", 64 * 512));
        simulate(0, |_| async {
            let faulty = Faulty::new(device.clone(), 1).with(Fault::error(Op::Flush).times(1));
            faulty.write_at(0, Bytes::from(vec![1; 32 * 512])).await.expect("writes");
            assert!(faulty.flush().await.is_err());
            faulty.write_at(0, Bytes::from(vec![2; 512])).await.expect("writes");
            faulty.flush().await.expect("there is nothing that it knows of");
            assert_eq!(faulty.read_at(512, 1).await.expect("reads")[0], 1, "it is cached");
        });
        device.power_cut(&mut Rng::new(seed));
        let image = device.durable_image();
        assert_eq!(image[0], 2, "written again, and flushed");
        image[512..].iter().step_by(512).filter(|byte| **byte == 1).count()
    };
    let found: std::collections::HashSet<usize> = (0..30).map(outcome).collect();
    assert!(found.contains(&0) && found.contains(&31) && found.len() > 4, "{found:?}");
}

/// Drops an operation that has begun.
async fn begin_and_drop(mut io: cenote_device::Io<()>) {
    assert!(futures::poll!(&mut io).is_pending());
}

#[test]
fn a_dropped_operation_goes_on_and_newer_ones_to_its_place_come_later() {
    const MS: Duration = Duration::from_millis(1);
    let latency = |ms| Latency { fixed: MS * ms, jitter: MS, bytes_per_s: None };
    simulate(7, |rt| async move {
        let slow = |below| Arc::new(Delayed::new(below, latency(10), &rt)) as Arc<dyn Device>;
        let late = |below| {
            let faulty = Faulty::new(below, 1);
            for op in [Op::Write, Op::Discard] {
                faulty.add(Fault::delay(op, 50 * MS, &rt).times(1));
            }
            Arc::new(faulty) as Arc<dyn Device>
        };
        let layered = |below| Arc::new(Traced::new(slow(late(below)), 0, &rt)) as Arc<dyn Device>;
        for over in [&slow as &dyn Fn(Arc<dyn Device>) -> Arc<dyn Device>, &late, &layered] {
            let below = disk();
            let device = over(below.clone());
            begin_and_drop(device.write_at(0, Bytes::from(vec![1; 8192]))).await;
            begin_and_drop(device.discard(65536, 65536)).await;
            drop(device.write_at(8192, Bytes::from(vec![2; 4096])));
            let newer = Bytes::from(vec![3; 4096]);
            device.write_at(4096, newer.clone()).await.expect("written");
            device.write_pieces(65536, vec![newer.clone(), newer]).await.expect("written");
            rt.sleep(200 * MS).await;
            let image = below.live_image();
            let is = |at: usize, len: usize, byte| image[at..at + len].iter().all(|it| *it == byte);
            assert!(is(0, 4096, 1) && is(4096, 4096, 3) && is(8192, 4096, 2), "the writes");
            assert!(is(65536, 8192, 3) && is(73728, 57344, 0), "the discard, and writes after it");
        }
    });
}

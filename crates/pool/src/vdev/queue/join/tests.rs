//! Neighbours on a disk that does one thing at a time, in virtual time.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cenote_device::{Delayed, Device, DeviceInfo, Fault, Faulty, Io, Latency, MemoryDevice};
use cenote_format::units::Guid;
use cenote_runtime::{Rng, Runtime, SimConfig};
use futures::future::join_all;
use parking_lot::Mutex;

use super::super::{ClassLoad, QueueSettings};
use super::*;
use crate::vdev::leaf::Leaf;
use crate::vdev::unflushed::Stake;

const KIB: u64 = 1 << 10;
const DISK_BYTES: usize = 64 << 20;
const MS: Duration = Duration::from_millis(1);
const SEEK: Duration = Duration::from_millis(4);
const BYTES_PER_MS: u64 = 150 << 10;

/// A spinning disk; clones share its state.
#[derive(Clone)]
struct Disk {
    inner: Arc<dyn Device>,
    info: DeviceInfo,
    runtime: Runtime,
    turn: Arc<tokio::sync::Mutex<u64>>,
    operations: Arc<AtomicU64>,
}

impl Disk {
    fn new(runtime: &Runtime, inner: Arc<dyn Device>) -> Arc<Disk> {
        let info = DeviceInfo { rotational: Some(true), ..inner.info().clone() };
        let (turn, operations) = Default::default();
        Arc::new(Disk { inner, info, runtime: runtime.clone(), turn, operations })
    }

    async fn move_to(&self, offset: u64, len: u64) {
        let mut at = self.turn.lock().await;
        self.operations.fetch_add(1, Ordering::Relaxed);
        let seek = if *at == offset { Duration::ZERO } else { SEEK };
        self.runtime.sleep(seek + Duration::from_nanos(len * 1_000_000 / BYTES_PER_MS)).await;
        *at = offset + len;
    }

    fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }
}

impl Device for Disk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        let of = self.clone();
        Io::pending(&self.runtime, async move {
            of.move_to(offset, len as u64).await;
            of.inner.read_at(offset, len).await
        })
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        let of = self.clone();
        Io::pending(&self.runtime, async move {
            of.move_to(offset, data.len() as u64).await;
            of.inner.write_at(offset, data).await
        })
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        let of = self.clone();
        self.write_at(offset, data).then(move |()| of.flush())
    }

    fn flush(&self) -> Io<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        self.inner.discard(offset, len)
    }
}

fn content(offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(|at| (at >> 9) as u8 ^ (at >> 17) as u8).collect()
}

fn memory() -> Arc<MemoryDevice> {
    static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| content(0, DISK_BYTES));
    Arc::new(MemoryDevice::with_content("disk", CONTENT.clone()))
}

fn leaf(runtime: &Runtime, disk: &Arc<Disk>) -> Leaf {
    Leaf::new(runtime, Guid(1), disk.clone(), &Arc::new(QueueSettings::default()))
}

/// Keeps the disk busy with a class, far away.
async fn occupy(leaf: &Leaf, class: IoClass) {
    let reads = (0..3).map(|n| leaf.read(class, (40 << 20) + (n << 20), 512));
    assert!(join_all(reads).await.iter().all(Result::is_ok));
}

fn count(load: &ClassLoad) -> (u64, u64) {
    (load.alone.iter().sum(), load.joined.iter().sum())
}

#[test]
fn reads_that_wait_beside_each_other_are_one_and_each_gets_its_own() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let disk = Disk::new(&runtime, memory());
        let leaf = leaf(&runtime, &disk);
        // Every other block, in random order: the gaps are read, too.
        let blocks: Vec<u64> = (0..32).map(|n| n * 13 % 32 * 8 * KIB).collect();
        let reads = join_all(blocks.iter().map(|at| leaf.read(IoClass::AsyncRead, *at, 4096)));
        let (_, reads) = futures::join!(occupy(&leaf, IoClass::AsyncRead), reads);
        for (at, read) in blocks.iter().zip(reads) {
            assert!(read.unwrap() == content(*at, 4096), "at {at}");
        }
        assert_eq!(disk.operations(), 3 + 1);
        let load = leaf.load()[IoClass::AsyncRead as usize];
        assert_eq!((count(&load), load.begun), ((3, 1), 35));
        // 252 KiB as one.
        assert_eq!(load.joined[17], 1);
    });
}

#[test]
fn large_gaps_and_limits_keep_reads_apart() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let disk = Disk::new(&runtime, memory());
        let leaf = leaf(&runtime, &disk);
        let far = [0, 4 * KIB + 33 * KIB];
        let long = [10 << 20, (10 << 20) + 600 * KIB];
        let reads = far.map(|at| leaf.read(IoClass::AsyncRead, at, 4096));
        let longer = long.map(|at| leaf.read(IoClass::AsyncRead, at, 600 << 10));
        let (_, reads, longer) =
            futures::join!(occupy(&leaf, IoClass::AsyncRead), join_all(reads), join_all(longer));
        assert!(reads.iter().chain(&longer).all(Result::is_ok));
        assert_eq!(disk.operations(), 3 + 4);
    });
}

#[test]
fn writes_join_over_padding_and_over_nothing_else() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let memory = memory();
        let disk = Disk::new(&runtime, memory.clone());
        let leaf = leaf(&runtime, &disk);
        let write = |at: u64, byte: u8, padding: usize| {
            leaf.write_padded(IoClass::AsyncWrite, Stake::NOTHING, at, vec![byte; 4096].into(), padding)
        };
        let far = join_all((0..10).map(|n| write((40 << 20) + (n << 20), 9, 0)));
        let near = join_all([
            write(0, 1, 0),
            write(4 * KIB, 2, 512),
            write(8 * KIB + 512, 3, 0),
            // The bytes before it belong to another block.
            write(13 * KIB, 4, 0),
        ]);
        let (far, near) = futures::join!(far, near);
        assert!(far.iter().chain(&near).all(Result::is_ok));
        assert_eq!(disk.operations(), 10 + 2);
        let image = memory.live_image();
        let is =
            |at: u64, len: usize, byte: u8| image[at as usize..][..len].iter().all(|found| *found == byte);
        assert!(is(0, 4096, 1) && is(4 * KIB, 4096, 2) && is(8 * KIB, 512, 0) && is(8 * KIB + 512, 4096, 3));
        assert!(image[12 * KIB as usize + 512..13 * KIB as usize] == content(12 * KIB + 512, 512));
        assert!(is(13 * KIB, 4096, 4));
    });
}

/// Drops a write between the decision to join it and the group's start.
#[test]
fn a_joined_write_that_was_dropped_comes_before_the_next_owners() {
    let mut joined = 0;
    for seed in 0..40 {
        let main = |runtime: Runtime| async move {
            let memory = memory();
            let latency = Latency { fixed: MS, ..Latency::default() };
            let slow = Arc::new(Delayed::new(memory.clone(), latency, &runtime));
            let leaf = Arc::new(Leaf::new(&runtime, Guid(1), slow, &Arc::new(QueueSettings::default())));
            let write = |class, at: u64, byte: u8| {
                let leaf = leaf.clone();
                runtime.spawn(async move {
                    leaf.write(class, Stake::NOTHING, at, vec![byte; 4096].into()).await.is_ok()
                })
            };
            let far = (0..10).map(|n| write(IoClass::AsyncWrite, (40 << 20) + (n << 20), 9));
            far.for_each(drop);
            runtime.sleep(MS / 2).await;
            let near: Vec<_> =
                (0..4).map(|n| write(IoClass::AsyncWrite, n * 4096, 1).abort_on_drop()).collect();
            // At the moment when the distant operations end.
            runtime.sleep(MS / 2).await;
            let is_joined = || count(&leaf.load()[IoClass::AsyncWrite as usize]).1 > 0;
            for _ in 0..50 {
                if is_joined() {
                    break;
                }
                runtime.yield_now().await;
            }
            let is_joined = is_joined();
            drop(near);
            assert_eq!(write(IoClass::SyncWrite, 4096, 2).await, Ok(true));
            runtime.sleep(MS * 100).await;
            let image = memory.live_image();
            assert!(image[4096..8192].iter().all(|byte| *byte == 2), "seed {seed}");
            is_joined
        };
        joined += u32::from(Runtime::simulate(SimConfig::seed(seed), main).0);
    }
    assert!(joined > 10, "{joined} of 40");
}

#[test]
fn a_bad_sector_is_the_error_of_whoever_wants_it() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let bad = 5 * 4096 + 1000;
        let faulty = Faulty::new(memory(), 1).with(Fault::error(Op::Read).within(bad..bad + 1));
        let disk = Disk::new(&runtime, Arc::new(faulty));
        let leaf = leaf(&runtime, &disk);
        let reads = join_all((0..10).map(|n| leaf.read(IoClass::AsyncRead, n * 4096, 4096)));
        let (_, reads) = futures::join!(occupy(&leaf, IoClass::AsyncRead), reads);
        for (n, read) in reads.into_iter().enumerate() {
            match read {
                Ok(bytes) => assert!(n != 5 && bytes == content(n as u64 * 4096, 4096)),
                Err(error) => assert!(n == 5 && error.to_string().contains("20480"), "{n}: {error}"),
            }
        }
        assert_eq!(leaf.errors().read, 1);
    });
}

/// A mix of all classes among neighbours, some dropped; `CENOTE_SEEDS` sets the number of seeds.
#[test]
fn no_class_starves_and_each_gets_what_it_asked_for() {
    let seeds = std::env::var("CENOTE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(10);
    for seed in 0..seeds {
        let main = |runtime: Runtime| async move {
            let disk = Disk::new(&runtime, memory());
            let leaf = Arc::new(leaf(&runtime, &disk));
            let mut rng = Rng::new(seed);
            let longest = Arc::new(Mutex::new([Duration::ZERO; IoClass::ALL.len()]));
            let tasks: Vec<_> = (0..400)
                .map(|n: u64| {
                    let class = IoClass::ALL[rng.below(IoClass::ALL.len() as u64) as usize];
                    let (at, patience) = (rng.below(1000) * 4096, MS * rng.below(1000) as u32);
                    let (start, gives_up) = (MS * rng.below(200) as u32, rng.below(4) == 0);
                    // Each writes and reads its own place.
                    let write_at = (16 << 20) + n * 4096;
                    let (leaf, runtime, longest) = (leaf.clone(), runtime.clone(), longest.clone());
                    runtime.clone().spawn(async move {
                        runtime.sleep(start).await;
                        let from = runtime.now();
                        let operation = async {
                            if matches!(
                                class,
                                IoClass::SyncWrite | IoClass::AsyncWrite | IoClass::Initializing
                            ) {
                                let data = vec![n as u8; 4096];
                                leaf.write(class, Stake::NOTHING, write_at, data.clone().into())
                                    .await
                                    .unwrap();
                                let read = leaf.read(IoClass::SyncRead, write_at, 4096).await.unwrap();
                                assert!(read == data, "seed {seed}: operation {n}");
                            } else {
                                let read = leaf.read(class, at, 4096).await.unwrap();
                                assert!(read == content(at, 4096), "seed {seed}: operation {n}");
                            }
                        };
                        match gives_up {
                            true => drop(runtime.timeout(patience, operation).await),
                            false => operation.await,
                        }
                        let longest = &mut longest.lock()[class as usize];
                        *longest = runtime.now().since(from).max(*longest);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            }
            // Dropped operations may still be under way on the disk.
            runtime.sleep(MS * 1000).await;
            let load = leaf.load();
            assert!(load.iter().all(|class| (class.waiting, class.active) == (0, 0)), "seed {seed}");
            // Even one by one they would be done by then.
            let bound = (SEEK + MS) * 400;
            assert!(longest.lock().iter().all(|longest| *longest < bound), "seed {seed}: {longest:?}");
        };
        Runtime::simulate(SimConfig::seed(seed), main);
    }
}

/// A txg of large writes and a scrub keep the disk busy. A reader waits only for their permitted operations.
#[test]
fn readers_wait_no_longer_than_what_may_be_under_way() {
    Runtime::simulate(SimConfig::seed(1), |runtime| async move {
        let disk = Disk::new(&runtime, memory());
        let leaf = Arc::new(leaf(&runtime, &disk));
        let background: Vec<_> = (0..2000_u64)
            .map(|n| {
                let leaf = leaf.clone();
                runtime.spawn(async move {
                    let at = (n % 1000) * 16 * KIB;
                    let done = match n < 1000 {
                        true => {
                            leaf.write(IoClass::AsyncWrite, Stake::NOTHING, at, vec![1; 16 << 10].into())
                                .await
                        }
                        false => leaf.read(IoClass::Scrub, (16 << 20) + at, 16 << 10).await.map(drop),
                    };
                    assert!(done.is_ok());
                })
            })
            .collect();
        runtime.sleep(MS * 5).await;
        let mut waits = Vec::new();
        for n in 0..50 {
            let from = runtime.now();
            assert!(leaf.read(IoClass::SyncRead, (50 << 20) + n * 512 * 7, 512).await.is_ok());
            waits.push(runtime.now().since(from));
        }
        waits.sort();
        let longest = SEEK + Duration::from_nanos((1 << 20) * 1_000_000 / BYTES_PER_MS);
        // Ten writes, five reads of the scrub, and itself.
        assert!(waits[49] <= longest * 16, "p98 {:?}, of {longest:?}", waits[49]);
        for task in background {
            task.await.unwrap_or_else(|error| panic!("{error}"));
        }
        let [writes, scrubs] = [IoClass::AsyncWrite, IoClass::Scrub].map(|class| leaf.load()[class as usize]);
        assert!(count(&writes).1 > 0 && count(&scrubs).1 > 0, "{:?} {:?}", count(&writes), count(&scrubs));
        assert!(count(&writes).0 + count(&writes).1 < 100, "{:?}", count(&writes));
    });
}

//! Queues before a device that serves few operations at a time, in virtual time.

mod saturated;

use std::time::Duration;

use cenote_device::MemoryDevice;
use cenote_runtime::{Rng, Runtime, SimConfig};
use parking_lot::Mutex;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn queue(runtime: &Runtime) -> Arc<Queue> {
    let device = Arc::new(MemoryDevice::new("disk", 4096));
    let settings = Arc::default();
    let patience = Arc::new(Patience::new(runtime, device, &settings));
    Arc::new(Queue::new(runtime, Guid(1), &settings, &patience))
}

/// Enters for an operation that joins no other.
async fn enter(queue: &Arc<Queue>, class: IoClass, offset: u64) -> Permit {
    queue.enter_alone(Ask::read(class, offset, 512)).await
}

fn total(load: [ClassLoad; IoClass::ALL.len()], of: fn(&ClassLoad) -> u64) -> u64 {
    load.iter().map(of).sum()
}

#[test]
fn no_class_starves_and_nothing_is_left_behind_whatever_is_cancelled() {
    for seed in saturated::seeds() {
        let runtime = Runtime::simulated(SimConfig::seed(seed));
        runtime.block_on(async {
            let queue = queue(&runtime);
            let mut rng = Rng::new(seed);
            let longest = Arc::new(Mutex::new(Duration::ZERO));
            let tasks: Vec<_> = (0..300)
                .map(|_| {
                    let class = IoClass::ALL[rng.below(IoClass::ALL.len() as u64) as usize];
                    let (offset, start) = (rng.below(1 << 30), MS * rng.below(50) as u32);
                    let (work, patience) = (MS * (1 + rng.below(5) as u32), MS * rng.below(40) as u32);
                    let gives_up = rng.below(4) == 0;
                    let (queue, runtime, longest) = (queue.clone(), runtime.clone(), longest.clone());
                    runtime.clone().spawn(async move {
                        runtime.sleep(start).await;
                        let from = runtime.now();
                        let operation = async {
                            let permit = enter(&queue, class, offset).await;
                            let waited = runtime.now().since(from);
                            {
                                let mut longest = longest.lock();
                                *longest = waited.max(*longest);
                            }
                            runtime.sleep(work).await;
                            drop(permit);
                        };
                        match gives_up {
                            true => drop(runtime.timeout(patience, operation).await),
                            false => operation.await,
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            }
            let load = queue.load();
            assert_eq!((total(load, |c| c.waiting), total(load, |c| c.active)), (0, 0), "seed {seed}");
            assert_eq!(queue.depth(), 0, "seed {seed}");
            // 300 operations of at most 5 ms, the slowest class one at a time.
            assert!(*longest.lock() <= MS * 1500, "seed {seed}: {:?}", longest.lock());
        });
    }
}

#[test]
fn readers_do_not_wait_behind_a_txg_and_a_scrub() {
    let runtime = Runtime::simulated(SimConfig::seed(1));
    runtime.block_on(async {
        let queue = queue(&runtime);
        // The device serves one operation a millisecond, in order of arrival.
        let device = Arc::new(tokio::sync::Mutex::new(()));
        let serve = |class, offset| {
            let (queue, device, runtime) = (queue.clone(), device.clone(), runtime.clone());
            async move {
                let _permit = enter(&queue, class, offset).await;
                let _turn = device.lock().await;
                runtime.sleep(MS).await;
            }
        };
        let background: Vec<_> = (0..500)
            .flat_map(|n| [(IoClass::AsyncWrite, n << 20), (IoClass::Scrub, (1000 + n) << 20)])
            .map(|(class, offset)| runtime.spawn(serve(class, offset)))
            .collect();
        runtime.sleep(MS * 5).await;
        let mut waits = Vec::new();
        for n in 0..100 {
            let from = runtime.now();
            serve(IoClass::SyncRead, n << 30).await;
            waits.push(runtime.now().since(from));
        }
        waits.sort();
        // At most ten async writes and a few scrub reads are before it on the device.
        assert!(waits[98] <= MS * 16, "p99 {:?}", waits[98]);
        for task in background {
            task.await.unwrap_or_else(|error| panic!("{error}"));
        }
    });
}

#[test]
fn a_scrub_gets_little_beside_users_and_more_when_they_are_quiet() {
    let runtime = Runtime::simulated(SimConfig::seed(1));
    runtime.block_on(async {
        let queue = queue(&runtime);
        let user = enter(&queue, IoClass::SyncRead, 0).await;
        let scrub = |n: u64| {
            let (queue, runtime) = (queue.clone(), runtime.clone());
            runtime.clone().spawn(async move {
                let _permit = enter(&queue, IoClass::Scrub, n).await;
                runtime.sleep(MS * 10).await;
            })
        };
        let scrubs: Vec<_> = (0..40).map(scrub).collect();
        runtime.sleep(MS).await;
        assert_eq!(queue.load()[IoClass::Scrub as usize].active, 1);
        runtime.sleep(MS * 20).await;
        assert_eq!(queue.load()[IoClass::Scrub as usize].active, 0, "the user's operation lasts");
        drop(user);
        runtime.sleep(MS * 100).await;
        assert_eq!(queue.load()[IoClass::Scrub as usize].active, 3, "users have been quiet");
        for task in scrubs {
            task.await.unwrap_or_else(|error| panic!("{error}"));
        }
    });
}

#[test]
fn ordered_classes_sweep_in_one_direction() {
    let runtime = Runtime::simulated(SimConfig::seed(1));
    runtime.block_on(async {
        let queue = queue(&runtime);
        let order = Arc::new(Mutex::new(Vec::new()));
        let first: Vec<_> =
            futures::future::join_all((0..3).map(|_| enter(&queue, IoClass::AsyncRead, 50))).await;
        let later: Vec<_> = [10, 90, 70, 30, 60]
            .into_iter()
            .map(|offset| {
                let (queue, order) = (queue.clone(), order.clone());
                runtime.spawn(async move {
                    let _permit = enter(&queue, IoClass::AsyncRead, offset).await;
                    order.lock().push(offset);
                })
            })
            .collect();
        runtime.sleep(MS).await;
        let mut first = first.into_iter();
        drop(first.next());
        runtime.sleep(MS).await;
        assert_eq!(*order.lock(), [60, 70, 90, 10, 30]);
        for task in later {
            task.await.unwrap_or_else(|error| panic!("{error}"));
        }
    });
}

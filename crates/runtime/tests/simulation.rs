//! The simulator keeps its promises: a seed is a history, time is virtual, cores are limited, and no hang
//! goes unnoticed.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use cenote_runtime::{Cost, CostModel, JoinError, Runtime, SimConfig, SimReport, WorkKind};
use futures::stream::StreamExt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, mpsc};

/// Eight workers race for a lock, a channel, timers and random numbers; returns the order of finished steps.
fn race(seed: u64) -> (Vec<(u64, u64)>, SimReport) {
    let config = SimConfig { trace_steps: 1000, ..SimConfig::seed(seed) };
    Runtime::simulate(config, |rt| async move {
        let shared = Arc::new(Mutex::new(0u64));
        let (sender, mut order) = mpsc::channel(4);
        for worker in 0..8u64 {
            let (rt, shared, sender) = (rt.clone(), shared.clone(), sender.clone());
            rt.clone()
                .spawn(async move {
                    for _ in 0..5 {
                        rt.sleep(Duration::from_nanos(rt.random_u64() % 3)).await;
                        rt.work(WorkKind::Sha256, 4096).await;
                        let mut count = shared.lock().await;
                        *count += 1;
                        sender.send((worker, *count)).await.expect("the main task listens");
                    }
                })
                .detach();
        }
        drop(sender);
        let mut seen = Vec::new();
        while let Some(step) = order.recv().await {
            seen.push(step);
        }
        seen
    })
}

#[test]
fn one_seed_is_one_history_and_another_is_another() {
    let mut orders = std::collections::HashSet::new();
    for seed in 0..20 {
        let (order, report) = race(seed);
        let (again, report_again) = race(seed);
        assert_eq!(order.len(), 40, "seed {seed}");
        assert_eq!(order, again, "seed {seed}");
        assert_eq!(report, report_again, "seed {seed}");
        orders.insert((order, report.history));
    }
    assert_eq!(orders.len(), 20, "twenty seeds, twenty histories");
}

#[test]
fn hours_pass_at_once_and_to_the_nanosecond() {
    let (_, report) = Runtime::simulate(SimConfig::seed(1), |rt| async move {
        let (start, wall) = (rt.now(), rt.unix_time_ns());
        for _ in 0..1000 {
            rt.sleep(Duration::new(3600, 1)).await;
        }
        let expected = Duration::new(3_600_000, 1000);
        assert_eq!(rt.now() - start, expected);
        assert_eq!(u128::from(rt.unix_time_ns() - wall), expected.as_nanos());
    });
    assert_eq!(report.virtual_ns, 3_600_000_000_001_000);
}

#[test]
fn work_queues_for_modelled_cores() {
    // Ten jobs of 1 ms on four cores: three rounds.
    let costs = CostModel::free()
        .with(WorkKind::Sha256, Cost::at_mb_per_s(0, NonZeroU64::new(1000).expect("not zero")))
        .with(WorkKind::Parse, Cost { fixed_ns: 500, ps_per_byte: 0 });
    let config = SimConfig { cores: 4, costs, ..SimConfig::seed(3) };
    let (_, report) = Runtime::simulate(config, |rt| async move {
        let worker = rt.clone();
        let done = rt
            .map_bounded(10, 0..10, |_| {
                let rt = worker.clone();
                async move { rt.work(WorkKind::Sha256, 1_000_000).await }
            })
            .count()
            .await;
        assert_eq!(done, 10);
        assert_eq!(rt.now().as_ns(), 3_000_000);
        rt.work(WorkKind::Parse, 1 << 40).await;
        assert_eq!(rt.now().as_ns(), 3_000_500);
    });
    assert_eq!(report.busy_ns, [(WorkKind::Sha256, 10_000_000), (WorkKind::Parse, 500)]);
}

#[test]
#[should_panic(expected = "deadlocked")]
fn a_deadlock_is_reported() {
    Runtime::simulate(SimConfig::seed(5), |rt| async move {
        let (one, two) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
        let both_held = Arc::new(tokio::sync::Barrier::new(2));
        let takes = |first: Arc<Mutex<()>>, second: Arc<Mutex<()>>| {
            let both_held = both_held.clone();
            async move {
                let _first = first.lock().await;
                both_held.wait().await;
                let _second = second.lock().await;
            }
        };
        let other = rt.spawn(takes(two.clone(), one.clone()));
        takes(one, two).await;
        other.await.expect("never reached");
    });
}

#[test]
#[should_panic(expected = "a livelock?")]
fn a_livelock_is_reported() {
    let config = SimConfig { step_limit: 10_000, ..SimConfig::seed(5) };
    Runtime::simulate(config, |rt| async move {
        while rt.now().as_ns() == 0 {
            rt.yield_now().await;
        }
    });
}

#[test]
#[should_panic(expected = "nobody waits for me")]
fn a_panic_that_nobody_waits_for_ends_the_run() {
    Runtime::simulate(SimConfig::seed(6), |rt| async move {
        rt.spawn(async { panic!("nobody waits for me") }).detach();
        rt.sleep(Duration::from_secs(1)).await;
    });
}

#[test]
fn abort_drops_the_task_and_what_it_holds() {
    Runtime::simulate(SimConfig::seed(7), |rt| async move {
        let permits = Arc::new(Semaphore::new(1));
        let (runtime, taken) = (rt.clone(), permits.clone());
        let task = rt.spawn(async move {
            let _permit = taken.acquire_owned().await;
            runtime.sleep(Duration::from_secs(u64::MAX)).await;
        });
        rt.sleep(Duration::from_nanos(1)).await;
        assert_eq!(permits.available_permits(), 0);
        task.abort();
        assert_eq!(task.await, Err(JoinError::Cancelled));
        assert_eq!(permits.available_permits(), 1);
    });
}

#[test]
fn a_timeout_that_is_not_needed_leaves_no_timer() {
    let (_, report) = Runtime::simulate(SimConfig::seed(8), |rt| async move {
        for _ in 0..100 {
            let done = rt.timeout(Duration::from_secs(3600), rt.sleep(Duration::from_millis(1))).await;
            assert_eq!(done, Ok(()));
        }
        let late = rt.timeout(Duration::from_millis(1), rt.sleep(Duration::from_secs(3600))).await;
        assert!(late.is_err());
    });
    assert_eq!(report.virtual_ns, 101_000_000);
}

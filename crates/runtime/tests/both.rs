//! Everything an engine relies on behaves the same in both back ends.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use cenote_runtime::{JoinError, Runtime, SimConfig};
use futures::stream::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The real one also without workers.
fn both() -> [Runtime; 3] {
    [Runtime::real(Some(2)), Runtime::real(Some(0)), Runtime::simulated(SimConfig::seed(11))]
}

#[test]
fn tasks_give_their_value_or_why_not() {
    for rt in both() {
        rt.block_on(async {
            assert_eq!(rt.spawn(async { 6 * 7 }).await, Ok(42));
            let panicked = rt.spawn(async { panic!("out of {}", "cheese") }).await;
            assert_eq!(panicked, Err::<(), _>(JoinError::Panicked("out of cheese".into())));
            let aborted = rt.spawn(std::future::pending::<()>());
            aborted.abort();
            assert_eq!(aborted.await, Err(JoinError::Cancelled));
        });
    }
}

#[test]
fn clocks_sleep_and_time_out() {
    for rt in both() {
        rt.block_on(async {
            let start = rt.now();
            rt.sleep(Duration::from_millis(5)).await;
            assert!(rt.now() - start >= Duration::from_millis(5));
            assert!(rt.unix_time_ns() > 1_700_000_000_000_000_000);
            let late = rt.timeout(Duration::from_millis(1), std::future::pending::<()>()).await;
            assert!(late.is_err());
            assert_eq!(rt.timeout(Duration::from_secs(3600), async { 1 }).await, Ok(1));
        });
    }
}

#[test]
fn blocking_calls_return_and_panics_pass_through() {
    for rt in both() {
        rt.block_on(async {
            assert_eq!(rt.blocking(|| 7).await, 7);
            let runtime = rt.clone();
            let task = rt.spawn(async move { runtime.blocking(|| panic!("bad sector")).await });
            assert_eq!(task.await, Err::<(), _>(JoinError::Panicked("bad sector".into())));
        });
    }
}

#[test]
fn bounded_parallelism_is_bounded_ordered_and_stops_at_the_first_error() {
    for rt in both() {
        rt.block_on(async {
            let running = Arc::new(AtomicUsize::new(0));
            let most = Arc::new(AtomicUsize::new(0));
            let step = |item: u64| {
                let (rt, running, most) = (rt.clone(), running.clone(), most.clone());
                async move {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    rt.sleep(Duration::from_nanos(rt.random_u64() % 1000)).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    item
                }
            };
            let results: Vec<u64> = rt.map_bounded(3, 0..50, step).collect().await;
            assert_eq!(results, (0..50).collect::<Vec<_>>());
            assert!((2..=3).contains(&most.load(Ordering::SeqCst)));

            let started = Arc::new(AtomicUsize::new(0));
            let outcome = rt
                .for_each_bounded(4, 0..1000, |item| {
                    started.fetch_add(1, Ordering::SeqCst);
                    async move { if item == 10 { Err(item) } else { Ok(()) } }
                })
                .await;
            assert_eq!(outcome, Err(10));
            assert!(started.load(Ordering::SeqCst) <= 10 + 4, "items are taken as they are needed");
        });
    }
}

#[test]
fn the_last_handle_may_be_dropped_inside_a_task() {
    let rt = Runtime::real(Some(1));
    let (sender, dropped) = std::sync::mpsc::channel();
    let inner = Runtime::real(Some(1));
    let task = rt.spawn(async move {
        drop(inner);
        sender.send(()).expect("the test waits");
    });
    assert!(rt.block_on(task).is_ok());
    assert!(dropped.recv().is_ok());
}

//! The client against the project's own server, over pipes in memory: service, restarts, absence.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::{Device, DeviceError};
use cenote_remote::{DEADLINE, ServerError};

use cenote_runtime::{Runtime, SimConfig};
use common::{Machine, SIZE_BYTES};

const SECOND: Duration = Duration::from_secs(1);

fn bytes(byte: u8, len: usize) -> Bytes {
    vec![byte; len].into()
}

/// Runs a test with a server and a device on it.
fn with<F: Future<Output = ()>>(test: impl FnOnce(Runtime, Arc<Machine>, Arc<dyn Device>) -> F) {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let machine = Machine::new(&runtime);
        let device: Arc<dyn Device> = Arc::new(machine.open(false).await.unwrap());
        test(runtime, machine, device).await;
    });
}

fn is_given_up(error: &DeviceError) -> bool {
    matches!(cause(error), Some(ServerError::GivenUp { .. }))
}

fn cause(error: &DeviceError) -> Option<&ServerError> {
    let DeviceError::Io { source, .. } = error else { return None };
    source.get_ref()?.downcast_ref()
}

#[test]
fn everything_that_devices_do_reaches_the_disk() {
    with(|_, machine, device| async move {
        let info = device.info();
        assert_eq!((info.size_bytes, info.sector_bytes, info.read_only), (SIZE_BYTES as u64, 4096, false));
        assert_eq!(machine.connections(), 4, "the server answers a flush for all of them");
        device.write_at(4096, bytes(1, 8192)).await.unwrap();
        device.write_pieces(12288, vec![bytes(2, 512), bytes(3, 1024)]).await.unwrap();
        assert_eq!(
            &device.read_at(12287, 1026).await.unwrap()[..],
            [&[1][..], &[2; 512], &[3; 513]].concat()
        );
        assert_eq!(device.read_pieces(12288, vec![512, 2]).await.unwrap(), [bytes(2, 512), bytes(3, 2)]);
        assert_eq!(machine.durable()[4096], 0);
        device.flush().await.unwrap();
        assert_eq!(machine.durable()[4096], 1);
        device.write_through(20480, bytes(4, 512)).await.unwrap();
        assert_eq!(machine.durable()[20480], 4);
        device.write_at(4096, bytes(0, 4096)).await.unwrap();
        assert_eq!(machine.zeroed(), 1, "zeros are not sent");
        device.discard(8192, 4096).await.unwrap();
        assert_eq!(device.read_at(4096, 8192).await.unwrap(), bytes(0, 8192));
        // Larger than one request may be.
        let large: Bytes = (0..40 << 20).map(|at: u32| (at >> 12) as u8).collect::<Vec<u8>>().into();
        device.write_at(0, large.clone()).await.unwrap();
        assert_eq!(device.read_at(0, large.len()).await.unwrap(), large);
        assert!(matches!(device.read_at(SIZE_BYTES as u64, 1).await, Err(DeviceError::OutOfRange { .. })));
    });
}

#[test]
fn a_read_error_is_one_of_its_range_alone() {
    with(|_, machine, device| async move {
        machine.spoil(4096);
        let error = device.read_at(4096, 512).await.unwrap_err().to_string();
        assert!(error.contains("nbd://test/disk") && error.contains("bad block"), "{error}");
        assert_eq!(device.read_at(8192, 512).await.unwrap(), bytes(0, 512));
    });
}

#[test]
fn a_server_that_restarts_and_forgets_is_told_again() {
    with(|runtime, machine, device| async move {
        device.write_at(0, bytes(1, 4096)).await.unwrap();
        device.flush().await.unwrap();
        // Answered, but not flushed: forgotten by the server.
        device.write_at(4096, bytes(2, 8192)).await.unwrap();
        device.write_at(8192, bytes(3, 4096)).await.unwrap();
        device.write_at(65536, bytes(9, 4096)).await.unwrap();
        device.discard(65536, 4096).await.unwrap();
        machine.stop(true);
        let meanwhile = device.write_at(16384, bytes(4, 4096));
        let read = device.read_at(4096, 16384);
        let restarting = async {
            runtime.sleep(3 * SECOND).await;
            machine.start();
        };
        let (wrote, read, ()) = futures::join!(meanwhile, read, restarting);
        wrote.unwrap();
        assert_eq!(&read.unwrap()[..8192], [[2; 4096], [3; 4096]].concat());
        assert!(runtime.now().as_ns() < 5_000_000_000);
        device.flush().await.unwrap();
        let durable = machine.durable();
        let heads = [0, 4096, 8192, 16384, 65536].map(|at| durable[at]);
        assert_eq!(heads, [1, 2, 3, 4, 0]);
    });
}

#[test]
fn a_server_that_stays_away_ends_the_device_at_the_deadline() {
    with(|runtime, machine, device| async move {
        device.write_at(0, bytes(1, 4096)).await.unwrap();
        machine.stop(true);
        let begun = runtime.now();
        let error = device.write_at(4096, bytes(2, 4096)).await.unwrap_err();
        assert!(is_given_up(&error), "{error}");
        let took = runtime.now().since(begun);
        assert!(took >= DEADLINE - SECOND && took <= DEADLINE + SECOND, "{took:?}");
        assert!(!device.is_there().await.unwrap());
        let begun = runtime.now();
        assert!(is_given_up(&device.read_at(0, 512).await.unwrap_err()));
        assert_eq!(runtime.now(), begun, "without waiting");
        // It returns, but the pool has gone on without it, and opens it anew.
        machine.start();
        runtime.sleep(20 * SECOND).await;
        assert!(is_given_up(&device.flush().await.unwrap_err()));
        assert_eq!(machine.connections(), 4, "the server's only client may be another one now");
        let anew = machine.open(false).await.unwrap();
        assert_eq!(anew.read_at(0, 4096).await.unwrap(), bytes(0, 4096), "nothing is written late");
    });
}

#[test]
fn a_server_that_falls_silent_is_left_for_a_new_connection() {
    with(|runtime, machine, device| async move {
        device.write_at(0, bytes(1, 4096)).await.unwrap();
        machine.fall_silent();
        assert_eq!(device.read_at(0, 4096).await.unwrap(), bytes(1, 4096));
        let took_s = runtime.now().as_ns() / 1_000_000_000;
        assert!((4..6).contains(&took_s), "{took_s}");
        assert_eq!(machine.connections(), 8);
    });
}

#[test]
fn little_stays_unflushed() {
    with(|_, machine, device| async move {
        for at in 0..40 {
            device.write_at(at << 20, bytes(1, 1 << 20)).await.unwrap();
        }
        // A flush began by itself, and covers the beginning.
        device.read_at(0, 1).await.unwrap();
        assert_eq!((machine.durable()[0], machine.durable()[39 << 20]), (1, 0));
    });
}

#[test]
fn a_flush_fails_if_more_was_lost_than_is_kept() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let machine = Machine::sized(&runtime, 160 << 20);
        let device = machine.open(false).await.unwrap();
        machine.hold_flushes();
        for at in 0..140 {
            device.write_at(at << 20, bytes(1, 1 << 20)).await.unwrap();
        }
        machine.stop(true);
        machine.start();
        let error = device.flush().await.unwrap_err();
        assert!(matches!(cause(&error), Some(ServerError::UnflushedLost)), "{error}");
        device.write_at(0, bytes(2, 4096)).await.unwrap();
        device.flush().await.unwrap();
        assert_eq!(machine.durable()[0], 2);
    });
}

#[test]
fn overlapping_writes_end_in_the_order_of_their_calls_even_if_the_server_restarts() {
    with(|runtime, machine, device| async move {
        let writes = (1..=20u8).map(|byte| device.write_at(u64::from(byte % 3) * 512, bytes(byte, 1024)));
        let writes: Vec<_> = writes.collect();
        machine.stop(true);
        let restarting = async {
            runtime.sleep(SECOND).await;
            machine.start();
        };
        let (done, ()) = futures::join!(futures::future::join_all(writes), restarting);
        assert!(done.iter().all(Result::is_ok));
        let now = device.read_at(0, 2048).await.unwrap();
        assert_eq!([0, 512, 1024, 1536].map(|at| now[at]), [18, 19, 20, 20]);
    });
}

#[test]
fn a_dropped_write_is_made_and_a_closed_device_says_goodbye() {
    with(|runtime, machine, device| async move {
        drop(device.write_at(0, bytes(7, 4096)));
        drop(device);
        runtime.sleep(SECOND).await;
        assert_eq!(machine.live()[0], 7);
        assert_eq!(machine.open_connections(), 0);
        assert_eq!(machine.goodbyes(), 4);
    });
}

#[test]
fn an_export_for_reading_is_opened_for_reading_only() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let machine = Machine::new(&runtime);
        machine.make_read_only();
        assert!(matches!(machine.open(false).await, Err(ServerError::ReadOnly)));
        let device = machine.open(true).await.unwrap();
        assert!(device.for_writing().is_none());
        assert!(matches!(device.write_at(0, bytes(1, 512)).await, Err(DeviceError::ReadOnly { .. })));
    });
}

#[test]
fn one_connection_serves_discovery_and_then_the_pool() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let machine = Machine::new(&runtime);
        let device = machine.open(true).await.unwrap();
        let for_writing = device.for_writing().unwrap();
        drop(device);
        for_writing.write_at(0, bytes(1, 512)).await.unwrap();
        assert_eq!((machine.connections(), machine.live()[0]), (4, 1));
    });
}

#[test]
fn an_unknown_export_is_refused_with_the_servers_words() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let machine = Machine::new(&runtime);
        let Err(error) = machine.open_export("other", true).await else { panic!("it is open") };
        assert!(error.to_string().contains("no such disk"), "{error}");
        machine.stop(false);
        let Err(error) = machine.open(true).await else { panic!("it is open") };
        assert!(matches!(error, ServerError::Connect(_)), "{error}");
    });
}

//! The client against the project's own target, over pipes in memory: service, restarts, absence, fences.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod hostile;
#[path = "../common/ram.rs"]
mod ram;
mod target;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::{Device, DeviceError, StorageLock};
use cenote_iscsi::{Account, Accounts};
use cenote_remote::iscsi::{Chap, Login, Owner, Sharing};
use cenote_remote::{DEADLINE, ServerError};
use cenote_runtime::{Runtime, SimConfig};
use parking_lot::Mutex;
use target::{LUN, Machine, SIZE_BYTES, TARGET, owner};

const SECOND: Duration = Duration::from_secs(1);

fn bytes(byte: u8, len: usize) -> Bytes {
    vec![byte; len].into()
}

/// Runs a test with a target and a device on it.
fn with<F: Future<Output = ()>>(test: impl FnOnce(Runtime, Arc<Machine>, Arc<dyn Device>) -> F) {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let machine = Machine::new(&runtime);
        let device: Arc<dyn Device> = Arc::new(machine.open(Sharing::Writes).await.unwrap());
        test(runtime, machine, device).await;
    });
}

fn cause(error: &DeviceError) -> Option<&ServerError> {
    let DeviceError::Io { source, .. } = error else { return None };
    source.get_ref()?.downcast_ref()
}

fn is_fenced<T>(result: &Result<T, DeviceError>) -> bool {
    matches!(result, Err(DeviceError::Fenced { .. }))
}

#[test]
fn everything_that_devices_do_reaches_the_disk() {
    with(|_, machine, device| async move {
        let info = device.info();
        assert_eq!(
            (info.size_bytes, info.sector_bytes, info.read_only),
            (SIZE_BYTES as u64 / 2, 4096, false)
        );
        assert_eq!(info.nature.storage_lock, StorageLock::Held);
        assert_eq!(device.align_bytes(), 512);
        device.write_at(4096, bytes(1, 8192)).await.unwrap();
        device.write_pieces(12288, vec![bytes(2, 512), bytes(3, 1024)]).await.unwrap();
        let read = device.read_at(12287, 1026).await.unwrap();
        assert_eq!(&read[..], [&[1][..], &[2; 512], &[3; 513]].concat());
        assert_eq!(machine.durable(4096), 0);
        device.flush().await.unwrap();
        assert_eq!(machine.durable(4096), 1);
        device.write_through(20480, bytes(4, 512)).await.unwrap();
        assert_eq!(machine.durable(20480), 4);
        device.discard(8192, 4096).await.unwrap();
        assert_eq!(device.read_at(8192, 4096).await.unwrap(), bytes(0, 4096));
        // Larger than one command: each has immediate data, and several bursts.
        let large: Bytes = (0..5 << 20).map(|at: u32| (at >> 9) as u8).collect::<Vec<u8>>().into();
        let pieces = [0..1000, 1000..3_000_000, 3_000_000..5 << 20].map(|range| large.slice(range));
        device.write_pieces(512, pieces.into()).await.unwrap();
        assert_eq!(device.read_at(512, large.len()).await.unwrap(), large);
        assert!(matches!(device.read_at(SIZE_BYTES as u64, 1).await, Err(DeviceError::OutOfRange { .. })));
        let writes = (0..100u64).map(|at| device.write_at(at * 4096, bytes(at as u8, 4096)));
        let done = futures::future::join_all(writes).await;
        assert!(done.iter().all(Result::is_ok));
        assert_eq!(machine.live(99 * 4096), 99);
    });
}

#[test]
fn a_read_error_is_one_of_its_range_alone() {
    with(|_, machine, device| async move {
        machine.spoil(4096);
        let error = device.read_at(4096, 512).await.unwrap_err().to_string();
        assert!(error.contains("iscsi://test/disk") && error.contains("sense key 3"), "{error}");
        assert_eq!(device.read_at(8192, 512).await.unwrap(), bytes(0, 512));
    });
}

#[test]
fn a_target_that_restarts_and_forgets_is_told_again() {
    with(|runtime, machine, device| async move {
        device.write_at(0, bytes(1, 4096)).await.unwrap();
        device.flush().await.unwrap();
        // Answered, but not flushed: forgotten by the target.
        device.write_at(4096, bytes(2, 8192)).await.unwrap();
        device.write_at(8192, bytes(3, 4096)).await.unwrap();
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
        assert!(runtime.now().as_ns() < 6_000_000_000);
        device.flush().await.unwrap();
        assert_eq!([0, 4096, 8192, 16384].map(|at| machine.durable(at)), [1, 2, 3, 4]);
    });
}

#[test]
fn a_cut_connection_is_a_delay() {
    with(|_, machine, device| async move {
        for round in 1..=5u8 {
            let writes = (0..20u64).map(|at| device.write_at(at * 8192, bytes(round, 8192)));
            let writes: Vec<_> = writes.collect();
            machine.cut();
            let done = futures::future::join_all(writes).await;
            assert!(done.iter().all(Result::is_ok));
            assert_eq!(device.read_at(0, 20 * 8192).await.unwrap(), bytes(round, 20 * 8192));
        }
        assert_eq!(machine.connections(), 6);
    });
}

#[test]
fn a_target_that_stays_away_ends_the_device_at_the_deadline() {
    with(|runtime, machine, device| async move {
        device.write_at(0, bytes(1, 4096)).await.unwrap();
        machine.stop(true);
        let begun = runtime.now();
        let error = device.write_at(4096, bytes(2, 4096)).await.unwrap_err();
        assert!(matches!(cause(&error), Some(ServerError::GivenUp { .. })), "{error}");
        let took = runtime.now().since(begun);
        assert!(took >= DEADLINE - SECOND && took <= DEADLINE + SECOND, "{took:?}");
        assert!(!device.is_there().await.unwrap());
        // It returns, but the pool has gone on without it, and opens it anew.
        machine.start();
        runtime.sleep(20 * SECOND).await;
        assert!(device.flush().await.is_err());
        let anew = machine.open(Sharing::Writes).await.unwrap();
        assert_eq!(anew.read_at(0, 4096).await.unwrap(), bytes(0, 4096), "nothing is written late");
    });
}

#[test]
fn a_target_that_falls_silent_is_left_for_a_new_connection() {
    with(|runtime, machine, device| async move {
        device.write_at(0, bytes(1, 4096)).await.unwrap();
        machine.fall_silent();
        assert_eq!(device.read_at(0, 4096).await.unwrap(), bytes(1, 4096));
        let took_s = runtime.now().as_ns() / 1_000_000_000;
        assert!((4..7).contains(&took_s), "{took_s}");
        // Without requests, the looks at the reservation notice it.
        machine.fall_silent();
        runtime.sleep(10 * SECOND).await;
        assert_eq!(machine.connections(), 3);
        assert_eq!(device.read_at(0, 4096).await.unwrap(), bytes(1, 4096));
    });
}

/// The reasons told so far.
fn ear(device: &dyn Device) -> Arc<Mutex<Vec<String>>> {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let note = told.clone();
    device.on_fenced(Box::new(move |why| note.lock().push(why.into())));
    told
}

#[test]
fn another_machine_is_refused_unless_it_fences_and_then_nothing_late_is_written() {
    with(|runtime, machine, device| async move {
        device.write_at(0, bytes(1, 4096)).await.unwrap();
        let told = ear(&*device);
        let Err(error) = machine.open_as(owner(2), Sharing::Writes).await else { panic!("it is open") };
        assert!(matches!(&error, ServerError::Locked { holder } if holder.contains("hostid 1?")), "{error}");
        // A look needs no reservation.
        let look = machine.open_as(owner(2), Sharing::Reads).await.unwrap();
        assert_eq!(look.info().nature.storage_lock, StorageLock::Offered);
        assert_eq!(look.read_at(0, 4096).await.unwrap(), bytes(1, 4096));
        assert!(matches!(look.write_at(0, bytes(2, 512)).await, Err(DeviceError::ReadOnly { .. })));
        assert!(look.for_writing().is_none());
        device.write_at(0, bytes(3, 4096)).await.unwrap();
        assert!(told.lock().is_empty());

        let second = machine.open_as(owner(2), Sharing::TakesOver).await.unwrap();
        assert!(is_fenced(&device.write_at(0, bytes(4, 4096)).await));
        assert!(is_fenced(&device.read_at(0, 4096).await) && is_fenced(&device.flush().await));
        assert_eq!(told.lock().len(), 1);
        assert_eq!(ear(&*device).lock().len(), 1, "a later ear");
        assert_eq!(second.read_at(0, 4096).await.unwrap(), bytes(3, 4096));
        second.write_at(0, bytes(5, 4096)).await.unwrap();
        let Err(error) = machine.open(Sharing::Writes).await else { panic!("it is open") };
        assert!(matches!(error, ServerError::Locked { .. }), "{error}");
        runtime.sleep(2 * SECOND).await;
        assert_eq!(machine.live(0), 5);
    });
}

#[test]
fn an_idle_pool_and_one_that_was_cut_off_learn_that_they_are_fenced() {
    with(|runtime, machine, device| async move {
        let told = ear(&*device);
        let second = machine.open_as(owner(2), Sharing::TakesOver).await.unwrap();
        runtime.sleep(2 * SECOND).await;
        assert_eq!(told.lock().len(), 1, "the second look at the latest");
        let told = ear(&second);
        machine.stop(false);
        let late = second.write_at(0, bytes(9, 4096));
        machine.start();
        let third = machine.open_as(owner(3), Sharing::TakesOver).await.unwrap();
        assert!(is_fenced(&late.await));
        assert_eq!((told.lock().len(), machine.live(0)), (1, 0));
        third.write_at(0, bytes(7, 4096)).await.unwrap();
        runtime.sleep(10 * SECOND).await;
        assert_eq!(machine.live(0), 7);
    });
}

#[test]
fn a_closed_device_gives_its_reservation_back_and_says_goodbye() {
    with(|runtime, machine, device| async move {
        assert!(machine.kept().is_some_and(|text| text.contains("iqn.2026-11.org.example:host")));
        drop(device.write_at(0, bytes(7, 4096)));
        drop(device);
        runtime.sleep(SECOND).await;
        assert_eq!((machine.live(0), machine.kept(), machine.goodbyes()), (7, None, 1));
        machine.open_as(owner(2), Sharing::Writes).await.unwrap();
    });
}

#[test]
fn the_reservation_of_an_ended_process_of_this_machine_is_taken() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let machine = Machine::new(&runtime);
        // Nobody has process number 0.
        let first = machine.open_as(Owner::with(7, 1), Sharing::Writes).await.unwrap();
        let second = machine.open_as(Owner::with(7, 2), Sharing::Writes).await.unwrap();
        assert!(is_fenced(&first.write_at(0, bytes(1, 512)).await));
        second.write_at(0, bytes(2, 512)).await.unwrap();
        // A living one keeps it.
        let this = Owner::this();
        let third = machine.open_as(this, Sharing::TakesOver).await.unwrap();
        let Err(error) = machine.open_as(this.next(), Sharing::Writes).await else { panic!("it is open") };
        let error = error.to_string();
        assert!(error.contains(&format!("process {} of this machine", std::process::id())), "{error}");
        third.write_at(0, bytes(3, 512)).await.unwrap();
    });
}

#[test]
fn a_larger_disk_is_noticed_while_connected() {
    with(|runtime, machine, device| async move {
        assert!(device.grown().await.unwrap().is_none());
        machine.grow();
        runtime.sleep(3 * SECOND).await;
        assert_eq!(device.size_now().await.unwrap(), SIZE_BYTES as u64);
        let grown = device.grown().await.unwrap().unwrap();
        drop(device);
        grown.write_at(SIZE_BYTES as u64 - 512, bytes(1, 512)).await.unwrap();
        assert_eq!((machine.live(SIZE_BYTES - 1), machine.connections()), (1, 1));
    });
}

#[test]
fn secrets_are_proved_on_both_sides() {
    let account =
        |user: &str, secret: &str| Account { user: user.into(), secret: secret.into(), names: vec![] };
    let chap = |secret: &str, target_secret: Option<&str>| Chap {
        name: None,
        user: "host".into(),
        secret: secret.into(),
        target_user: target_secret.map(|_| "storage".into()),
        target_secret: target_secret.map(Into::into),
    };
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let accounts = Accounts {
            initiators: vec![account("host", "twelve chars")],
            target: Some(account("storage", "other chars!")),
        };
        let machine = Machine::with(&runtime, accounts);
        let enter = async |chap| machine.log_in(owner(1), chap, Sharing::Reads).await.map(drop);
        enter(Some(chap("twelve chars", None))).await.unwrap();
        enter(Some(chap("twelve chars", Some("other chars!")))).await.unwrap();
        for (chap, wanted) in [
            (None, "another name or secret"),
            (Some(chap("wrong secret", None)), "another name or secret"),
            (Some(chap("twelve chars", Some("wrong secret"))), "impostor"),
        ] {
            let error = enter(chap).await.unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains("chars"), "{error}");
        }
        // A target that wants no secrets is fine, unless it must prove itself.
        let open = Machine::new(&runtime);
        open.log_in(owner(1), Some(chap("twelve chars", None)), Sharing::Reads).await.unwrap();
        let mutual = Some(chap("twelve chars", Some("other chars!")));
        let Err(error) = open.log_in(owner(1), mutual, Sharing::Reads).await else { panic!("it is open") };
        assert!(matches!(error, ServerError::Authentication), "{error}");
    });
}

#[test]
fn wrong_targets_and_units_are_refused_with_a_reason() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let machine = Machine::new(&runtime);
        let login = |target: &str, lun: u8| Login {
            target: target.into(),
            lun,
            initiator: "iqn.2026-11.org.example:host".into(),
            chap: None,
            owner: owner(1),
        };
        for (login, wanted) in [
            (login("iqn.other", LUN), "there is no such target"),
            (login(TARGET, 9), "no disk with this number"),
        ] {
            let Err(error) = machine.open_with(login, Sharing::Reads).await else { panic!("it is open") };
            assert!(error.to_string().contains(wanted), "{error}");
        }
        machine.make_read_only();
        let Err(error) = machine.open(Sharing::Writes).await else { panic!("it is open") };
        assert!(matches!(error, ServerError::ReadOnly), "{error}");
        machine.open(Sharing::Reads).await.unwrap();
        machine.stop(false);
        let Err(error) = machine.open(Sharing::Reads).await else { panic!("it is open") };
        assert!(matches!(error, ServerError::Connect(_)), "{error}");
    });
}

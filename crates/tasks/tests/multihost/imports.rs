//! Imports of a pool that another machine may have.

use std::time::Duration;

use cenote_format::uberblock::{MmpConfig, Uberblock};
use cenote_format::units::Txg;
use cenote_pool::multihost::{MultihostSettings, must_watch, watch_time};
use cenote_pool::{PoolState, VdevKind};
use cenote_runtime::{Runtime, SimConfig};
use cenote_tasks::{PoolSetting, set_pool};

use crate::machine::{Disks, Machine};

async fn shared(rt: &Runtime, kind: VdevKind, parity: usize, count: usize) -> Disks {
    let disks = Disks::new(rt, count);
    disks.create(kind, parity, 1).await;
    disks
}

fn simulate<F: Future>(seed: u64, main: impl FnOnce(Runtime) -> F) -> F::Output {
    Runtime::simulate(SimConfig::seed(seed), main).0
}

#[test]
fn the_time_to_watch_is_that_of_openzfs() {
    let settings = MultihostSettings::default();
    let secs = Duration::from_secs;
    let off = Uberblock::before_first(5000, Txg(4), 0);
    let on = |interval_ms, fail_intervals, delay_ns| {
        off.with_mmp(Some((delay_ns, MmpConfig { interval_ms, seq: 0, fail_intervals })))
    };
    // Never multihost, as far as known: 20 intervals of this machine.
    assert_eq!(watch_time(&off, &settings), secs(20));
    // Its writer suspends: twice its time, whatever this machine's settings are.
    assert_eq!(watch_time(&on(1000, 10, 1), &settings), secs(20));
    assert_eq!(watch_time(&on(200, 10, 1), &settings), secs(4));
    assert_eq!(watch_time(&on(5000, 20, 1), &settings), secs(200));
    // It never suspends: 20 intervals, each with the delay observed.
    assert_eq!(watch_time(&on(1000, 0, 10_000_000_000), &settings), secs(220));
    assert_eq!(watch_time(&on(100, 0, 1), &settings), secs(20));
    // 0.7 recorded its delay alone.
    let old = Uberblock { mmp_config: 0, ..on(1, 1, 10_000_000_000) };
    assert_eq!(watch_time(&old, &settings), secs(220));
    settings.set("zfs_multihost_import_intervals", 0).unwrap();
    assert_eq!(watch_time(&off, &settings), secs(1));
    assert!(settings.set("zfs_multihost_interval", 99).is_err());
    settings.set("zfs_multihost_fail_intervals", 1).unwrap();
    assert_eq!(settings.fail_intervals(), 2);
}

#[test]
fn a_pool_in_use_is_refused_soon_and_one_that_was_left_is_watched_and_claimed() {
    simulate(1, |rt| async move {
        let disks = shared(&rt, VdevKind::Mirror, 0, 2).await;
        let first = Machine::new(1, &disks);
        let engine = first.take().await.unwrap();
        let began = rt.now();
        let refused = Machine::new(2, &disks).take().await.err().unwrap();
        assert!(refused.contains("is imported on host 'machine1' (hostid=1)"), "{refused}");
        assert!(rt.now() - began < Duration::from_secs(1), "the watch ends with the first change");
        set_pool(&engine, PoolSetting::Text("org:note".into(), "here".into())).await.unwrap();

        // A crash: the next one waits for two times 500 ms, up to a quarter more, and ten claims of 100 ms.
        drop(engine);
        rt.sleep(Duration::from_secs(1)).await;
        let began = rt.now();
        let second = Machine::new(2, &disks).take().await.unwrap();
        let took = (rt.now() - began).as_millis();
        assert!((2000..=2600).contains(&took), "{took} ms");

        // Exported: only its last user need not wait.
        second.close(PoolState::Exported).await.unwrap();
        drop(second);
        let found = first.discover().await;
        assert!(!must_watch(&found, 2) && must_watch(&found, 1) && must_watch(&found, 0));
        let began = rt.now();
        let again = Machine::new(2, &disks).take().await.unwrap();
        assert!(rt.now() - began < Duration::from_secs(1));
        drop(again);
        let found = first.discover().await;
        assert!(must_watch(&found, 2), "it was not exported");
    });
}

#[test]
fn a_machine_without_a_hostid_does_not_get_the_pool() {
    simulate(2, |rt| async move {
        let disks = shared(&rt, VdevKind::Mirror, 0, 2).await;
        let refused = Machine::new(0, &disks).take().await.err().unwrap();
        assert!(refused.contains("hostid is not set") && refused.contains("zgenhostid"), "{refused}");
    });
}

#[test]
fn a_claim_needs_all_legs_that_the_configuration_expects() {
    simulate(3, |rt| async move {
        let disks = shared(&rt, VdevKind::Mirror, 0, 2).await;
        let half = Machine::new(2, &disks);
        half.blind.lock().insert(1);
        let refused = half.take().await.err().unwrap();
        assert!(refused.contains("can't be written to disk1, which the configuration expects"), "{refused}");
        // The machine that exported it needs no claim.
        let own = Machine::new(1, &disks);
        own.blind.lock().insert(1);
        let engine = own.take().await.unwrap();
        engine.close(PoolState::Exported).await.unwrap();
        drop(engine);
        own.blind.lock().clear();
        let engine = own.take().await.unwrap();
        let leaf = {
            let config = engine.pool().tree().config();
            let leaf = config.vdevs[0].leaves().find(|leaf| leaf.path.as_deref() == Some("disk1"));
            leaf.unwrap().guid
        };
        cenote_tasks::take_out(&engine, leaf, cenote_tasks::Away::Offline).await.unwrap();
        engine.close(PoolState::Exported).await.unwrap();
        drop(engine);
        // Every machine knows that it is offline.
        half.take().await.unwrap();

        let raidz = shared(&rt, VdevKind::Raidz, 1, 3).await;
        let machine = Machine::new(2, &raidz);
        machine.blind.lock().insert(2);
        machine.take().await.unwrap();
    });
}

#[test]
fn a_change_by_another_machine_is_found_out_at_the_first_change() {
    simulate(4, |rt| async move {
        let disks = shared(&rt, VdevKind::Mirror, 0, 2).await;
        // A command that waits for its user, say. Nobody can see that.
        let waiting = Machine::new(1, &disks).import().await.unwrap();
        let other = Machine::new(2, &disks).take().await.unwrap();
        let late = set_pool(&waiting, PoolSetting::Text("org:note".into(), "late".into())).await;
        assert!(late.is_err());
        set_pool(&other, PoolSetting::Text("org:note".into(), "kept".into())).await.unwrap();
        disks.oracle.assert_one_at_a_time("a command that waited");
        // Of two that wait, the first that changes has it.
        other.close(PoolState::Exported).await.unwrap();
        drop((waiting, other));
        let (one, two) = (Machine::new(2, &disks), Machine::new(2, &disks));
        let (one, two) = (one.import().await.unwrap(), two.import().await.unwrap());
        set_pool(&two, PoolSetting::Text("org:note".into(), "two".into())).await.unwrap();
        assert!(set_pool(&one, PoolSetting::Text("org:note".into(), "one".into())).await.is_err());
        disks.oracle.assert_one_at_a_time("two commands of a machine");
    });
}

#[test]
fn of_simultaneous_imports_at_most_one_succeeds() {
    let mut succeeded = 0;
    for seed in 0..12 {
        let owners = simulate(seed, |rt| async move {
            let disks = shared(&rt, VdevKind::Mirror, 0, 2).await;
            drop(Machine::new(1, &disks).take().await.unwrap());
            rt.sleep(Duration::from_secs(1)).await;
            let imports = (2..5).map(|id| {
                let (machine, rt) = (Machine::new(id, &disks), rt.clone());
                async move {
                    rt.sleep(Duration::from_millis(rt.random_u64() % 300)).await;
                    let engine = machine.take().await;
                    rt.sleep(Duration::from_secs(3)).await;
                    engine
                }
            });
            let took = futures::future::join_all(imports).await;
            disks.oracle.assert_one_at_a_time(&format!("seed {seed}"));
            took.iter().filter(|took| took.is_ok()).count()
        });
        assert!(owners <= 1, "seed {seed}: {owners} machines have the pool");
        succeeded += owners;
    }
    assert!(succeeded > 0, "no machine ever succeeded");
}

//! Heartbeats of one machine.

use std::time::Duration;

use cenote_device::Device;
use cenote_format::label::{UBERBLOCK_RING_OFFSET, VDEV_LABELS, VDEV_UBERBLOCK_RING, label_offset};
use cenote_format::uberblock::Uberblock;
use cenote_pool::label::read_labels;
use cenote_pool::{PoolState, Standstill, VdevKind};
use cenote_runtime::{Runtime, SimConfig};
use cenote_tasks::{PoolSetting, set_pool};

use crate::machine::{Disks, Machine};

fn simulate<F: Future>(seed: u64, main: impl FnOnce(Runtime) -> F) -> F::Output {
    Runtime::simulate(SimConfig::seed(seed), main).0
}

async fn uberblocks(disks: &Disks, disk: usize) -> Vec<Uberblock> {
    read_labels(&*disks.memory[disk]).await.into_iter().flat_map(|label| label.uberblocks).collect()
}

async fn newest(disks: &Disks) -> Uberblock {
    let mut all = Vec::new();
    for disk in 0..disks.memory.len() {
        all.extend(uberblocks(disks, disk).await);
    }
    all.into_iter().max_by_key(Uberblock::rank).unwrap()
}

/// Everything but the slots for heartbeats, which are 4 KiB here or less.
fn without_last_slots(disks: &Disks) -> Vec<Vec<u8>> {
    let images = disks.memory.iter().map(|memory| {
        let mut image = memory.live_image();
        for label in 0..VDEV_LABELS {
            let label = label_offset(memory.size_bytes(), label).unwrap();
            let end = (label + UBERBLOCK_RING_OFFSET + VDEV_UBERBLOCK_RING) as usize;
            image[end - 1024..end].fill(0);
        }
        image
    });
    images.collect()
}

fn switch(on: u64) -> PoolSetting {
    PoolSetting::Number("multihost".into(), on)
}

#[test]
fn heartbeats_go_to_the_last_slots_of_all_leaves_and_say_how_long_to_watch() {
    simulate(1, |rt| async move {
        let disks = Disks::new(&rt, 3);
        disks.create(VdevKind::Mirror, 0, 1).await;
        let engine = Machine::new(1, &disks).take().await.unwrap();
        let (synced, before) = (*engine.pool().uberblock(), without_last_slots(&disks));
        assert_eq!(synced.mmp_seq(), Some(0), "the uberblock of a txg");
        rt.sleep(Duration::from_secs(5)).await;
        assert_eq!(engine.pool().uberblock(), &synced, "no txg was written meanwhile");
        assert!(without_last_slots(&disks) == before, "a heartbeat went elsewhere");
        let now_s = rt.unix_time_ns() / 1_000_000_000;
        for disk in 0..3 {
            let all = uberblocks(&disks, disk).await;
            let beat = all.into_iter().max_by_key(Uberblock::rank).unwrap();
            assert_eq!((beat.txg, beat.rootbp), (synced.txg, synced.rootbp));
            assert!(now_s - beat.timestamp_s <= 1 && beat.mmp_seq() > Some(0), "{beat:?}");
            assert_eq!((beat.mmp_interval_ms(), beat.mmp_fail_intervals()), (Some(100), Some(5)));
            // At least the interval of a leaf's turn. The first txg took longer, and is forgotten slowly.
            assert!((33_000_000..=400_000_000).contains(&beat.mmp_delay_ns), "{}", beat.mmp_delay_ns);
        }
        let counts = engine.multihost().counts();
        assert!((140..=160).contains(&counts.written), "{counts:?}");
        assert_eq!((counts.failed, counts.skipped), (0, 0));
        let history = engine.multihost().history();
        assert!(history.len() == 100 && history.iter().rev().skip(3).all(|beat| beat.duration_ns.is_some()));
        engine.close(PoolState::Exported).await.unwrap();
        let last = newest(&disks).await;
        rt.sleep(Duration::from_secs(5)).await;
        assert_eq!(newest(&disks).await, last, "heartbeats end with the pool's use");
        assert!(last.mmp_is_on(), "an importer must watch");
    });
}

#[test]
fn the_property_begins_and_ends_heartbeats_with_its_txg() {
    simulate(2, |rt| async move {
        let disks = Disks::new(&rt, 2);
        disks.create(VdevKind::Mirror, 0, 0).await;
        let machine = Machine::new(1, &disks);
        let engine = machine.take().await.unwrap();
        rt.sleep(Duration::from_secs(3)).await;
        assert!(!newest(&disks).await.mmp_is_on() && engine.multihost().counts().written == 0);
        set_pool(&engine, switch(1)).await.unwrap();
        assert!(engine.pool().uberblock().mmp_is_on() && engine.multihost().is_on());
        rt.sleep(Duration::from_secs(3)).await;
        let written = engine.multihost().counts().written;
        assert!(written > 50 && newest(&disks).await.mmp_seq() > Some(0));
        set_pool(&engine, switch(0)).await.unwrap();
        rt.sleep(Duration::from_secs(3)).await;
        let off = newest(&disks).await;
        assert!(!off.mmp_is_on() && off.mmp_config == 0 && engine.multihost().delay().is_zero());
        assert!(engine.multihost().counts().written <= written + 3);
        // Without heartbeats nothing is watched, and nothing is suspended.
        machine.stop_for(Duration::from_secs(60));
        rt.sleep(Duration::from_secs(60)).await;
        engine.close(PoolState::Exported).await.unwrap();
        let began = rt.now();
        Machine::new(2, &disks).take().await.unwrap();
        assert!(rt.now() - began < Duration::from_secs(1));
    });
}

#[test]
fn a_pool_whose_heartbeats_do_not_land_is_suspended_in_time_and_for_good() {
    simulate(3, |rt| async move {
        let disks = Disks::new(&rt, 2);
        disks.create(VdevKind::Mirror, 0, 1).await;
        let machine = Machine::new(1, &disks);
        let engine = machine.take().await.unwrap();
        rt.sleep(Duration::from_secs(1)).await;
        // Shorter stops do no harm.
        machine.stop_for(Duration::from_millis(350));
        rt.sleep(Duration::from_secs(1)).await;
        set_pool(&engine, PoolSetting::Text("org:note".into(), "kept".into())).await.unwrap();
        let synced = newest(&disks).await.txg;

        machine.stop_for(Duration::from_secs(20));
        let began = rt.now();
        let changed = set_pool(&engine, PoolSetting::Text("org:note".into(), "lost".into())).await;
        let took = rt.now() - began;
        assert!(took < Duration::from_millis(650), "{took:?}: an importer may begin after 1 s");
        let error = changed.unwrap_err().to_string();
        assert!(error.contains("multihost heartbeats have not succeeded"), "{error}");
        let pool = engine.pool();
        assert_eq!(pool.status().standstill, Some(Standstill::Multihost));
        assert!(pool.suspension().suspended().is_some());
        rt.sleep(Duration::from_secs(30)).await;
        let written = engine.multihost().counts().written;
        pool.suspension().resume();
        rt.sleep(Duration::from_secs(10)).await;
        assert_eq!(engine.multihost().counts().written, written, "heartbeats have ended");
        assert!(engine.close(PoolState::Exported).await.is_err());
        assert_eq!(newest(&disks).await.txg, synced, "what was about to be written came too late");
        // Nobody blames the disks.
        let mut errors = 0;
        pool.status().root.walk(&mut |vdev| errors += vdev.errors.write);
        assert_eq!(errors, 0);
    });
}

#[test]
fn heartbeats_that_may_fail_suspend_nothing() {
    simulate(4, |rt| async move {
        let disks = Disks::new(&rt, 2);
        disks.create(VdevKind::Mirror, 0, 1).await;
        let machine = Machine::new(1, &disks);
        let engine = machine.take().await.unwrap();
        engine.multihost().settings().set("zfs_multihost_fail_intervals", 0).unwrap();
        engine.multihost().retune();
        rt.sleep(Duration::from_secs(2)).await;
        machine.stop_for(Duration::from_secs(20));
        set_pool(&engine, PoolSetting::Text("org:note".into(), "late".into())).await.unwrap();
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(engine.pool().status().standstill, None);
        let beat = newest(&disks).await;
        assert_eq!(beat.mmp_fail_intervals(), Some(0));
        // A sudden delay counts at once, and is forgotten slowly.
        assert!(beat.mmp_delay_ns > 10_000_000_000, "{}", beat.mmp_delay_ns);
    });
}

#[test]
fn a_look_changes_nothing_and_a_claim_is_taken_back() {
    simulate(5, |rt| async move {
        let disks = Disks::new(&rt, 2);
        disks.create(VdevKind::Mirror, 0, 1).await;
        for host in [1, 2] {
            let images = || disks.memory.iter().map(|memory| memory.live_image()).collect::<Vec<_>>();
            let first = newest(&disks).await;
            let before = without_last_slots(&disks);
            let all = images();
            let engine = Machine::new(host, &disks).import().await.unwrap();
            engine.close(PoolState::Exported).await.unwrap();
            drop(engine);
            assert!(without_last_slots(&disks) == before, "machine {host}");
            assert_eq!(newest(&disks).await, first, "machine {host}");
            // The machine that exported it needs no claim.
            assert!(host == 2 || images() == all, "a look by its last user wrote");
        }
    });
}

//! A daemon that opens a pool while one of its disks fails.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::sync::Arc;

use cenote_control::{Outcome, zfs};
use cenote_device::{Fault, Op};
use cenote_runtime::{Runtime, SimConfig};
use cenote_world::layout::new_pool;
use cenote_world::machine::daemon::Daemon;
use cenote_world::machine::kernel::Kernel;
use cenote_world::machine::{Machine, POOL};

const DISK_BYTES: u64 = 64 << 20;

async fn create(daemon: &Daemon, layout: &str) {
    let create = new_pool(layout, false, Vec::new()).unwrap();
    assert_eq!(daemon.run(create).await.0.unwrap().outcome, Outcome::Done);
}

async fn snapshot(daemon: &Daemon, name: &str) {
    let snapshots = vec![format!("{POOL}@{name}")];
    let snapshot = zfs::points::snapshot::Snapshot { snapshots, recursive: false, settings: Vec::new() };
    assert_eq!(daemon.run(snapshot).await.0.unwrap().outcome, Outcome::Done);
}

/// Creates a pool, kills the daemon, and starts it again while disk 1 fails at `op`. Then the pool takes
/// changes, and the disk is known to have failed.
fn opens_while_a_disk_fails(layout: &str, op: Op) {
    let machine = Machine::new(DISK_BYTES, &[512; 4]).unwrap();
    let life = |is_first: bool| {
        let machine = &machine;
        move |runtime: Runtime| async move {
            let bay = machine.power_on(&runtime);
            if !is_first {
                bay.device(1).unwrap().add(Fault::error(op));
            }
            let kernel = Kernel::new(&runtime, false);
            let daemon = Arc::new(Daemon::start(&runtime, machine, 0, kernel, &[]).await.unwrap());
            if is_first {
                create(&daemon, layout).await;
            }
            snapshot(&daemon, if is_first { "first" } else { "second" }).await;
            let pool = daemon.pools.get(POOL).unwrap().engine.pool();
            if !is_first {
                let config = pool.tree().config();
                let leaves = config.vdevs.iter().flat_map(|top| top.leaves());
                let bad = leaves.filter(|leaf| leaf.path.as_ref().unwrap().ends_with("disk01"));
                let bad: Vec<_> = bad.map(|leaf| leaf.guid).collect();
                assert!(pool.lacking().lagging().contains(&bad[0]), "it lacks the txgs that it did not take");
            }
            machine.kill();
        }
    };
    Runtime::simulate(SimConfig::seed(1), life(true));
    Runtime::simulate(SimConfig::seed(2), life(false));
}

#[test]
fn a_redundant_pool_opens_while_a_disk_fails_to_write() {
    for layout in ["mirror 0 1", "raidz1 0 1 2", "raidz2 0 1 2 3"] {
        opens_while_a_disk_fails(layout, Op::Write);
    }
}

#[test]
fn a_redundant_pool_opens_while_a_disk_fails_to_flush() {
    opens_while_a_disk_fails("mirror 0 1", Op::Flush);
}

//! Golden pools: found, assembled, and their root read, whole and with every survivable set of disks missing.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod labels;
mod verify;
mod walk;
mod written;

use cenote_format::units::Guid;
use cenote_pool::{FoundPool, Pool, ReadContext, Trouble, VdevKind, VdevState, Zbookmark, discover};
use cenote_runtime::Runtime;
use cenote_testkit::{golden, golden_names, needs};
use std::path::PathBuf;
use walk::find;

/// Reads the MOS's object set at every uberblock; returns the number of uberblocks.
async fn read_roots(rt: &Runtime, found: &FoundPool) -> usize {
    let newest = &found.uberblocks[0];
    for uberblock in found.uberblocks.iter().filter(|u| u.txg == newest.txg) {
        let pool = Pool::assemble(rt, found, uberblock).await.unwrap();
        let ctx = ReadContext::new(Zbookmark::default());
        let root = pool.read(&uberblock.rootbp, &ctx).await.unwrap();
        assert_eq!(root.len() as u64, uberblock.rootbp.lsize().0);
        // The dnode of the MOS's own dnodes: DMU_OT_DNODE, with at least one pointer.
        assert_eq!(root[0], 10, "{}", found.name());
    }
    found.uberblocks.len()
}

#[test]
fn the_root_of_every_golden_pool_reads() {
    let rt = Runtime::real(None);
    rt.block_on(async {
        for name in golden_names() {
            let found = find(&rt, &name).await;
            let uberblocks = read_roots(&rt, &found).await;
            assert!(uberblocks > 0, "{name}");
        }
    });
}

/// Every subset of a redundant top-level vdev's children up to its tolerance.
fn survivable_losses(found: &FoundPool) -> Vec<Vec<Guid>> {
    let mut losses = Vec::new();
    for top in &found.config.vdevs {
        let tolerance = match top.kind {
            VdevKind::Mirror => top.children.len() - 1,
            VdevKind::Raidz => top.parity,
            _ => 0,
        };
        let leaves: Vec<Guid> = top.children.iter().map(|c| c.guid).collect();
        for mask in 1u32..1 << leaves.len() {
            if mask.count_ones() as usize <= tolerance {
                let lost = leaves.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1);
                losses.push(lost.map(|(_, guid)| *guid).collect());
            }
        }
    }
    losses
}

#[needs("mirror", "raidz1", "raidz2", "raidz3", "special", "legacy-fuse23")]
#[test]
fn the_root_reads_with_every_survivable_set_of_disks_missing() {
    let rt = Runtime::real(None);
    rt.block_on(async {
        for name in ["mirror", "raidz1", "raidz2", "raidz3", "special", "legacy-fuse23"] {
            let found = find(&rt, name).await;
            let losses = survivable_losses(&found);
            assert!(!losses.is_empty(), "{name}");
            for lost in losses {
                let mut found = found.clone();
                found.devices.retain(|guid, _| !lost.contains(guid));
                read_roots(&rt, &found).await;
            }
        }
    });
}

#[test]
fn a_file_that_is_no_vdev_is_a_problem_and_nothing_more() {
    let rt = Runtime::real(None);
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let discovery = rt.block_on(discover(&rt, &[file.clone(), "/no/such/file".into()]));
    assert!(discovery.pools.is_empty());
    assert_eq!(discovery.problems.len(), 2, "{:?}", discovery.problems);
}

#[needs("raidz1", "raidz2")]
#[test]
fn health_follows_the_devices_that_are_there() {
    let rt = Runtime::real(None);
    rt.block_on(async {
        let whole = find(&rt, "raidz2").await;
        let health = whole.status();
        assert_eq!((health.state(), health.is_importable()), (VdevState::Online, true));
        assert_eq!(health.root.children[0].name, "raidz2-0");

        let leaves: Vec<Guid> = whole.config.vdevs[0].children.iter().map(|c| c.guid).collect();
        let expected = [VdevState::Degraded, VdevState::Degraded, VdevState::Unavailable];
        let mut found = whole.clone();
        for (leaf, state) in leaves.iter().zip(expected) {
            found.devices.remove(leaf);
            let health = found.status();
            assert_eq!(health.state(), state);
            assert_eq!(health.is_importable(), state == VdevState::Degraded);
        }
        let missing = &found.status().root.children[0].children[0];
        assert_eq!(missing.guid, leaves[0]);
        assert!(matches!(&missing.trouble, Some(Trouble::CannotOpen { was: Some(_) })), "{missing:?}");

        // Three of the six images suffice to identify the pool, and no image of another pool is mixed in.
        let other = find(&rt, "raidz1").await;
        let folders = ["raidz2", "raidz1"].map(|name| golden(name).images());
        let names: Vec<String> =
            discover(&rt, &folders).await.pools.iter().map(|pool| pool.name().to_owned()).collect();
        assert_eq!(names, [other.name(), whole.name()]);
    });
}

//! Verification of golden pools: an intact pool has no findings, and each broken copy is named.

use crate::walk::{all_blocks, find};
use cenote_device::MemoryDevice;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::Guid;
use cenote_pool::{
    Fault, FoundPool, Pool, PoolError, ReadContext, VdevConfig, VdevKind, VerifyItem, Zbookmark,
};
use cenote_runtime::Runtime;
use cenote_testkit::needs;
use std::sync::Arc;

fn items(blocks: &[Blkptr]) -> Vec<VerifyItem> {
    blocks.iter().map(|&bp| VerifyItem { bp, place: Zbookmark::default() }).collect()
}

#[test]
fn whole_pools_verify_without_findings() {
    assert_no_findings(&["single", "snaps", "tree", "zvols"]);
}

#[needs("mirror", "raidz1", "raidz2", "raidz3", "special")]
#[test]
fn whole_pools_with_redundancy_verify_without_findings() {
    assert_no_findings(&["mirror", "raidz1", "raidz2", "raidz3", "special"]);
}

#[needs("legacy-fuse10", "legacy-fuse23", "legacy-v28")]
#[test]
fn whole_old_pools_verify_without_findings() {
    assert_no_findings(&["legacy-fuse10", "legacy-fuse23", "legacy-v28"]);
}

/// Verifies intact pools, whose blocks must need neither a key nor the checksum salt.
fn assert_no_findings(pools: &[&str]) {
    let rt = Runtime::real(None);
    rt.block_on(async {
        for name in pools {
            let found = find(&rt, name).await;
            let pool = Pool::assemble(&rt, &found, &found.uberblocks[0]).await.unwrap();
            let blocks = all_blocks(&pool).await;
            assert!(blocks.len() > 100, "{name}: {}", blocks.len());
            let findings = pool.verify_many(items(&blocks)).await;
            assert!(findings.is_empty(), "{name}: {} findings, {:?}", findings.len(), findings.first());
            assert!(
                pool.counters().errors().iter().all(|(_, errors)| *errors == Default::default()),
                "{name}"
            );
        }
    });
}

/// The pool with the data area (not the labels) of these leaves inverted.
fn damage(found: &FoundPool, leaves: &[Guid]) -> FoundPool {
    let mut found = found.clone();
    for guid in leaves {
        let device = found.devices.get_mut(guid).unwrap();
        let mut image = std::fs::read(&device.path).unwrap();
        let data = (4 << 20)..image.len() - (512 << 10);
        image[data].iter_mut().for_each(|byte| *byte = !*byte);
        device.device = Arc::new(MemoryDevice::with_content(&device.path, image));
    }
    found
}

/// Leaves of the first redundant top-level vdev, and the number that may be lost.
fn redundancy(found: &FoundPool) -> (Vec<Guid>, usize) {
    let redundant = |top: &&VdevConfig| matches!(top.kind, VdevKind::Mirror | VdevKind::Raidz);
    let top = found.config.vdevs.iter().find(redundant).unwrap();
    let tolerance = if top.kind == VdevKind::Mirror { top.children.len() - 1 } else { top.parity };
    (top.children.iter().map(|child| child.guid).collect(), tolerance)
}

fn subsets(leaves: &[Guid], at_most: usize) -> Vec<Vec<Guid>> {
    let masks = (1u32..1 << leaves.len()).filter(|mask| mask.count_ones() as usize <= at_most);
    let chosen = |mask: u32| leaves.iter().enumerate().filter(move |(i, _)| mask >> i & 1 == 1);
    masks.map(|mask| chosen(mask).map(|(_, guid)| *guid).collect()).collect()
}

#[needs("mirror", "raidz1", "raidz2", "raidz3", "special", "legacy-fuse23")]
#[test]
fn every_block_reads_with_every_survivable_set_of_disks_missing() {
    let rt = Runtime::real(None);
    rt.block_on(async {
        for name in ["mirror", "raidz1", "raidz2", "raidz3", "special", "legacy-fuse23"] {
            let found = find(&rt, name).await;
            let (leaves, tolerance) = redundancy(&found);
            for lost in subsets(&leaves, tolerance) {
                let mut found = found.clone();
                found.devices.retain(|guid, _| !lost.contains(guid));
                let pool = Pool::assemble(&rt, &found, &found.uberblocks[0]).await.unwrap();
                let blocks = all_blocks(&pool).await;
                let requests = blocks.iter().map(|bp| (*bp, ReadContext::default())).collect();
                for result in pool.read_many(requests).await {
                    result.unwrap_or_else(|error| panic!("{name} without {lost:?}: {error}"));
                }
            }
        }
    });
}

#[needs("raidz1", "raidz2", "raidz3", "legacy-fuse23", "special")]
#[test]
fn silent_damage_is_outlived_and_blamed_on_who_did_it() {
    let rt = Runtime::real(None);
    rt.block_on(async {
        for name in ["raidz1", "raidz2", "raidz3", "legacy-fuse23", "special"] {
            let found = find(&rt, name).await;
            let (leaves, tolerance) = redundancy(&found);
            // The most damage that can be tolerated, spread so that parity and data columns are both hit.
            let liars: Vec<Guid> = leaves.iter().step_by(2).take(tolerance).copied().collect();
            let damaged = damage(&found, &liars);
            let pool = Pool::assemble(&rt, &damaged, &found.uberblocks[0]).await.unwrap();
            let blocks = all_blocks(&pool).await;
            let findings = pool.verify_many(items(&blocks)).await;
            assert!(findings.len() > blocks.len() / 8, "{name}: {} of {}", findings.len(), blocks.len());
            for finding in &findings {
                assert!(matches!(finding.fault, Fault::Checksum | Fault::Parity), "{name}: {finding:?}");
                assert!(finding.leaf.is_some_and(|leaf| liars.contains(&leaf)), "{name}: {finding:?}");
            }
            for (guid, errors) in pool.counters().errors() {
                assert_eq!(errors.checksum > 0, liars.contains(&guid), "{name}: {guid} {errors:?}");
            }
        }
    });
}

#[needs("raidz1")]
#[test]
fn more_damage_than_redundancy_is_said_to_be_lost() {
    let rt = Runtime::real(None);
    rt.block_on(async {
        let found = find(&rt, "raidz1").await;
        let whole = Pool::assemble(&rt, &found, &found.uberblocks[0]).await.unwrap();
        let blocks = all_blocks(&whole).await;
        let (leaves, _) = redundancy(&found);
        let pool = Pool::assemble(&rt, &damage(&found, &leaves), &found.uberblocks[0]).await.unwrap();
        let findings = pool.verify_many(items(&blocks)).await;
        let copies: usize = blocks.iter().map(|bp| bp.dvas().count()).sum();
        assert_eq!(findings.len(), copies);
        assert!(findings.iter().all(|finding| finding.fault == Fault::Lost && finding.leaf.is_none()));
        let error = pool.read(&blocks[0], &ReadContext::default()).await.unwrap_err();
        assert!(matches!(error, PoolError::Checksum { .. }), "{error}");
    });
}

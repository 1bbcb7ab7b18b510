//! OpenZFS's own test pools: every old version, every survivable set of disks, and those that must be
//! refused.

use std::path::Path;

use cenote_testkit::{fixture_images, needs};

use super::command::{DAMAGED, FAILED, cenote, folder_of, scan};

#[needs("fixtures/zpool_upgrade")]
#[test]
fn every_version_opens() {
    let images = fixture_images("zpool_upgrade");
    for version in 1..=15 {
        let ran = scan(&images, &format!("v{version}-pool"));
        let rows = ran.succeeds();
        assert!(rows.len() > 1, "version {version} has a root folder");
        assert!(rows.windows(2).all(|pair| pair[0] != pair[1]), "version {version}: no file twice");
    }
}

#[needs("fixtures/zpool_import")]
#[test]
fn pools_of_the_import_tests_open() {
    let images = fixture_images("zpool_import");
    assert!(scan(&images, "unclean_export").succeeds().len() > 1);
    // Their encrypted datasets are locked: the list lacks them and says so.
    for pool in ["cryptv0", "missing_ivset"] {
        let ran = scan(&images, pool);
        ran.fails(DAMAGED, &["skipped", "is encrypted", "--key"]);
        assert!(ran.stdout.lines().count() > 1, "{pool}");
    }
}

#[needs("fixtures/zpool_upgrade")]
#[test]
fn an_unknown_version_is_refused() {
    let images = fixture_images("zpool_upgrade");
    scan(&images, "v999-pool").fails(FAILED, &["v999-pool", "version 999", "1 to 28 and 5000"]);
}

/// Every set of `count` disks; sets with at most `spare` missing yield all files, others a clear error.
fn every_set(images: &Path, disks: &str, pool: &str, count: u32, spare: u32) {
    let whole = scan(images, pool);
    let whole = whole.succeeds();
    for set in 1..1u32 << count {
        let names: Vec<String> = (0..count).map(|i| format!("disk{i}")).collect();
        let there = (0..count).filter(|i| set >> i & 1 == 1);
        let path = |i: u32| images.join(format!("zfs-pool-{disks}{}.dat", i + 1));
        let folder = folder_of(there.map(|i| (names[i as usize].as_str(), path(i))));
        let ran = scan(folder.path(), pool);
        if count - set.count_ones() <= spare {
            assert!(ran.succeeds() == whole, "{pool} with disks {set:b}: {}", ran.stdout);
        } else if spare > 0 {
            ran.fails(FAILED, &[pool, "devices are missing"]);
        } else {
            // Labels this old do not say how many vdevs there are. A missing one is noticed only if all
            // copies of a block are on it; copies are on different vdevs, so everything may still be
            // readable.
            match ran.status {
                0 => assert!(ran.succeeds() == whole, "{pool} with disks {set:b}"),
                status => ran.fails(if status == DAMAGED { DAMAGED } else { FAILED }, &[]),
            }
        }
    }
}

#[needs("fixtures/zpool_upgrade")]
#[test]
fn every_survivable_set_of_disks() {
    let images = fixture_images("zpool_upgrade");
    for (disks, pool, spare) in [
        ("v1mirror", "pool-v1mirror", 2),
        ("v2mirror", "pool-v2mirror", 2),
        ("v3mirror", "pool-v3mirror", 2),
        ("v1raidz", "pool-v1raidz", 1),
        ("v2raidz", "pool-v2raidz", 1),
        ("v3raidz", "pool-v3raidz", 1),
        ("v3raidz2", "pool-v3raidz2", 2),
        ("v1stripe", "pool-v1stripe", 0),
        ("v2stripe", "pool-v2stripe", 0),
        ("v3stripe", "pool-v3stripe", 0),
    ] {
        every_set(&images, disks, pool, 3, spare);
    }
}

/// Pools this old do not record their number of vdevs; the uberblock's guid sum shows that one is missing.
#[needs("fixtures/zpool_upgrade")]
#[test]
fn a_missing_disk_of_an_old_stripe_is_told() {
    let images = fixture_images("zpool_upgrade");
    for version in ["v1", "v2", "v3"] {
        let disk = |n: u32| images.join(format!("zfs-pool-{version}stripe{n}.dat"));
        let import = |disks: &[u32]| {
            let names = ["a", "b", "c"];
            let folder = folder_of(disks.iter().map(|&n| (names[n as usize - 1], disk(n))));
            cenote(&["zpool", "import", "-d", folder.path().to_str().unwrap()]).stdout
        };
        assert!(import(&[1, 2, 3]).contains("state: ONLINE"), "{version}");
        for disks in [[1, 2], [1, 3], [2, 3]] {
            let listed = import(&disks);
            assert!(listed.contains("state: UNAVAIL"), "{version} with {disks:?}: {listed}");
            assert!(listed.contains("Devices"), "{version} with {disks:?}: {listed}");
        }
    }
}

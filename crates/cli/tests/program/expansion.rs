//! `zpool attach` of a disk to a RAID-Z.

use std::fs;

use crate::common::disks::Disks;
use cenote_testkit::{copy_image, golden};

#[test]
fn a_raidz_gets_a_disk_more_than_once() {
    let disks = Disks::new(&[128; 6]);
    disks.cenote("zpool create -f -o compatibility=openzfs-2.3 tank raidz a b c", &[]);
    (1..4).for_each(|seed| disks.fill(seed));
    disks.cenote("zfs snapshot tank@then", &[]);
    let size = || -> u64 { disks.cenote("zpool list -Hp -o size tank", &[]).trim().parse().unwrap() };
    for (times, disk) in [(1, "d"), (2, "e")] {
        let before = size();
        disks.cenote(&format!("zpool attach tank raidz1-0 {disk}"), &[]);
        disks.zdb_is_content();
        assert!(size() > before + (100 << 20), "{} after {before}", size());
        let shown = disks.cenote("zpool status tank", &[]);
        assert!(shown.contains("expand: expanded raidz1-0 copied "), "{shown}");
        assert!(shown.contains("scan: scrub repaired 0B ") && shown.contains(disk), "{shown}");
        let json = disks.cenote("zpool status -j --json-int tank", &[]);
        assert!(json.contains(r#""raidz_expand_stats""#) && json.contains(r#""state":"FINISHED""#), "{json}");
        let feature = disks.cenote("zpool get -H -o value feature@raidz_expansion tank", &[]);
        assert_eq!(feature.trim(), "active");
        disks.fill(10 + times);
        disks.cenote("verify tank", &[]);
    }
    let history = disks.cenote("zpool history -i tank", &[]);
    for event in [
        "] raidz vdev expansion started tank vdev 0 new width 4",
        "] raidz vdev expansion completed tank vdev 0 new width 5",
        " to vdev=raidz1-0",
    ] {
        assert!(history.contains(event), "{history}");
    }
    let aside = tempfile::tempdir().unwrap();
    for lost in ["a", "d", "e"] {
        fs::copy(disks.path().join(lost), aside.path().join("disk")).unwrap();
        fs::remove_file(disks.path().join(lost)).unwrap();
        (1..4).chain(11..13).for_each(|seed| disks.assert_filled(seed));
        fs::copy(aside.path().join("disk"), disks.path().join(lost)).unwrap();
    }
    disks.cenote("zpool scrub tank", &[]);
    disks.zdb_is_content();
}

#[test]
fn what_can_not_be_expanded_is_refused_in_openzfs_words() {
    let disks = Disks::new(&[128, 128, 128, 128, 64, 128]);
    let refused = |command: &str, why: &str| disks.fails(command, why);
    disks.cenote("zpool create -f -o compatibility=openzfs-2.3 tank raidz a b c", &[]);
    refused("zpool attach tank raidz1-1 d", "cannot attach d to raidz1-1: no such device in pool");
    refused("zpool attach tank a d", "can only attach to mirrors and top-level disks");
    refused("zpool attach tank raidz1-0 e", "cannot attach e to raidz1-0: device is too small");
    refused("zpool attach tank raidz1-0 a", "is part of active pool 'tank'");
    refused("zpool attach -s tank raidz1-0 d", "only mirror and dRAID vdevs support sequential");
    disks.cenote("zpool checkpoint tank", &[]);
    refused("zpool attach tank raidz1-0 d", "cannot attach d to raidz1-0: checkpoint exists");
    disks.cenote("zpool checkpoint -d tank", &[]);
    disks.cenote("zpool offline tank b", &[]);
    refused("zpool attach tank raidz1-0 d", "raidz vdev has devices that are are offline or being replaced");
    disks.cenote("zpool online tank b", &[]);
    disks.cenote("zpool destroy tank", &[]);
    disks.cenote("zpool create -f tank raidz a b c", &[]);
    refused("zpool attach tank raidz1-0 d", "raidz_expansion feature must be enabled in order to attach a");
    disks.cenote("zpool destroy tank", &[]);
    disks.cenote("zpool create -f -o compatibility=openzfs-2.3 tank draid1:1d:3c a b c", &[]);
    refused("zpool attach tank draid1:1d:3c:0s-0 d", "can only attach to mirrors and top-level disks");
}

/// A golden pool left in the middle of an expansion by the OpenZFS module.
#[test]
fn an_expansion_that_openzfs_began_is_ended_here() {
    let (disks, pool) = (Disks::new(&[]), golden("expanding"));
    for index in 0..4 {
        let name = format!("disk{index}.img");
        copy_image(&pool.images().join(&name), &disks.path().join(&name));
    }
    let content = || {
        let listed = disks.cenote("scan -r gexping --hash --format tsv", &[]);
        let mut lines: Vec<String> = listed.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = content();
    disks.fails("zpool checkpoint gexping", "raidz expansion in progress");
    disks.cenote("zpool attach gexping raidz1-0 loop3", &[]);
    disks.zdb_is_content_with("gexping");
    let shown = disks.cenote("zpool status gexping", &[]);
    assert!(shown.contains("expand: expanded raidz1-0 copied "), "{shown}");
    assert!(shown.contains("with 0 errors"), "{shown}");
    assert!(content() == before, "it has changed");
    let aside = tempfile::tempdir().unwrap();
    for index in 0..4 {
        let disk = disks.path().join(format!("disk{index}.img"));
        fs::copy(&disk, aside.path().join("disk")).unwrap();
        fs::remove_file(&disk).unwrap();
        assert!(content() == before, "it has changed without disk {index}");
        fs::copy(aside.path().join("disk"), &disk).unwrap();
    }
}

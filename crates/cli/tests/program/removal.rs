//! `zpool remove` of vdevs that hold data.

use std::fs;

use crate::common::disks::Disks;
use cenote_testkit::{copy_image, golden};

#[test]
fn disks_mirrors_and_special_vdevs_leave() {
    let disks = Disks::new(&[128; 7]);
    disks.cenote("zpool create -f tank a b mirror c d special mirror e f", &[]);
    (1..4).for_each(|seed| disks.fill(seed));
    disks.cenote("zfs snapshot tank@then", &[]);
    let memory = disks.cenote("zpool remove -n tank a", &[]);
    assert!(memory.starts_with("Memory that will be used after removing a: "), "{memory}");
    let exact = disks.cenote("zpool remove -n -p tank a", &[]);
    let bytes: u64 = exact.strip_prefix("a ").unwrap().trim().parse().unwrap();
    assert!(bytes > 0 && bytes.is_multiple_of(24), "{exact}");
    for (vdev, name) in [(0, "a"), (3, "mirror-3"), (2, "mirror-2")] {
        if vdev == 2 {
            // The two others are too small for the data that the pool may hold.
            disks.fails("zpool remove tank mirror-2", "cannot remove mirror-2: ");
            disks.cenote("zpool add -f tank a", &[]);
        }
        disks.cenote(&format!("zpool remove -w tank {name}"), &[]);
        disks.zdb_is_content();
        let shown = disks.cenote("zpool status tank", &[]);
        assert!(shown.contains(&format!("remove: Removal of vdev {vdev} copied ")), "{shown}");
        assert!(!shown.contains(&format!("  {name}  ")), "{shown}");
        disks.fill(10 + vdev);
        disks.cenote("verify tank", &[]);
        (1..4).for_each(|seed| disks.assert_filled(seed));
    }
    let history = disks.cenote("zpool history -i tank", &[]);
    assert!(history.contains("] vdev remove started tank vdev 0 "), "{history}");
    assert!(history.contains("] vdev remove completed tank vdev 3"), "{history}");
    disks.cenote("rm tank:/file1", &[]);
    disks.cenote("zfs destroy tank@then", &[]);
    disks.zdb_is_content();
    disks.cenote("zpool scrub tank", &[]);
}

#[test]
fn what_can_not_be_removed_is_refused_in_openzfs_words() {
    let disks = Disks::new(&[128; 7]);
    let layout = "invalid config; all top-level vdevs must have the same sector size and not be raidz.";
    disks.cenote("zpool create -f tank a b c", &[]);
    disks.fails("zpool remove tank nosuch", "cannot remove nosuch: no such device in pool");
    disks.fails("zpool remove -s tank", "cannot cancel removal: there is no removal in progress");
    disks.cenote("zpool checkpoint tank", &[]);
    disks.fails("zpool remove tank a", "cannot remove a: checkpoint exists");
    disks.cenote("zpool checkpoint -d tank", &[]);
    disks.cenote("zpool add -f -o ashift=13 tank d", &[]);
    disks.fails("zpool remove tank a", layout);
    disks.cenote("zpool destroy tank", &[]);
    disks.cenote("zpool create -f tank a b raidz c d e", &[]);
    disks.fails("zpool remove tank a", layout);
    disks.cenote("zpool destroy tank", &[]);
    disks.cenote("zpool create -f -o compatibility=freebsd-11.0 tank a b c", &[]);
    disks.fails("zpool remove tank a", "cannot remove a: operation not supported on this type of pool");
    disks.cenote("zpool destroy tank", &[]);
    disks.cenote("zpool create -f tank mirror a b", &[]);
    disks.fails("zpool remove tank mirror-0", "cannot remove mirror-0: ");
    disks.fails("zpool remove tank a", "operation not supported on this type of pool");
}

/// A golden pool left in the middle of a removal by the OpenZFS module.
fn removing() -> Disks {
    let (disks, pool) = (Disks::new(&[]), golden("removing"));
    for name in ["disk0.img", "disk2.img"] {
        copy_image(&pool.images().join(name), &disks.path().join(name));
    }
    disks
}

#[test]
fn a_removal_that_openzfs_began_is_ended_or_canceled_here() {
    let disks = removing();
    let before = disks.cenote("scan -r gremoving --hash --format tsv", &[]);
    let shown = disks.cenote("zpool status gremoving", &[]);
    assert!(shown.contains("remove: Evacuation of ") && shown.contains("(removing)"), "{shown}");
    disks.cenote("zpool remove gremoving loop0", &[]);
    disks.zdb_is_content_with("gremoving");
    let shown = disks.cenote("zpool status gremoving", &[]);
    assert!(shown.contains("remove: Removal of vdev 0 copied "), "{shown}");
    fs::remove_file(disks.path().join("disk0.img")).unwrap();
    assert_eq!(disks.cenote("scan -r gremoving --hash --format tsv", &[]), before);
    disks.cenote("verify gremoving", &[]);

    let disks = removing();
    disks.cenote("zpool remove -s gremoving", &[]);
    disks.zdb_is_content_with("gremoving");
    let shown = disks.cenote("zpool status gremoving", &[]);
    assert!(shown.contains("remove: Removal of ") && shown.contains(" canceled on "), "{shown}");
    assert_eq!(disks.cenote("scan -r gremoving --hash --format tsv", &[]), before);
    disks.cenote("zpool remove gremoving loop0", &[]);
    disks.zdb_is_content_with("gremoving");
    assert_eq!(disks.cenote("scan -r gremoving --hash --format tsv", &[]), before);
}

//! `zpool replace` and hot spares: a device replaces another, permanently or for a while.

use std::fs;

use crate::common::disks::{Disks, MIB, noise};
use cenote_testkit::{copy_image, golden};

fn lose(disks: &Disks, name: &str) {
    fs::remove_file(disks.path().join(name)).unwrap();
}

fn status(disks: &Disks) -> String {
    disks.cenote("zpool status tank", &[])
}

/// The pool is whole and `zdb` finds no fault, although a disk that held all data is gone.
fn is_whole_without(disks: &Disks, gone: Option<&str>) {
    let shown = status(disks);
    assert!(shown.contains("state: ONLINE") && !shown.contains("replacing"), "{shown}");
    disks.zdb_is_content();
    disks.cenote("verify tank", &[]);
    gone.into_iter().for_each(|gone| lose(disks, gone));
    (1..3).for_each(|seed| disks.assert_filled(seed));
}

#[test]
fn a_disk_is_replaced_in_every_kind_of_vdev() {
    for (layout, others) in [
        ("b", None),
        ("mirror a b", Some("a")),
        ("raidz a b c", Some("a")),
        ("raidz2 a b c d", Some("c")),
        ("draid1:1d:3c a b c", Some("a")),
        ("a log b", None),
        ("a special b", None),
    ] {
        let disks = Disks::new(&[128, 128, 128, 128, 160]);
        disks.cenote(&format!("zpool create -f tank {layout}"), &[]);
        disks.fill(1);
        disks.cenote("zfs snapshot tank@one", &[]);
        // Both verbs lead to the same state on disk.
        let verb = if layout.starts_with("raidz2") || layout == "b" { "evacuate" } else { "replace" };
        disks.cenote(&format!("zpool {verb} tank b e"), &[]);
        let shown = status(&disks);
        assert!(shown.contains("  e  ") && !shown.contains("  b  "), "{layout}: {shown}");
        assert!(shown.contains("scan: resilvered ") && shown.contains(" with 0 errors"), "{layout}: {shown}");
        let history = disks.cenote("zpool history -i tank", &[]);
        assert!(history.contains("] vdev attach replace vdev="), "{history}");
        assert!(history.contains(" for vdev=") && history.contains("] detach vdev="), "{history}");
        lose(&disks, "b");
        disks.fill(2);
        is_whole_without(&disks, others);
    }
}

#[test]
fn a_disk_that_is_lost_is_replaced_by_another_or_by_one_at_its_place() {
    for layout in ["mirror a b", "raidz a b c", "draid1:1d:3c a b c"] {
        for new in ["e", "b"] {
            let disks = Disks::new(&[128; 5]);
            disks.cenote(&format!("zpool create tank {layout}"), &[]);
            disks.fill(1);
            lose(&disks, "b");
            disks.fill(2);
            assert!(status(&disks).contains("was /"), "{}", status(&disks));
            let file = fs::File::create(disks.path().join(new)).unwrap();
            file.set_len(128 * MIB).unwrap();
            let words = if new == "b" { "zpool replace tank b" } else { "zpool replace tank b e" };
            disks.cenote(words, &[]);
            let path = disks.cenote("zpool status -P tank", &[]);
            assert!(path.contains(&format!("/{new}  ")) && !path.contains("/old"), "{path}");
            is_whole_without(&disks, Some("a"));
        }
    }
}

#[test]
fn a_disk_is_rebuilt_in_the_order_of_the_disk_and_verified_afterwards() {
    for (layout, command, name, others) in [
        ("b", "zpool attach -s tank b e", "mirror-0", None),
        ("b", "zpool replace -s tank b e", "e", None),
        ("mirror a b", "zpool attach -s tank b e", "mirror-0", Some("a")),
        ("mirror a b", "zpool replace -s tank b e", "mirror-0", Some("a")),
        ("draid1:1d:3c a b c", "zpool replace -s tank b e", "draid1:1d:3c:0s-0", Some("a")),
        ("draid2:2d:5c:1s a b c d f", "zpool replace -s tank b draid2-0-0", "draid2:2d:5c:1s-0", Some("a")),
    ] {
        let disks = Disks::new(&[128, 128, 128, 128, 160, 128]);
        disks.cenote(&format!("zpool create -f tank {layout}"), &[]);
        disks.fill(1);
        disks.cenote("zfs snapshot tank@one", &[]);
        disks.fill(2);
        disks.cenote(command, &[]);
        let shown = status(&disks);
        let rebuilt = shown.find(&format!("scan: resilvered ({name}) ")).unwrap_or_else(|| panic!("{shown}"));
        let scrubbed = shown.find("scan: scrub repaired 0B in 00:00:0").unwrap_or_else(|| panic!("{shown}"));
        assert!(scrubbed < rebuilt && shown[rebuilt..].contains(" with 0 errors on "), "{shown}");
        let history = disks.cenote("zpool history -i tank", &[]);
        assert!(
            history.contains("rebuild vdev_id=0 vdev_guid=") && history.contains(" complete"),
            "{history}"
        );
        assert_eq!(disks.cenote("zpool get -Ho value feature@device_rebuild tank", &[]), "enabled\n");
        disks.zdb_is_content();
        disks.cenote("verify tank", &[]);
        if !command.contains("draid2-0-0") {
            lose(&disks, "b");
        }
        others.into_iter().for_each(|gone| lose(&disks, gone));
        (1..3).for_each(|seed| disks.assert_filled(seed));
    }
}

#[test]
fn what_can_not_be_rebuilt_is_refused() {
    let disks = Disks::new(&[128; 6]);
    let only = "only mirror and dRAID vdevs support sequential reconstruction";
    disks.cenote("zpool create tank raidz a b c", &[]);
    disks.fails("zpool replace -s tank b e", &format!("cannot replace b with e: {only}"));
    disks.fails(
        "zpool attach -s tank b e",
        "cannot attach e to b: can only attach to mirrors and top-level disks",
    );
    disks.cenote("zpool destroy tank", &[]);
    disks.cenote("zpool create -f -d -o feature@lz4_compress=enabled tank mirror a b", &[]);
    disks.fails("zpool attach -s tank b e", "device_rebuild feature must be enabled in order to use");
}

#[test]
fn what_does_not_fit_or_is_not_there_replaces_nothing() {
    let disks = Disks::new(&[128, 128, 128, 100, 128]);
    disks.cenote("zpool create tank mirror a b spare c", &[]);
    disks.fill(1);
    let before = disks.images();
    disks.fails("zpool replace tank b d", "cannot replace b with d: device is too small");
    disks.fails("zpool replace tank nothing e", "cannot replace nothing with e: no such device in pool");
    disks.fails("zpool replace tank b a", "a is part of active pool 'tank'");
    disks.fails("zpool replace tank c e", "cannot replace c with e: device is reserved as a hot spare");
    disks.fails("zpool replace -o ashift=13 tank b e", "different optimal sector size");
    assert!(disks.images() == before, "nothing is written");
    disks.fails("zpool evacuate tank b d", "cannot evacuate b to d: device is too small");
    disks.fails("zpool evacuate tank c e", "cannot evacuate c to e: device is reserved as a hot spare");
    lose(&disks, "b");
    disks.fails("zpool detach tank a", "cannot detach a: no valid replicas");
    disks.fails("zpool evacuate tank b e", "it is not in use, or lacks data itself; use 'zpool replace'");
}

#[test]
fn a_spare_stands_in_and_goes_back_or_stays() {
    for layout in ["mirror a b", "raidz a b d"] {
        let disks = Disks::new(&[128; 5]);
        disks.cenote(&format!("zpool create tank {layout} spare c"), &[]);
        disks.fill(1);
        disks.cenote("zpool offline tank b", &[]);
        disks.cenote("zpool replace tank b c", &[]);
        let shown = status(&disks);
        assert!(shown.contains("spare-1") && shown.contains("INUSE     currently in use"), "{shown}");
        disks.fill(2);
        disks.zdb_is_content();
        disks.fails("zpool replace tank c e", "can only be replaced by another hot spare");
        disks.fails("zpool replace tank a c", "the spare is in use");

        // The disk is back: the spare is available.
        disks.cenote("zpool online tank b", &[]);
        disks.cenote("zpool detach tank c", &[]);
        let shown = status(&disks);
        assert!(!shown.contains("spare-1") && shown.contains("AVAIL"), "{shown}");
        disks.zdb_is_content();

        // The disk is replaced: the spare detaches by itself.
        lose(&disks, "b");
        disks.cenote("zpool replace tank b c", &[]);
        disks.cenote("zpool replace tank b e", &[]);
        let shown = status(&disks);
        assert!(!shown.contains("spare-1") && shown.contains("AVAIL"), "{shown}");
        disks.zdb_is_content();

        // The lost disk is detached: the spare takes its place permanently.
        lose(&disks, "e");
        disks.cenote("zpool replace tank e c", &[]);
        let guid = disks.cenote("zpool status -g tank", &[]);
        let lost = disks.cenote("zpool status tank", &[]);
        let lost = lost.lines().find(|line| line.contains("was /")).unwrap_or_else(|| panic!("{lost}{guid}"));
        disks.cenote(&format!("zpool detach tank {}", lost.split_whitespace().next().unwrap()), &[]);
        let shown = status(&disks);
        assert!(!shown.contains("spare") && shown.contains("  c  "), "{shown}");
        is_whole_without(&disks, Some("a"));
    }
}

#[test]
fn what_openzfs_left_half_done_is_ended() {
    let golden = golden("spares");
    let disks = Disks::new(&[]);
    for disk in golden.facts().disks {
        let file = disk.file.trim_end_matches(".zst");
        copy_image(&golden.images().join(file), &disks.path().join(file));
    }
    let before = disks.cenote("du -s gspares:/", &[]);
    disks.cenote("zpool resilver gspares", &[]);
    let shown = disks.cenote("zpool status gspares", &[]);
    assert!(!shown.contains("replacing") && !shown.contains("disk3"), "{shown}");
    assert!(shown.contains("spare-1") && shown.contains("INUSE"), "{shown}");
    disks.zdb_is_content_with("gspares");
    disks.cenote("zpool online gspares disk1.img", &[]);
    disks.cenote("zpool detach gspares disk5.img", &[]);
    let shown = disks.cenote("zpool status gspares", &[]);
    assert!(shown.contains("AVAIL") && shown.contains("state: ONLINE"), "{shown}");
    disks.zdb_is_content_with("gspares");
    assert_eq!(disks.cenote("du -s gspares:/", &[]), before);
    disks.cenote("verify gspares", &[]);
}

#[test]
fn a_distributed_spare_stands_in() {
    let disks = Disks::new(&[128; 5]);
    disks.cenote("zpool create tank draid1:1d:4c:1s a b c d", &[]);
    disks.fill(1);
    lose(&disks, "b");
    disks.cenote("zpool replace tank b draid1-0-0", &[]);
    let shown = status(&disks);
    assert!(shown.contains("spare-1") && shown.contains("INUSE     currently in use"), "{shown}");
    disks.fill(2);
    disks.zdb_is_content();
    // The others hold all data of the lost disk: a second one may go.
    let aside = disks.path().parent().unwrap().join(format!("{}-c", std::process::id()));
    fs::rename(disks.path().join("c"), &aside).unwrap();
    (1..3).for_each(|seed| disks.assert_filled(seed));
    fs::rename(&aside, disks.path().join("c")).unwrap();
    disks.fails("zpool remove tank draid1-0-0", "dRAID spares cannot be removed");
    for offline in ["zpool offline", "zpool offline -f"] {
        disks.fails(&format!("{offline} tank draid1-0-0"), "cannot offline draid1-0-0: operation not supp");
    }
    disks.cenote("zpool replace tank b e", &[]);
    let shown = status(&disks);
    assert!(!shown.contains("spare-1") && shown.contains("AVAIL"), "{shown}");
    is_whole_without(&disks, Some("a"));
}

#[test]
fn spares_caches_and_logs_are_removed() {
    let disks = Disks::new(&[128; 7]);
    disks.cenote("zpool create -f tank mirror a b log mirror c d spare e cache f", &[]);
    disks.fill(1);
    disks.fails("zpool remove tank a", "operation not supported on this type of pool");
    disks.fails("zpool remove tank g", "cannot remove g: no such device in pool");
    disks.cenote("zpool remove tank e f mirror-1", &[]);
    let shown = status(&disks);
    assert!(["spares", "cache", "logs", "  c  "].iter().all(|word| !shown.contains(word)), "{shown}");
    disks.zdb_is_content();
    disks.fill(2);
    // A vdev removed from the middle leaves a hole in the numbering.
    disks.cenote("zpool add -f tank log c", &[]);
    disks.cenote("zpool add -f tank mirror d e", &[]);
    disks.cenote("zpool remove tank c", &[]);
    disks.zdb_is_content();
    (3..5).for_each(|seed| disks.fill(seed));
    disks.cenote("zpool add -f tank log c", &[]);
    is_whole_without(&disks, None);
    (3..5).for_each(|seed| disks.assert_filled(seed));
}

/// Overwrites the first bytes of the pool's copy of a file.
fn spoil(disks: &Disks, name: &str, content: &[u8]) {
    let path = disks.path().join(name);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(4096).position(|window| window == &content[..4096]).unwrap();
    bytes[at..at + 512].fill(0xb5);
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_is_lost_is_in_the_error_log_until_a_scrub_finds_it_no_more() {
    let disks = Disks::new(&[128]);
    for set in ["openzfs-2.0-linux", "openzfs-2.2"] {
        disks.cenote(&format!("zpool create -f -o compatibility={set} tank a"), &[]);
        (1..3).for_each(|seed| disks.fill(seed));
        assert!(disks.cenote("zpool status -v tank", &[]).contains("errors: No known data errors"));
        spoil(&disks, "a", &noise(2, 3_000_000));
        assert_eq!(disks.run("zpool scrub tank", &[]).status.code(), Some(3));
        let shown = disks.cenote("zpool status -v tank", &[]);
        assert!(
            shown.contains("errors: Permanent errors have been detected in the following files:"),
            "{shown}"
        );
        assert!(shown.contains("tank:/file2\n") && !shown.contains("file1"), "{shown}");
        disks.cenote("zpool clear tank", &[]);
        disks.cenote("rm tank:/file2", &[]);
        disks.cenote("zpool scrub tank", &[]);
        assert!(disks.cenote("zpool status -v tank", &[]).contains("errors: No known data errors"));
        disks.zdb_is_content();
        disks.assert_filled(1);
    }
}

#[test]
fn a_scrub_of_known_errors_reads_them_alone_and_forgets_what_is_mended() {
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create -o compatibility=openzfs-2.1-linux tank a", &[]);
    let why = "cannot scrub tank: unsupported version or feature: feature@head_errlog is disabled";
    disks.fails("zpool scrub -e tank", why);
    disks.cenote("zpool create -f -o compatibility=openzfs-2.2 tank a", &[]);
    (1..4).for_each(|seed| disks.fill(seed));
    disks.cenote("zfs snapshot tank@s", &[]);
    disks.cenote("zpool scrub -e tank", &[]);
    assert!(!disks.cenote("zpool status tank", &[]).contains(" scrub:"), "there was nothing to do");
    let whole = fs::read(disks.path().join("a")).unwrap();
    spoil(&disks, "a", &noise(2, 3_000_000));
    assert_eq!(disks.run("zpool scrub tank", &[]).status.code(), Some(3));
    // A full scrub would also find this one.
    spoil(&disks, "a", &noise(3, 3_000_000));
    assert_eq!(disks.run("zpool scrub -e tank", &[]).status.code(), Some(3));
    let shown = disks.cenote("zpool status -v tank", &[]);
    assert!(shown.contains(" scrub: scrubbed 1 error blocks in 0 days 00:00:0"), "{shown}");
    assert!(!shown.contains("  scan:"), "{shown}");
    assert!(shown.contains("tank@s:/file2\n") && !shown.contains("file3"), "{shown}");
    restore(&disks, &whole, &noise(2, 3_000_000));
    disks.cenote("zpool scrub -e tank", &[]);
    assert!(disks.cenote("zpool status -v tank", &[]).contains("errors: No known data errors"));
    disks.cenote("zpool scrub -e tank", &[]);
    restore(&disks, &whole, &noise(3, 3_000_000));
    disks.cenote("zpool scrub tank", &[]);
    let shown = disks.cenote("zpool status tank", &[]);
    assert!(shown.contains("  scan: scrub repaired") && !shown.contains(" scrub: "), "{shown}");
    disks.zdb_is_content();
}

/// Restores the first bytes of the pool's copy of a file.
fn restore(disks: &Disks, whole: &[u8], content: &[u8]) {
    let path = disks.path().join("a");
    let mut bytes = fs::read(&path).unwrap();
    let at = whole.windows(4096).position(|window| window == &content[..4096]).unwrap();
    bytes[at..at + 512].copy_from_slice(&content[..512]);
    fs::write(path, bytes).unwrap();
}

//! Devices added to pools: nothing they hold is overwritten by mistake.

use crate::common::disks::Disks;

#[test]
fn devices_that_hold_something_else_are_refused_without_force() {
    let disks = Disks::new(&[128; 4]);
    let mark = |disk: &str, at: u64, mark: &[u8]| {
        let file = std::fs::File::options().write(true).open(disks.path().join(disk)).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, mark, at).unwrap();
    };
    disks.cenote("zpool create tank a", &[]);
    mark("b", 0, b"XFSB");
    mark("c", 4086, b"SWAPSPACE2");
    mark("d", 0, b"LUKS\xba\xbe");
    let before = disks.images();
    for refused in [
        "zpool create other b",
        "zpool create other mirror b c",
        "zpool add tank b",
        "zpool add tank log b",
        "zpool add tank spare b",
        "zpool add tank cache b",
        "zpool attach tank a b",
        "zpool replace tank a b",
    ] {
        disks.fails(refused, "b contains a filesystem of type 'xfs'");
    }
    disks.fails("zpool add tank c", "contains a filesystem of type 'swap'");
    disks.fails("zpool add tank d", "contains a filesystem of type 'crypto_LUKS'");
    disks.fails("zpool create other a", "a is part of exported pool 'tank'");
    assert!(disks.images() == before, "a refused command has written");
    disks.cenote("zpool attach -f tank a b", &[]);
    disks.cenote("zpool add -f tank log c", &[]);
    disks.cenote("zpool create -f other d", &[]);
    // No remains of the old pool block the new one.
    disks.cenote("zpool destroy other", &[]);
    disks.cenote("zpool create other d", &[]);
    disks.zdb_is_content();
}

#[test]
fn a_device_that_lacks_something_is_out_of_date_until_it_is_resilvered() {
    let disks = Disks::new(&[128; 2]);
    disks.cenote("zpool create tank mirror a b", &[]);
    let away = tempfile::tempdir_in(disks.path().parent().unwrap()).unwrap();
    std::fs::rename(disks.path().join("b"), away.path().join("b")).unwrap();
    disks.fill(1);
    std::fs::rename(away.path().join("b"), disks.path().join("b")).unwrap();
    let is_told = || disks.cenote("zpool status tank", &[]).contains("out of date");
    assert!(is_told());
    // From now on, its labels are as new as those of the others.
    disks.fill(2);
    assert!(is_told());
    disks.cenote("zpool resilver tank", &[]);
    assert!(!is_told());
}

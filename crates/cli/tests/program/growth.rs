//! Devices that grow: `zpool online -e`, `autoexpand=on`.

use std::fs;

use crate::common::disks::{Disks, MIB, noise};

fn grow(disks: &Disks, name: &str, size_mib: u64) {
    let file = fs::OpenOptions::new().write(true).open(disks.path().join(name)).unwrap();
    file.set_len(size_mib * MIB).unwrap();
}

/// Size of the pool, and by how much it could grow, in bytes.
fn sizes(disks: &Disks) -> (u64, u64) {
    let listed = disks.cenote("zpool list -Hp -o size,expandsize tank", &[]);
    let cells: Vec<u64> = listed.split_whitespace().map(|cell| cell.parse().unwrap_or(0)).collect();
    (cells[0], cells[1])
}

#[test]
fn a_vdev_takes_what_its_devices_have_grown_by() {
    for (layout, names, devices) in
        [("a", "a", 1), ("mirror a b", "ab", 1), ("raidz a b c", "abc", 3), ("draid1:1d:3c a b c", "abc", 0)]
    {
        let disks = Disks::new(&[96; 3]);
        disks.cenote(&format!("zpool create -o compatibility=openzfs-2.2 tank {layout}"), &[]);
        fs::write(disks.path().join("content"), noise(1, 20_000_000)).unwrap();
        disks.cenote("cp content tank:/one", &[]);
        let (before, _) = sizes(&disks);
        let (first, others) = names.split_at(1);
        grow(&disks, first, 256);
        if !others.is_empty() {
            disks.cenote("zpool online -e tank a", &[]);
            assert_eq!(sizes(&disks), (before, 0), "{layout}: others are as small as before");
        }
        others.split("").filter(|name| !name.is_empty()).for_each(|name| grow(&disks, name, 256));
        // A dRAID does not report how far it can grow, as in OpenZFS.
        assert_eq!(sizes(&disks), (before, devices * 160 * MIB), "{layout}");
        disks.cenote("zpool online tank a", &[]);
        assert_eq!(sizes(&disks).0, before, "{layout}: only with -e");
        disks.cenote("zpool online -e tank a", &[]);
        let (after, left) = sizes(&disks);
        assert!(after >= before + devices.max(1) * 160 * MIB && left == 0, "{layout}: {before} -> {after}");
        disks.zdb_is_content();

        // More than the pool could hold before.
        let rest = if layout.starts_with("raidz") { 150_000_000 } else { 85_000_000 };
        fs::write(disks.path().join("content"), noise(2, rest)).unwrap();
        disks.cenote("cp content tank:/two", &[]);
        disks.zdb_is_content();
        disks.cenote("verify tank", &[]);
        for (seed, len) in [(1, 20_000_000), (2, rest)] {
            let name = if seed == 1 { "one" } else { "two" };
            assert!(disks.run(&format!("cat tank:/{name}"), &[]).stdout == noise(seed, len), "{layout}");
        }
    }
}

#[test]
fn a_vdev_grows_by_itself_if_it_is_to() {
    let disks = Disks::new(&[128, 128, 256, 256]);
    disks.cenote("zpool create tank mirror a b", &[]);
    let (before, _) = sizes(&disks);
    disks.cenote("zpool replace tank a c", &[]);
    disks.cenote("zpool set autoexpand=on tank", &[]);
    assert_eq!(sizes(&disks).0, before, "one of them is small");
    disks.cenote("zpool replace tank b d", &[]);
    assert_eq!(sizes(&disks).0, before + 128 * MIB);
    grow(&disks, "c", 384);
    grow(&disks, "d", 384);
    disks.cenote("zpool set autoexpand=off tank", &[]);
    disks.cenote("zpool online tank c", &[]);
    assert_eq!(sizes(&disks), (before + 128 * MIB, 128 * MIB));
    disks.cenote("zpool set autoexpand=on tank", &[]);
    assert_eq!(sizes(&disks), (before + 256 * MIB, 0));
    disks.zdb_is_content();
}

#[test]
fn a_vdev_of_which_a_device_is_away_does_not_grow() {
    let disks = Disks::new(&[128, 128]);
    disks.cenote("zpool create tank mirror a b", &[]);
    let (before, _) = sizes(&disks);
    disks.cenote("zpool offline tank b", &[]);
    grow(&disks, "a", 256);
    disks.cenote("zpool online -e tank a", &[]);
    assert_eq!(sizes(&disks).0, before);
    grow(&disks, "b", 256);
    disks.cenote("zpool online -e tank b", &[]);
    assert_eq!(sizes(&disks).0, before + 128 * MIB);
    disks.zdb_is_content();
    disks.cenote("verify tank", &[]);
}

//! Images cut short, disks of two pools in one folder, duplicated disks.

use std::fs::OpenOptions;

use cenote_testkit::{copy_image, fixture_images, golden, needs};

use super::command::{DAMAGED, FAILED, folder_of, scan};

#[needs("legacy-fuse10")]
#[test]
fn truncated_images() {
    let pool = golden("legacy-fuse10");
    let image = pool.images().join("disk0.img");
    let whole_bytes = image.metadata().unwrap().len();
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("disk0.img");
    copy_image(&image, &cut);
    let name = &pool.facts().pool;
    let whole = scan(folder.path(), name);
    let whole = whole.succeeds();
    // In descending order, so that one copy serves for all: a byte, a label, both labels, half, less than the
    // smallest vdev, nothing.
    let cuts =
        [whole_bytes - 1, whole_bytes - (256 << 10), whole_bytes - (512 << 10), 72 << 20, 64 << 20, 4 << 20];
    for bytes in cuts {
        OpenOptions::new().write(true).open(&cut).unwrap().set_len(bytes).unwrap();
        let ran = scan(folder.path(), name);
        match ran.status {
            0 => assert_eq!(ran.succeeds(), whole, "cut at {bytes}"),
            DAMAGED => assert!(!ran.stderr.is_empty(), "cut at {bytes}"),
            FAILED if bytes < 64 << 20 => assert!(ran.stderr.contains("cut short"), "cut at {bytes}"),
            other => panic!("cut at {bytes}: exit status {other}: {}", ran.stderr),
        }
    }
    // A front label identifies the pool, however little follows it; without a front label nothing does.
    for bytes in [256 << 10, 1000, 0] {
        OpenOptions::new().write(true).open(&cut).unwrap().set_len(bytes).unwrap();
        let ran = scan(&cut, name);
        match bytes {
            0..0x4_0000 => ran.fails(FAILED, &["no pool in", &format!("{bytes} bytes"), "cut short"]),
            _ => ran.fails(FAILED, &[name, &format!("{bytes} of at least"), "cut short"]),
        }
    }
}

#[needs("fixtures/zpool_upgrade")]
#[test]
fn a_head_or_tail_that_was_wiped() {
    let images = fixture_images("zpool_upgrade");
    let image = images.join("zfs-pool-v15.dat");
    let whole = scan(&image, "v15-pool");
    let whole = whole.succeeds();
    let bytes = image.metadata().unwrap().len();
    let folder = tempfile::tempdir().unwrap();
    for (name, at, len) in [("head", 0, 512 << 10), ("tail", bytes - (512 << 10), 512 << 10)] {
        let copied = folder.path().join(name);
        copy_image(&image, &copied);
        let file = OpenOptions::new().write(true).open(&copied).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![0xa5; len], at).unwrap();
        assert_eq!(scan(&copied, "v15-pool").succeeds(), whole, "{name}: the other two labels do");
    }
}

#[needs("raidz1", "fixtures/zpool_upgrade")]
#[test]
fn disks_of_two_pools_swapped() {
    let raidz = golden("raidz1");
    let mirror = fixture_images("zpool_upgrade");
    let disk = |n: u32| raidz.images().join(format!("disk{n}.img"));
    let half = |n: u32| mirror.join(format!("zfs-pool-v3mirror{n}.dat"));
    let mixed = folder_of([
        ("mirror0.img", disk(0)),
        ("disk0.img", half(1)),
        ("disk1.img", half(3)),
        ("mirror1.img", disk(2)),
        ("disk2.img", disk(1)),
        ("mirror2.img", half(2)),
    ]);
    let name = &raidz.facts().pool;
    let (alone, among) = (scan(&raidz.images(), name), scan(mixed.path(), name));
    assert_eq!(among.succeeds(), alone.succeeds(), "disks are known by their guids, not their names");
    let alone = scan(&mirror, "pool-v3mirror");
    assert_eq!(scan(mixed.path(), "pool-v3mirror").succeeds(), alone.succeeds());
}

#[needs("fixtures/zpool_upgrade")]
#[test]
fn a_disk_twice_and_a_disk_that_was_away() {
    let images = fixture_images("zpool_upgrade");
    let disk = |n: u32| images.join(format!("zfs-pool-v1raidz{n}.dat"));
    let whole = scan(&images, "pool-v1raidz");
    let folder = folder_of([("a", disk(1)), ("b", disk(2)), ("c", disk(3))]);
    copy_image(&disk(1), &folder.path().join("again"));
    assert_eq!(scan(folder.path(), "pool-v1raidz").succeeds(), whole.succeeds(), "a copy of a disk");

    // Two copies of one disk count as one disk.
    let alone = folder_of([("a", disk(1))]);
    copy_image(&disk(1), &alone.path().join("again"));
    scan(alone.path(), "pool-v1raidz").fails(FAILED, &["pool-v1raidz", "devices are missing"]);

    // `zfs-broken-mirror`: one half was cut short and is older than the other.
    let pool = "zfs-broken-mirror";
    let both = scan(&images, pool);
    let half = folder_of([("half", images.join("zfs-broken-mirror2.dat"))]);
    assert_eq!(scan(half.path(), pool).succeeds(), both.succeeds());
    let cut = images.join("zfs-broken-mirror1.dat");
    scan(&cut, pool).fails(FAILED, &["66985984 of at least", "cut short"]);
}

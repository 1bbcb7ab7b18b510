//! `zfs rewrite` of mounted files: content and times stay, blocks change as the properties demand.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::serve::bench::{Bench, can_mount, zdb_finds_nothing};

const BLOCK: usize = 128 << 10;

/// Compressible, and different in each block.
fn content(blocks: usize) -> Vec<u8> {
    (0..blocks * BLOCK / 8).flat_map(|word| ((word / 512) as u64).to_le_bytes()).collect()
}

/// A pool with all features, mounted at `mnt`, without compression and with file `f`.
fn mounted() -> Bench {
    let bench = Bench::new(&["a", "b"]);
    let mnt = bench.text("mnt");
    bench.done(&format!(
        "zpool create -o feature@physical_rewrite=enabled -O compression=off -m {mnt} tank a"
    ));
    fs::set_permissions(bench.folder.path(), Permissions::from_mode(0o755)).unwrap();
    fs::write(bench.path("mnt/f"), content(24)).unwrap();
    bench.done("zpool sync tank");
    bench
}

fn used(bench: &Bench, of: &str) -> u64 {
    bench.done("zpool sync tank");
    bench.done(&format!("zfs get -Hpo value {of} tank")).trim().parse().unwrap()
}

#[test]
fn rewritten_files_get_the_new_compression_and_nothing_else_changes() {
    if !can_mount() {
        return;
    }
    let bench = mounted();
    let file = bench.path("mnt/f");
    fs::create_dir(bench.path("mnt/folder")).unwrap();
    fs::write(bench.path("mnt/folder/g"), content(3)).unwrap();
    let sparse = File::create(bench.path("mnt/folder/sparse")).unwrap();
    sparse.write_all_at(b"end", 1 << 40).unwrap();
    sparse.sync_all().unwrap();
    drop(sparse);
    let before = fs::metadata(&file).unwrap();
    let full = used(&bench, "referenced");
    bench.done("zfs set compression=lz4 tank");
    assert_eq!(used(&bench, "referenced") / BLOCK as u64, full / BLOCK as u64);
    let names = bench.done(&format!("zfs rewrite -rv {}", bench.text("mnt")));
    assert_eq!(names.lines().count(), 3, "{names}");
    assert!(used(&bench, "referenced") < full / 8, "the blocks are compressed");
    let after = fs::metadata(&file).unwrap();
    assert_eq!((after.mtime_nsec(), after.ctime_nsec()), (before.mtime_nsec(), before.ctime_nsec()));
    assert!(fs::read(&file).unwrap() == content(24));
    assert_eq!(fs::metadata(bench.path("mnt/folder/sparse")).unwrap().len(), (1 << 40) + 3);
    bench.fails(&format!("zfs rewrite {}", bench.text("mnt/nosuch")));
    // Not every file system can do it.
    assert!(bench.fails("zfs rewrite a").contains("is not in a file system of Cenote"));
    bench.done("zpool export tank");
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn a_physical_rewrite_stays_out_of_increments_and_a_logical_one_does_not() {
    if !can_mount() {
        return;
    }
    let bench = mounted();
    let file = bench.text("mnt/f");
    bench.done("zfs snapshot tank@before");
    let increment = |to: &str| -> u64 {
        let estimate = bench.done(&format!("zfs send -nvP -i @before tank@{to}"));
        estimate.split_whitespace().last().unwrap().parse().unwrap()
    };
    bench.done(&format!("zfs rewrite -P {file}"));
    bench.done("zfs snapshot tank@moved");
    assert!(increment("moved") < BLOCK as u64);
    assert_eq!(bench.done("zpool get -Ho value feature@physical_rewrite tank").trim(), "active");
    assert!(used(&bench, "usedbysnapshots") >= 24 * BLOCK as u64, "the old copies are the snapshot's");
    // Blocks shared with the last snapshot are left out on request.
    bench.done(&format!("zfs rewrite -S {file}"));
    bench.done("zfs snapshot tank@spared");
    assert!(increment("spared") < BLOCK as u64);
    bench.done(&format!("zfs rewrite -o {BLOCK} -l {} {file}", 2 * BLOCK));
    bench.done("zfs snapshot tank@rewritten");
    let size = increment("rewritten") / BLOCK as u64;
    assert!((2..4).contains(&size), "two blocks, not {size}");
    assert!(fs::read(&file).unwrap() == content(24));
    for snapshot in ["before", "moved", "rewritten"] {
        assert!(fs::read(bench.path(&format!("mnt/.zfs/snapshot/{snapshot}/f"))).unwrap() == content(24));
    }
    // Everything is freed in the end, by births and dead lists.
    for snapshot in ["moved", "before", "rewritten", "spared"] {
        bench.done(&format!("zfs destroy tank@{snapshot}"));
    }
    fs::remove_file(&file).unwrap();
    assert!(used(&bench, "referenced") < BLOCK as u64);
    bench.done("zpool export tank");
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn cloned_blocks_are_spared_on_request_and_writing_is_a_right() {
    if !can_mount() {
        return;
    }
    let bench = mounted();
    bench.done("zpool set feature@block_cloning=enabled tank");
    let file = bench.path("mnt/f");
    let reflink = |from: &str, to: &str| {
        bench.done("zpool sync tank");
        let (from, to) = (File::open(bench.path(from)).unwrap(), File::create(bench.path(to)).unwrap());
        let len = from.metadata().unwrap().len() as usize;
        rustix::fs::copy_file_range(&from, None, &to, None, len).unwrap()
    };
    let cloned = reflink("mnt/f", "mnt/clone");
    assert!(cloned > 0);
    let saved = || bench.done("zpool get -Hpo value bclonesaved tank").trim().parse::<u64>().unwrap();
    bench.done("zpool sync tank");
    let before = saved();
    assert!(before > 0);
    bench.done(&format!("zfs rewrite -C {}", file.display()));
    bench.done("zpool sync tank");
    assert_eq!(saved(), before);
    let as_nobody = |file: &str| {
        let mut rewrite = Command::new(env!("CARGO_BIN_EXE_cenote"));
        rewrite.args(["zfs", "rewrite"]).arg(bench.path(file)).uid(65534).gid(65534);
        rewrite.output().unwrap()
    };
    assert!(!as_nobody("mnt/f").status.success());
    assert_eq!(saved(), before);
    bench.done(&format!("zfs rewrite {}", file.display()));
    bench.done("zpool sync tank");
    assert_eq!(saved(), 0);
    assert!(fs::read(&file).unwrap() == content(24));
    bench.done("zpool export tank");
    zdb_finds_nothing(&bench.path("d"), "tank");
}

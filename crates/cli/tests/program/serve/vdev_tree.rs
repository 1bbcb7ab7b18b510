//! `verify` of a pool in use takes its vdevs as of the verified txg: after each change of the tree it finds
//! as few faults as `zdb`.

use std::fs;

use crate::serve::bench::{Bench, zdb_finds_nothing};

/// Changes the tree, writes to the new one, and compares the findings of both.
struct Changes {
    bench: Bench,
    seed: u8,
}

impl Changes {
    fn new(disks: &[&str]) -> Changes {
        Changes { bench: Bench::new(disks), seed: 0 }
    }

    #[track_caller]
    fn make(&mut self, change: &str) {
        self.bench.done(change);
        self.seed += 1;
        self.bench.fill(self.seed);
        fs::remove_file(self.bench.path("d/file")).unwrap();
        self.compare(change);
    }

    #[track_caller]
    fn compare(&self, change: &str) {
        self.bench.done("zpool sync tank");
        let verify = self.bench.run(&["verify", "tank"]);
        assert!(verify.status.success(), "after '{change}': {}", String::from_utf8_lossy(&verify.stdout));
        zdb_finds_nothing(&self.bench.path("d"), "tank");
    }
}

#[test]
fn verify_agrees_with_zdb_after_every_change_of_the_vdev_tree() {
    let mut pool = Changes::new(&["a", "b", "c", "e", "f", "g", "h", "i"]);
    for change in [
        "zpool create -m none tank a",
        "zpool add tank b",
        "zpool attach -w tank a c",
        "zpool online tank c",
        "zpool replace -w tank a e",
        "zpool detach tank c",
        "zpool attach -s -w tank e a",
        "zpool add tank log f",
        "zpool add -f tank special g",
        "zpool add tank cache h",
        "zpool add tank spare i",
        "zpool replace -w tank e i",
        "zpool detach tank i",
        "zpool remove tank h",
        "zpool remove tank f",
        "zpool remove -w tank b",
        "zpool remove -w tank g",
        "zpool add -f tank b",
        "zpool checkpoint tank",
        "zpool add -f tank f",
        "zpool checkpoint -d -w tank",
        "zpool reguid tank",
    ] {
        if change == "zpool online tank c" {
            pool.bench.done("zpool offline tank c");
            pool.bench.fill(100);
        }
        pool.make(change);
    }
    let bench = &pool.bench;
    fs::File::options().write(true).open(bench.path("d/b")).unwrap().set_len(512 << 20).unwrap();
    pool.make("zpool online -e tank b");
}

#[test]
fn verify_agrees_with_zdb_after_an_expansion() {
    let mut pool = Changes::new(&["a", "b", "c", "e", "f"]);
    pool.make("zpool create -m none -o compatibility=openzfs-2.3 tank raidz a b c");
    pool.make("zpool attach -w tank raidz1-0 e");
    pool.make("zpool replace -w tank a f");
    pool.make("zpool attach -w tank raidz1-0 a");
}

#[test]
fn verify_agrees_with_zdb_after_a_split() {
    let mut pool = Changes::new(&["a", "b", "c", "e"]);
    pool.make("zpool create -m none tank mirror a b mirror c e");
    pool.make("zpool split tank other");
}

//! Devices of the daemon's pools that grow while in use.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::serve::bench::{Bench, PATIENCE, zdb_finds_nothing};

const MIB: u64 = 1 << 20;

fn size(bench: &Bench) -> u64 {
    bench.done("zpool list -Hp -o size tank").trim().parse().unwrap()
}

fn grow(bench: &Bench, name: &str, size_mib: u64) {
    let file = fs::OpenOptions::new().write(true).open(bench.path("d").join(name)).unwrap();
    file.set_len(size_mib * MIB).unwrap();
}

#[test]
fn devices_in_use_grow() {
    let mut bench = Bench::new(&["a", "b"]);
    bench.done("zpool create -m none tank mirror a b");
    let small = fs::metadata(bench.path("d/a")).unwrap().len() / MIB;
    let before = size(&bench);
    grow(&bench, "a", small + 128);
    grow(&bench, "b", small + 128);
    bench.done("zpool online -e tank a");
    assert_eq!(size(&bench), before + 128 * MIB);
    fs::write(bench.path("d/file"), vec![7; 3_000_000]).unwrap();
    bench.done("cp file tank:/file");

    bench.done("zpool set autoexpand=on tank");
    grow(&bench, "a", small + 256);
    grow(&bench, "b", small + 256);
    let begun = Instant::now();
    while size(&bench) != before + 256 * MIB {
        assert!(begun.elapsed() < PATIENCE, "{}", bench.done("zpool list -v"));
        sleep(Duration::from_millis(200));
    }
    bench.done("zpool scrub -w tank");
    assert!(bench.done("zpool status tank").contains("No known data errors"));
    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

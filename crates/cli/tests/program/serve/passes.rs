//! Passes over the free space of devices of the daemon's pools.

use std::thread::sleep;
use std::time::Duration;

use crate::serve::bench::{Bench, zdb_finds_nothing};

fn until_trim(bench: &Bench, wanted: &str) -> String {
    bench.until("zpool status -t tank", |status| status.contains(wanted))
}

#[test]
fn a_trim_is_suspended_and_goes_on_after_an_import() {
    let mut bench = Bench::new(&["a", "b"]);
    bench.done("zpool create -m none tank mirror a b");
    bench.done("zpool trim -r 2M tank a");
    assert!(bench.fails("zpool trim tank a").contains("cannot trim 'a': currently trimming"));
    until_trim(&bench, "% trimmed, started at");
    sleep(Duration::from_secs(3));
    bench.done("zpool trim -s tank a");
    until_trim(&bench, "trimmed, suspended, started at");
    bench.done("zpool export tank");
    bench.done("zpool import tank");
    until_trim(&bench, "trimmed, suspended, started at");
    bench.done("zpool trim -w tank a");
    let status = until_trim(&bench, "(100% trimmed, completed at");
    assert!(status.contains("(untrimmed)"), "only one: {status}");
    bench.done("zpool trim -r 1M tank b");
    bench.done("zpool export tank");
    bench.done("zpool import tank");
    until_trim(&bench, "% trimmed, started at");
    bench.done("zpool trim -c tank b");
    assert!(bench.fails("zpool trim -c tank b").contains("there is no active trim"));
    // At this rate, what it does first has to last for hours: another order need not wait for that.
    bench.done("zpool trim -r 1K tank b");
    sleep(Duration::from_secs(1));
    bench.done("zpool trim -s tank b");
    bench.done("zpool trim -w tank b");
    until_trim(&bench, "(100% trimmed, completed at");
    bench.done("zpool initialize tank");
    bench.done("zpool wait -t initialize tank");
    assert!(bench.done("zpool status -i tank").contains("(100% initialized, completed at"));
    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

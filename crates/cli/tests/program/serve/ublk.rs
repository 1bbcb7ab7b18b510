//! Volumes as block devices, as far as testable without the driver. `proof/ublk` has one.

use std::path::Path;

use crate::serve::bench::Bench;

#[test]
fn without_the_driver_a_daemon_says_what_is_missing_and_leaves_nothing() {
    if Path::new("/dev/ublk-control").exists() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    bench.done("zpool create -m none tank a");
    bench.signal(rustix::process::Signal::TERM);
    let links = bench.path("links");
    let refused = bench.fails(&format!("serve -d . --ublk {} tank", links.display()));
    assert!(refused.contains("modprobe ublk_drv") && refused.contains("6.0"), "{refused}");
    assert!(!links.exists() && !bench.path("sock").exists());
    // The pool was not touched: it is still exported.
    assert!(bench.done("zpool import -d .").contains("ONLINE"));
}

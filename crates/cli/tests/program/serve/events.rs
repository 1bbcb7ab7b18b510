//! Reports of the daemon about its pools while open: events, statistics, running work.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::serve::bench::{Bench, PATIENCE, can_mount};

#[test]
fn events_are_kept_followed_and_cleared() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a", "b"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    let events = bench.done("zpool events -H");
    for class in ["pool_create", "pool_import", "config_sync"] {
        assert!(events.contains(&format!("\tsysevent.fs.zfs.{class}\n")), "{class}: {events}");
    }
    let mut follow = bench.program();
    let mut follow =
        follow.args(["zpool", "events", "-f", "-v", "tank"]).stdout(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&follow);
    let (_done, ended) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        if ended.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
        }
    });
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.next().unwrap().starts_with("TIME "));
    bench.done("zfs snapshot tank@seen");
    for line in ["history_dsname = \"tank@seen\"", "history_internal_name = \"snapshot\""] {
        assert!(lines.by_ref().any(|seen| seen.trim() == line), "{line}");
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&follow), rustix::process::Signal::INT)
        .unwrap();
    follow.wait().unwrap();

    let cleared = bench.done("zpool events -c");
    assert!(cleared.starts_with("cleared ") && cleared.ends_with(" events\n"), "{cleared}");
    assert_eq!(bench.done("zpool events -H"), "");
    bench.done("zpool export tank");
    assert!(bench.done("zpool events -H").contains("sysevent.fs.zfs.pool_export"));
    assert_eq!(bench.done("zpool events -H other"), "");
    assert!(bench.done("zpool events --json").contains("pool_export"));
}

#[test]
fn statistics_show_what_passes() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a", "b"]);
    bench.done(&format!("zpool create -m {} -O compression=off tank mirror a b", bench.text("mnt")));
    let written = |line: &str| -> Vec<u64> {
        let text = bench.done(line);
        text.lines().map(|line| line.split('\t').nth(6).unwrap().parse().unwrap_or(0)).collect()
    };
    // Both sides of a mirror receive every write.
    let file = fs::File::create(bench.path("mnt/x")).unwrap();
    std::io::Write::write_all(&mut &file, &vec![7; 32 << 20]).unwrap();
    file.sync_all().unwrap();
    bench.done("zpool sync tank");
    let [pool, mirror, a, b] = written("zpool iostat -Hpv tank")[..] else { panic!("four lines") };
    assert!(a > 0 && b > 0 && mirror >= a + b && pool == mirror, "{pool} {mirror} {a} {b}");
    let rounds = bench.done("zpool iostat -H tank 0.1 3");
    assert_eq!(rounds.lines().count(), 3);
    // After the first report, idle devices are idle.
    let idle = bench.done("zpool iostat -Hpy tank 0.1 1");
    assert_eq!(idle.lines().count(), 1);

    let table = bench.done("zpool iostat tank");
    let mut lines = table.lines();
    assert_eq!(lines.next().unwrap(), "              capacity     operations     bandwidth ");
    assert_eq!(lines.next().unwrap(), "pool        alloc   free   read  write   read  write");
    assert_eq!(lines.next().unwrap(), "----------  -----  -----  -----  -----  -----  -----");
    assert!(lines.next().unwrap().starts_with("tank  "));
    assert_eq!(lines.next(), None);
    assert!(bench.done("zpool iostat -l -q -v tank").contains("disk_wait"));
    let waits = bench.done("zpool iostat -w tank");
    assert!(waits.contains("total_wait") && waits.lines().any(|line| line.starts_with("1us ")), "{waits}");
    let sizes = bench.done("zpool iostat -rp tank");
    assert!(sizes.lines().any(|line| line.starts_with("131072 ")), "{sizes}");
    assert!(bench.done("zpool iostat --json -v tank").contains("average_wait_ns"));
    assert!(bench.fails("zpool iostat nosuch").contains("nosuch"));
}

#[test]
fn one_waits_until_what_was_destroyed_is_freed() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    bench.done("zfs create tank/x");
    fs::write(bench.path("mnt/x/big"), vec![1; 16 << 20]).unwrap();
    bench.done("zpool sync tank");
    bench.done("zfs destroy tank/x");
    bench.done("zpool wait tank");
    assert_eq!(bench.done("zpool get -H -o value freeing tank"), "0\n");
    bench.done("zpool wait -t free,scrub tank 1");
}

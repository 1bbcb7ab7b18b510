//! Mount points shared by several file systems, and other mounts over ours.

use std::fs;
use std::process::{Command, Output};

use rustix::process::Signal;

use crate::serve::bench::{Bench, can_mount};

/// Runs a line; it must end, with any result.
#[track_caller]
fn ends(bench: &Bench, line: &str) -> Output {
    let mut command = Command::new("timeout");
    command.arg("40").arg(env!("CARGO_BIN_EXE_cenote")).args(line.split(' '));
    let output =
        command.env("CENOTE_SOCKET", bench.path("sock")).env_remove("CENOTE_DISKS").output().unwrap();
    assert_ne!(output.status.code(), Some(124), "{line}: hangs");
    output
}

#[track_caller]
fn is_refused(bench: &Bench, line: &str) -> String {
    let output = ends(bench, line);
    assert!(!output.status.success(), "{line}: succeeded");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn of_two_file_systems_on_one_directory_each_is_unmounted_by_itself() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    let shared = bench.text("shared");
    bench.done("zpool create -O canmount=off -m none st a");
    for name in ["st/b", "st/a"] {
        bench.done(&format!("zfs create -o mountpoint={shared} {name}"));
        fs::write(bench.path("shared").join(name.replace('/', "-")), "").unwrap();
    }
    let busy = is_refused(&bench, "zfs unmount st/b");
    assert!(busy.contains("'st/a'") && busy.contains("mounted over it"), "{busy}");
    assert!(bench.path("shared/st-a").exists(), "the other one's mount was taken away");
    bench.done("zfs unmount st/a");
    assert!(bench.path("shared/st-b").exists());
    bench.done("zfs mount st/a");
    // All at once: the upper one first.
    bench.done("zfs unmount -a");
    bench.done("zfs mount -a");
    assert!(ends(&bench, "zpool export st").status.success());
    bench.signal(Signal::TERM);
}

#[test]
fn what_others_have_mounted_over_a_file_system_stays() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -O canmount=off -m {} st a", bench.text("mnt")));
    for name in ["st/a", "st/b", "st/c"] {
        bench.done(&format!("zfs create {name}"));
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "over"]).arg(bench.path("mnt").join(&name[3..]));
        assert!(mount.status().unwrap().success());
    }
    let theirs = |name: &str| {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        table.contains(&format!("over {} tmpfs", bench.text(&format!("mnt/{name}"))))
    };
    let busy = is_refused(&bench, "zfs unmount st/a");
    assert!(busy.contains("'over' (tmpfs"), "{busy}");
    assert!(is_refused(&bench, "zpool export st").contains("tmpfs"));
    is_refused(&bench, "zfs destroy st/a");
    // A covered file system whose dataset is renamed or whose mount point changes stays where it is, too.
    ends(&bench, &format!("zfs set mountpoint={} st/b", bench.text("other")));
    assert!(["a", "b", "c"].into_iter().all(theirs), "somebody else's mount was taken away");
    bench.signal(Signal::TERM);
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    assert_eq!(table.lines().filter(|line| line.contains(&bench.text("mnt"))).count(), 6, "{table}");
    bench.start(&[]);
    assert!(bench.done("zpool list -H -o health st").contains("ONLINE"));
}

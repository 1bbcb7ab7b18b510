//! `cenote replicate`: copies between pools here, and through a program that stands in for ssh.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::common::disks::{Disks, noise};

const FILE_BYTES: usize = 3_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// `tank/home` with a file at each of its snapshots, and an empty pool `back`.
struct Pair {
    from: Disks,
    to: Disks,
}

impl Pair {
    fn new(snapshots: u64) -> Pair {
        let (from, to) = (Disks::new(&[256]), Disks::new(&[256]));
        from.cenote("zpool create tank a", &[]);
        from.cenote("zfs create tank/home", &[]);
        to.cenote("zpool create back a", &[]);
        let pair = Pair { from, to };
        (1..=snapshots).for_each(|seed| pair.put("tank/home", seed));
        pair
    }

    /// Adds a file and takes a snapshot, both named by the seed.
    fn put(&self, dataset: &str, seed: u64) {
        let file = self.from.path().join(format!("file{seed}"));
        std::fs::write(&file, noise(seed, FILE_BYTES)).unwrap();
        self.from.cenote(&format!("cp {} {dataset}:/", file.display()), &[]);
        std::fs::remove_file(file).unwrap();
        self.from.cenote(&format!("zfs snapshot {dataset}@{seed}"), &[]);
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.arg("replicate").args(words.split(' ')).stdin(Stdio::null());
        command.arg("--disks").arg(self.from.path()).arg("--disks").arg(self.to.path());
        command
    }

    fn run(&self, words: &str) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs it with success; the output.
    #[track_caller]
    fn replicate(&self, words: &str) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs it with this status; its messages.
    #[track_caller]
    fn fails(&self, status: i32, words: &str) -> String {
        let output = self.run(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{words}: {said}");
        said
    }

    /// The copy has these files.
    #[track_caller]
    fn assert_copied(&self, dataset: &str, seeds: std::ops::RangeInclusive<u64>) {
        for seed in seeds {
            let read = self.to.run(&format!("cat {dataset}:/file{seed}"), &[]);
            assert!(read.stdout == noise(seed, FILE_BYTES), "{}", String::from_utf8_lossy(&read.stderr));
        }
    }
}

/// Names of a dataset's snapshots, after the `@`.
fn snapshots(disks: &Disks, dataset: &str) -> Vec<String> {
    let listed = disks.cenote(&format!("zfs list -H -t snapshot -o name -s createtxg {dataset}"), &[]);
    listed.lines().map(|name| name.split_once('@').unwrap().1.to_owned()).collect()
}

fn get(disks: &Disks, property: &str, dataset: &str) -> String {
    disks.cenote(&format!("zfs get -Hp -o value {property} {dataset}"), &[]).trim().to_owned()
}

#[test]
fn the_first_run_sends_all_and_later_ones_what_is_new() {
    let pair = Pair::new(3);
    let planned = pair.replicate("-n tank/home back/home");
    assert!(planned.contains("full tank/home@1\n  from tank/home@1 to tank/home@3, with those in between"));
    assert!(pair.replicate("--verify tank/home back/home").contains("up to date with @3; verified"));
    assert_eq!(snapshots(&pair.to, "back/home"), ["1", "2", "3"]);
    pair.assert_copied("back/home", 1..=3);
    assert_eq!(pair.replicate("tank/home back/home"), "tank/home -> back/home: up to date with @3\n");
    // Names change, guids do not.
    pair.from.cenote("zfs rename tank/home@3 tank/home@three", &[]);
    pair.from.cenote("zfs destroy tank/home@2", &[]);
    pair.put("tank/home", 4);
    let foretold: Value = serde_json::from_str(&pair.replicate("--json -n tank/home back/home")).unwrap();
    let stream = &foretold[0]["streams"][0];
    assert_eq!(
        (stream["from"].as_str(), stream["between"].as_bool()),
        (Some("tank/home@three"), Some(false))
    );
    let sent: Value = serde_json::from_str(&pair.replicate("--json --verify tank/home back/home")).unwrap();
    assert_eq!((sent[0]["state"].as_str(), sent[0]["is_verified"].as_bool()), (Some("sent"), Some(true)));
    assert_eq!(sent[0]["bytes"], foretold[0]["bytes"]);
    pair.assert_copied("back/home", 1..=4);
}

#[test]
fn a_bookmark_stands_in_for_the_last_common_snapshot() {
    let pair = Pair::new(2);
    pair.replicate("--newest --bookmark tank/home back/home");
    assert_eq!(snapshots(&pair.to, "back/home"), ["2"]);
    pair.from.cenote("zfs destroy tank/home@1%2", &[]);
    (3..=5).for_each(|seed| pair.put("tank/home", seed));
    let sent = pair.replicate("--bookmark --verify tank/home back/home");
    assert!(sent.contains("up to date with @5; verified"), "{sent}");
    assert_eq!(snapshots(&pair.to, "back/home"), ["2", "3", "4", "5"]);
    pair.assert_copied("back/home", 1..=5);
    let marks = pair.from.cenote("zfs list -H -t bookmark -o name tank/home", &[]);
    // A stream of several snapshots cannot begin at a bookmark, so the third was sent alone.
    assert_eq!(marks, "tank/home#2\ntank/home#3\ntank/home#5\n");
}

/// Starts a slow run in a process group of its own, as a shell does, and waits until it has carried some MB:
/// with a bookmark it also writes to the source's pool.
fn begun(pair: &Pair, words: &str) -> Child {
    let mut command = pair.command(&format!("--rate 1M {words}"));
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut run = command.spawn().unwrap();
    let counters = format!("/proc/{}/io", run.id());
    let written = || {
        let counters = std::fs::read_to_string(&counters).unwrap();
        let written = counters.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
        written.parse::<u64>().unwrap()
    };
    let begun = Instant::now();
    let least = if words.contains("--bookmark") { 5_000_000 } else { 2_000_000 };
    while written() < least {
        assert!(run.try_wait().unwrap().is_none(), "it has ended");
        assert!(begun.elapsed() < PATIENCE, "{} bytes", written());
        std::thread::sleep(Duration::from_millis(20));
    }
    run
}

#[test]
fn a_run_that_was_killed_is_resumed_by_the_next() {
    let pair = Pair::new(3);
    let mut run = begun(&pair, "--newest --bookmark tank/home back/home");
    kill_process(Pid::from_child(&run), Signal::KILL).unwrap();
    run.wait().unwrap();
    let marks = pair.from.cenote("zfs list -H -t bookmark -o name tank/home", &[]);
    assert_eq!(marks, "tank/home#3\n", "the snapshot under way has its bookmark already");
    let begun = Instant::now();
    // The receiver ends by itself, since its stream does.
    let token = || {
        let got = pair.to.run("zfs get -Hp -o value receive_resume_token back/home", &[]);
        String::from_utf8(got.stdout).unwrap().trim().to_owned()
    };
    while !token().starts_with("1-") {
        assert!(begun.elapsed() < PATIENCE, "nothing was kept");
        std::thread::sleep(Duration::from_millis(100));
    }
    let whole = 3 * FILE_BYTES as u64;
    let resumed: Value = serde_json::from_str(&pair.replicate("--json tank/home back/home")).unwrap();
    assert_eq!(resumed[0]["is_resumed"].as_bool(), Some(true), "{resumed}");
    let bytes = resumed[0]["bytes"].as_u64().unwrap();
    assert!(bytes > 0 && bytes < whole - (1 << 20), "{bytes}");
    pair.assert_copied("back/home", 1..=3);
    assert_eq!(get(&pair.to, "receive_resume_token", "back/home"), "-");
}

/// Without a daemon, a receiver that outlived the run would have the pool for itself.
#[test]
fn a_run_of_several_datasets_that_was_interrupted_is_completed_by_the_next() {
    let pair = Pair::new(3);
    for below in ["tank/home/one", "tank/home/two"] {
        pair.from.cenote(&format!("zfs create {below}"), &[]);
        pair.put(below, 1);
    }
    let run = begun(&pair, "-R --newest --jobs 4 tank/home back/tree");
    let interrupted = Instant::now();
    kill_process_group(Pid::from_child(&run), Signal::INT).unwrap();
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted; run the same command again to go on"), "{said}");
    assert!(interrupted.elapsed() < PATIENCE / 2, "{:?}", interrupted.elapsed());
    assert!(get(&pair.to, "receive_resume_token", "back/tree").starts_with("1-"));
    let words = "--json -R --newest --jobs 4 --verify tank/home back/tree";
    let completed: Value = serde_json::from_str(&pair.replicate(words)).unwrap();
    assert_eq!(completed[0]["is_resumed"].as_bool(), Some(true), "{completed}");
    let reports = completed.as_array().unwrap();
    assert!(reports.len() == 3 && reports.iter().all(|report| report["is_verified"] == true), "{completed}");
    pair.assert_copied("back/tree", 1..=3);
    pair.assert_copied("back/tree/one", 1..=1);
    pair.assert_copied("back/tree/two", 1..=1);
}

#[test]
fn a_part_of_a_snapshot_that_is_gone_is_discarded() {
    let pair = Pair::new(2);
    let stream = pair.from.run("zfs send tank/home@1", &[]).stdout;
    let kept = pair.to.run_with("zfs receive -s back/home", &stream[..stream.len() / 2]);
    assert!(!kept.status.success());
    assert!(get(&pair.to, "receive_resume_token", "back/home").starts_with("1-"));
    pair.from.cenote("zfs destroy tank/home@1", &[]);
    let output = pair.run("tank/home back/home");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("can't be resumed"), "{said}");
    assert_eq!(snapshots(&pair.to, "back/home"), ["2"]);
    pair.assert_copied("back/home", 1..=2);
}

#[test]
fn encrypted_datasets_go_raw_without_their_key() {
    let pair = Pair::new(0);
    let key = "--key tank/locked=pass:longpassword";
    pair.from.cenote(&format!("zfs create -o encryption=on -o keyformat=passphrase {key} tank/locked"), &[]);
    let file = pair.from.path().join("file1");
    std::fs::write(&file, noise(1, FILE_BYTES)).unwrap();
    pair.from.cenote(&format!("cp {key} {} tank/locked:/", file.display()), &[]);
    std::fs::remove_file(file).unwrap();
    pair.from.cenote("zfs snapshot tank/locked@1", &[]);
    assert!(pair.replicate("--raw --verify tank/locked back/locked").contains("verified"));
    assert_eq!(get(&pair.to, "keystatus", "back/locked"), "unavailable");
    let read = pair.to.run("cat --key back/locked=pass:longpassword back/locked:/file1", &[]);
    assert!(read.stdout == noise(1, FILE_BYTES), "{}", String::from_utf8_lossy(&read.stderr));
    pair.from.cenote("zfs snapshot tank/locked@2", &[]);
    assert!(pair.replicate("--raw --verify tank/locked back/locked").contains("@2; verified"));
}

#[test]
fn trees_are_copied_and_holds_move_on() {
    let pair = Pair::new(1);
    pair.from.cenote("zfs create tank/home/below", &[]);
    pair.put("tank/home/below", 1);
    pair.from.cenote("zfs create -V 8M tank/home/volume", &[]);
    pair.from.cenote("zfs snapshot tank/home/volume@1", &[]);
    let sent = pair.replicate("-R --jobs 4 --hold --verify tank/home back/tree");
    assert_eq!(sent.matches("; verified").count(), 3, "{sent}");
    assert!(sent.starts_with("tank/home -> back/tree: "), "{sent}");
    pair.assert_copied("back/tree/below", 1..=1);
    let holds = |disks: &Disks, names: &str| disks.cenote(&format!("zfs holds -H {names}"), &[]);
    assert!(holds(&pair.from, "tank/home/below@1").contains("cenote-replicate"));
    pair.put("tank/home/below", 2);
    pair.replicate("-R --hold --tag other tank/home back/tree");
    pair.replicate("-R --hold tank/home back/tree");
    for (disks, name) in [(&pair.from, "tank/home/below"), (&pair.to, "back/tree/below")] {
        assert_eq!(holds(disks, &format!("{name}@1")), "");
        let both = holds(disks, &format!("{name}@2"));
        assert!(both.contains("cenote-replicate") && both.contains("other"), "{both}");
    }
}

#[test]
fn a_copy_that_went_another_way_is_refused_unless_forced() {
    let pair = Pair::new(1);
    pair.replicate("tank/home back/home");
    pair.to.cenote("zfs snapshot back/home@mine", &[]);
    pair.put("tank/home", 2);
    let said = pair.fails(1, "tank/home back/home");
    assert!(said.contains("back/home@mine; --force destroys them"), "{said}");
    assert!(pair.replicate("--force tank/home back/home").contains("up to date with @2"));
    assert_eq!(snapshots(&pair.to, "back/home"), ["1", "2"]);
    pair.to.cenote("zfs create back/other", &[]);
    pair.to.cenote("zfs snapshot back/other@x", &[]);
    assert!(pair.fails(1, "tank/home back/other").contains("no snapshot in common"));
    assert!(pair.fails(1, "--snapshot nosuch tank/home back/new").contains("has no snapshot '@nosuch'"));
    assert!(pair.fails(1, "tank/home back/no/such").contains("back/no"));
    assert!(pair.fails(2, "--rate fast tank/home back/home").contains("--rate"));
    assert!(pair.fails(2, "tank/home@1 back/home").contains("name a dataset"));
}

/// A program in place of ssh: it runs the line in a shell that only knows the other side's disks. `edit` is a
/// command of sed for the line.
fn ssh(pair: &Pair, side: &Disks, edit: &str) -> PathBuf {
    let folder = pair.from.path();
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    if !bin.join("cenote").exists() {
        symlink(env!("CARGO_BIN_EXE_cenote"), bin.join("cenote")).unwrap();
    }
    let script = format!(
        "#!/bin/sh\n[ \"$1 $2 $3\" = '-p 2222 me@vault' ] || exit 9\n\
         line=$(printf '%s' \"$4\" | sed '{edit}')\n\
         CENOTE_DISKS={} PATH={}:$PATH exec sh -c \"$line\"\n",
        side.path().display(),
        bin.display(),
    );
    let path = folder.join("ssh");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

/// `cenote replicate` on this side's disks, with that ssh.
fn through(ssh: &std::path::Path, side: &Disks, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.arg("replicate").arg("--disks").arg(side.path());
    command.arg("--ssh").arg(format!("{} -p 2222", ssh.display())).args(words).output().unwrap()
}

#[test]
fn either_side_may_be_another_machine() {
    let pair = Pair::new(2);
    let to = ssh(&pair, &pair.to, "");
    let pushed = through(&to, &pair.from, &["--verify", "tank/home", "me@vault:back/it's"]);
    assert!(!pushed.status.success(), "no dataset has such a name");
    let pushed = through(&to, &pair.from, &["--verify", "--hold", "tank/home", "me@vault:back/home"]);
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    assert!(String::from_utf8_lossy(&pushed.stdout).contains("up to date with @2; verified"));
    pair.assert_copied("back/home", 1..=2);
    pair.put("tank/home", 3);
    let from = ssh(&pair, &pair.from, "");
    let pulled = through(&from, &pair.to, &["--verify", "me@vault:tank/home", "back/home"]);
    assert!(pulled.status.success(), "{}", String::from_utf8_lossy(&pulled.stderr));
    pair.assert_copied("back/home", 1..=3);
    let unknown = through(&from, &pair.to, &["you@vault:tank/home", "back/home"]);
    assert_eq!(unknown.status.code(), Some(1));
}

#[test]
fn a_copy_that_differs_is_found() {
    let pair = Pair::new(2);
    pair.replicate("tank/home back/home");
    // The other side sends another snapshot in place of the one asked for.
    let lies = ssh(&pair, &pair.to, "/send/s/home@2/home@1/");
    let found = through(&lies, &pair.from, &["--verify", "tank/home", "me@vault:back/home"]);
    let said = String::from_utf8_lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(3), "{said}");
    assert!(said.contains("the content of 'tank/home@2' differs"), "{said}");
    assert!(String::from_utf8_lossy(&found.stdout).contains("DIFFERS"));
}

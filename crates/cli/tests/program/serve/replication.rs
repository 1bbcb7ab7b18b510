//! `zfs send | zfs receive` through the daemon: mounted targets, clients that disconnect, concurrent
//! commands.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::bench::{Bench, PATIENCE, can_mount, zdb_finds_nothing};
use crate::common::disks::noise;

const FILE_BYTES: usize = 3_000_000;

fn command(bench: &Bench, words: &str) -> Command {
    let mut command = bench.program();
    command.args(words.split(' ')).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn pipe(bench: &Bench, send: &str, receive: &str) -> (Output, Output) {
    let mut sends = command(bench, &format!("zfs send {send}")).spawn().unwrap();
    let stream = sends.stdout.take().unwrap();
    let received = command(bench, &format!("zfs receive {receive}")).stdin(stream).output().unwrap();
    (sends.wait_with_output().unwrap(), received)
}

#[track_caller]
fn piped(bench: &Bench, send: &str, receive: &str) {
    let (sent, received) = pipe(bench, send, receive);
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(received.status.success(), "receive {receive}: {}", said(&received));
    assert!(sent.status.success(), "send {send}: {}", said(&sent));
}

/// Pools `tank`, mounted at `mnt`, with `tank/home`, and `back`, mounted at `back`.
fn pools() -> Option<Bench> {
    if !can_mount() {
        return None;
    }
    let bench = Bench::new(&["a", "b"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    bench.done(&format!("zpool create -O atime=off -m {} back b", bench.text("back")));
    bench.done("zfs create tank/home");
    Some(bench)
}

fn put(bench: &Bench, seed: u64) {
    fs::write(bench.path(&format!("mnt/home/{seed}")), noise(seed, FILE_BYTES)).unwrap();
    bench.done(&format!("zfs snapshot tank/home@{seed}"));
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Parts of it are missing, which programs would take for zeros.
#[test]
fn a_file_system_that_was_received_redacted_is_mounted_by_force_only() {
    let Some(bench) = pools() else { return };
    put(&bench, 1);
    bench.done("zfs clone tank/home@1 tank/clean");
    fs::remove_file(bench.path("mnt/clean/1")).unwrap();
    bench.done("zfs snapshot tank/clean@1");
    bench.done("zfs redact tank/home@1 mark tank/clean@1");
    piped(&bench, "--redact mark tank/home@1", "back/home");
    assert!(!bench.path("back/home/1").exists());
    for words in ["zfs mount back/home", "zfs mount -f back/home"] {
        assert!(bench.fails(words).contains("created by receiving a redacted zfs send stream"), "{words}");
    }
    bench.done("zfs mount -a");
    bench.done("tunable zfs_allow_redacted_dataset_mount=1");
    assert!(bench.fails("zfs mount back/home").contains("redacted"));
    bench.done("zfs mount -f back/home");
    assert!(fs::read(bench.path("back/home/1")).unwrap() == vec![0; FILE_BYTES]);
}

#[test]
fn streams_are_those_of_a_send_without_a_daemon() {
    let Some(mut bench) = pools() else { return };
    put(&bench, 1);
    put(&bench, 2);
    let stream = |bench: &Bench, words: &str| {
        let output = command(bench, words).output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let cases = ["zfs send -Lec tank/home@2", "zfs send -i @1 tank/home@2", "zfs send -R tank/home@2"];
    let sent = cases.map(|words| stream(&bench, words));
    let foretold = bench.done("zfs send -nvP -Lec tank/home@2");
    assert!(foretold.ends_with(&format!("size\t{}\n", sent[0].len())), "{foretold}: {}", sent[0].len());
    bench.signal(Signal::TERM);
    for (words, sent) in cases.iter().zip(sent) {
        let alone = stream(&bench, &format!("{words} --disks ."));
        assert!(sent.len() > FILE_BYTES && sent == alone, "{words}: {} and {}", sent.len(), alone.len());
    }
}

#[test]
fn mounted_targets_get_their_new_content_under_the_mount() {
    let Some(mut bench) = pools() else { return };
    put(&bench, 1);
    piped(&bench, "tank/home@1", "back/home");
    assert!(fs::read(bench.path("back/home/1")).unwrap() == noise(1, FILE_BYTES));
    let held = fs::File::open(bench.path("back/home/1")).unwrap();
    put(&bench, 2);
    piped(&bench, "-i @1 tank/home@2", "back/home");
    assert!(fs::read(bench.path("back/home/2")).unwrap() == noise(2, FILE_BYTES));
    let mut content = Vec::new();
    (&held).read_to_end(&mut content).unwrap();
    assert!(content == noise(1, FILE_BYTES), "a file that is open stays open");
    drop(held);
    // Only -F discards local changes, and open snapshots in .zfs are released.
    fs::write(bench.path("back/home/own"), "own").unwrap();
    bench.done("zfs snapshot back/home@own");
    assert_eq!(fs::read_to_string(bench.path("back/home/.zfs/snapshot/own/own")).unwrap(), "own");
    put(&bench, 3);
    let (_, refused) = pipe(&bench, "-i @2 tank/home@3", "back/home");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("most recent snapshot"), "{refused:?}");
    piped(&bench, "-i @2 tank/home@3", "-F back/home");
    assert!(!bench.path("back/home/own").exists());
    assert!(fs::read(bench.path("back/home/3")).unwrap() == noise(3, FILE_BYTES));

    piped(&bench, "tank/home@1", "-u back/unmounted");
    assert_eq!(bench.get("mounted", "back/unmounted"), "no");
    bench.done("zfs mount back/unmounted");
    assert!(bench.path("back/unmounted/1").exists());

    // A mounted tree is renamed and thinned out.
    bench.done("zfs create tank/home/sub");
    bench.done("zfs create tank/home/gone");
    bench.done("zfs snapshot -r tank/home@r");
    piped(&bench, "-R tank/home@r", "back/tree");
    assert!(bench.path("back/tree/sub").exists() && bench.get("mounted", "back/tree/gone") == "yes");
    bench.done("zfs rename tank/home/sub tank/home/other");
    bench.done("zfs destroy -r tank/home/gone");
    fs::write(bench.path("mnt/home/other/x"), "x").unwrap();
    bench.done("zfs snapshot -r tank/home@s");
    piped(&bench, "-R -i @r tank/home@s", "-F back/tree");
    assert_eq!(fs::read_to_string(bench.path("back/tree/other/x")).unwrap(), "x");
    assert_eq!(bench.done("zfs list -H -o name -r back/tree"), "back/tree\nback/tree/other\n");
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
    zdb_finds_nothing(&bench.path("d"), "back");
}

#[test]
fn a_send_that_nobody_reads_keeps_its_snapshot_and_nobody_else() {
    let Some(mut bench) = pools() else { return };
    put(&bench, 1);
    put(&bench, 2);
    let mut sends = command(&bench, "zfs send -v tank/home@2").spawn().unwrap();
    // The send reports progress even if its output is not read.
    let mut said = std::io::BufReader::new(sends.stderr.take().unwrap());
    let mut lines = String::new();
    while lines.matches("tank/home@2\n").count() < 3 {
        assert!(std::io::BufRead::read_line(&mut said, &mut lines).unwrap() > 0, "{lines}");
    }
    let busy = bench.fails("zfs destroy tank/home@2");
    assert!(busy.contains("busy"), "{busy}");
    bench.done("zfs destroy tank/home@1");
    fs::remove_file(bench.path("mnt/home/1")).unwrap();
    signal(&sends, Signal::KILL);
    sends.wait().unwrap();
    let begun = Instant::now();
    while !command(&bench, "zfs destroy tank/home@2").output().unwrap().status.success() {
        assert!(begun.elapsed() < PATIENCE, "the snapshot is still held");
        std::thread::sleep(Duration::from_millis(100));
    }

    put(&bench, 4);
    let mut sends = command(&bench, "zfs send tank/home@4").spawn().unwrap();
    sends.stdout.take().unwrap().read_exact(&mut [0; 1000]).unwrap();
    let output = sends.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Broken pipe"), "{output:?}");
    bench.done("zfs destroy tank/home@4");
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn an_interrupted_receive_goes_on_by_its_token_and_a_daemon_that_is_killed_too() {
    let Some(mut bench) = pools() else { return };
    (1..=4).for_each(|seed| put(&bench, seed));
    let stream = command(&bench, "zfs send tank/home@4").output().unwrap().stdout;
    let begun = |bench: &Bench, words: &str, part: &[u8]| {
        let mut child = command(bench, &format!("zfs receive {words}"));
        let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(part).unwrap();
        let begun = Instant::now();
        while rustix::io::ioctl_fionread(child.stdin.as_ref().unwrap()).unwrap() > 0 {
            assert!(begun.elapsed() < PATIENCE, "nothing is read");
            std::thread::sleep(Duration::from_millis(10));
        }
        child
    };
    let half = &stream[..stream.len() / 2];
    // Another user's command does not stumble over it.
    let mut interrupted = begun(&bench, "back/home", half);
    bench.done("zfs create back/other");
    signal(&interrupted, Signal::INT);
    let begun_at = Instant::now();
    let status = loop {
        if let Some(status) = interrupted.try_wait().unwrap() {
            break status;
        }
        assert!(begun_at.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(1));
    assert_eq!(bench.done("zfs list -H -o name -r back"), "back\nback/other\n");

    // A killed client is treated like an interrupted one.
    let mut killed = begun(&bench, "-s back/home", half);
    signal(&killed, Signal::KILL);
    killed.wait().unwrap();
    let begun_at = Instant::now();
    let rest = loop {
        let token = bench.get("receive_resume_token", "back/home");
        let rest = command(&bench, &format!("zfs send -t {token}")).output().unwrap().stdout;
        if (1000..stream.len() * 3 / 4).contains(&rest.len()) {
            break rest;
        }
        assert!(begun_at.elapsed() < PATIENCE, "what has come is not noted: {} bytes", rest.len());
    };
    let mut going_on = begun(&bench, "-s back/home", &rest[..rest.len() / 2]);
    bench.signal(Signal::KILL);
    going_on.wait().unwrap();
    bench.start(&[]);
    let token = bench.get("receive_resume_token", "back/home");
    piped(&bench, &format!("-t {token}"), "-s back/home");
    assert!(fs::read(bench.path("back/home/4")).unwrap() == noise(4, FILE_BYTES));
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "back");
}

/// `cenote replicate --jobs` with Ctrl-C, which reaches all its children, too.
#[test]
fn parallel_copies_that_were_interrupted_are_completed_by_the_next_run() {
    let Some(mut bench) = pools() else { return };
    let names = ["one", "three", "two"];
    for (seed, name) in (1..).zip(names) {
        bench.done(&format!("zfs create tank/home/{name}"));
        fs::write(bench.path(&format!("mnt/home/{name}/file")), noise(seed, FILE_BYTES)).unwrap();
    }
    bench.done("zfs snapshot -r tank/home@1");
    let mut run = command(&bench, "replicate -R --jobs 3 --rate 1M tank/home back/tree");
    let mut run = run.process_group(0).spawn().unwrap();
    // No file is there before its three seconds are over.
    let received =
        bench.until("zfs list -H -r -o name back", |listed| listed.matches("back/tree/").count() == 3);
    assert!(run.try_wait().unwrap().is_none(), "{received}");
    let interrupted = Instant::now();
    kill_process_group(Pid::from_child(&run), Signal::INT).unwrap();
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("again to go on"), "{said}");
    assert!(interrupted.elapsed() < PATIENCE / 2, "{:?}", interrupted.elapsed());
    let tokens = bench.done("zfs get -H -r -o value receive_resume_token back/tree");
    assert!(tokens.lines().any(|token| token.starts_with("1-")), "{tokens}");
    let completed = bench.done("replicate -R --jobs 3 --verify tank/home back/tree");
    assert_eq!(completed.matches("up to date with @1; verified").count(), 4, "{completed}");
    let tokens = bench.done("zfs get -H -r -o value receive_resume_token back/tree");
    assert!(!tokens.contains("1-"), "{tokens}");
    for (seed, name) in (1..).zip(names) {
        let read = bench.run(&["cat", &format!("back/tree/{name}:/file")]);
        assert!(read.stdout == noise(seed, FILE_BYTES), "{}", String::from_utf8_lossy(&read.stderr));
    }
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "back");
}

/// Freed space is usable two txgs later: a task that waits for it must not be refused forever.
#[test]
fn a_receive_that_found_the_pool_full_goes_on_when_there_is_room() {
    let Some(bench) = pools() else { return };
    bench.done("zfs set compression=off tank");
    let bytes = 70 << 20;
    fs::write(bench.path("mnt/home/big"), noise(1, bytes)).unwrap();
    bench.done("zfs snapshot tank/home@1");
    fs::write(bench.path("back/waste"), noise(2, bytes)).unwrap();
    let (_, full) = pipe(&bench, "tank/home@1", "-s back/home");
    assert_eq!(full.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&full.stderr).contains("out of space"), "{full:?}");
    fs::remove_file(bench.path("back/waste")).unwrap();
    bench.done("zfs unmount back");
    bench.done("zfs mount back");
    let token = bench.get("receive_resume_token", "back/home");
    piped(&bench, &format!("-t {token}"), "-s back/home");
    assert!(fs::read(bench.path("back/home/big")).unwrap() == noise(1, bytes));
}

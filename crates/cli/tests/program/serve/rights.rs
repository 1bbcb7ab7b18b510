//! The rights with which the daemon reads files, the input it trusts, and the privileges it drops.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::serve::bench::{Bench, can_mount};

const NOBODY: u32 = 65534;
const ENCRYPTED: &str = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000";

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A key in a file that only this user can read.
fn key(bench: &Bench, name: &str, uid: u32, text: &str) -> String {
    let path = bench.path(name);
    fs::write(&path, format!("{text}\n")).unwrap();
    mode(&path, 0o600);
    chown(&path, Some(uid), Some(uid)).unwrap();
    path.to_str().unwrap().into()
}

fn as_nobody(bench: &Bench, line: &str) -> Output {
    let mut program = bench.program();
    program
        .args(line.split(' '))
        .stdin(Stdio::null())
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .output()
        .unwrap()
}

#[track_caller]
fn nobody_may(bench: &Bench, line: &str) {
    let output = as_nobody(bench, line);
    assert!(output.status.success(), "{line}: {output:?}");
}

#[track_caller]
fn nobody_may_not(bench: &Bench, line: &str, why: &str) {
    let output = as_nobody(bench, line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(why), "{line}: {output:?}");
}

/// A pool whose dataset has its key in a file that only root can read.
fn with_keys() -> (Bench, [String; 3]) {
    let bench = Bench::new(&["a"]);
    mode(bench.folder.path(), 0o755);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    let secret = key(&bench, "secret", 0, "root's secret");
    let own = key(&bench, "own", NOBODY, "nobody's secret");
    let same = key(&bench, "same", NOBODY, "root's secret");
    bench.done(&format!("zfs create {ENCRYPTED} -o keylocation=file://{secret} tank/a"));
    bench.done("zfs unmount tank/a");
    bench.done("zfs unload-key tank/a");
    (bench, [secret, own, same])
}

#[test]
fn keys_are_read_with_the_rights_of_their_user() {
    if !can_mount() {
        return;
    }
    let (bench, [secret, own, same]) = with_keys();
    bench.done("zfs allow -u 65534 create,mount,encryption,keyformat,pbkdf2iters,load-key,change-key tank");

    // Creating a dataset.
    let create = |key: &str| format!("zfs create {ENCRYPTED} --key tank/b=file:{key} tank/b");
    nobody_may_not(&bench, &create(&secret), "Permission denied");
    nobody_may_not(&bench, &create(&own), "it may only be mounted by root");
    assert_eq!(bench.get("keystatus", "tank/b"), "available");
    // The daemon would later follow a stored location.
    for name in ["keylocation", "KEYLOCATION"] {
        for key in [&secret, &own] {
            let line = format!("zfs create {ENCRYPTED} -o {name}=file://{key} tank/c");
            nobody_may_not(&bench, &line, "only root and its user may set it");
        }
    }

    // Loading a key, from any location and from the one set by root.
    nobody_may_not(&bench, &format!("zfs load-key -n -L file://{secret} tank/b"), "Permission denied");
    nobody_may_not(&bench, "zfs load-key -n -L file:///no/such/file tank/b", "No such file");
    nobody_may_not(&bench, "zfs load-key -n -L file:///dev/zero tank/b", "not a regular file");
    nobody_may(&bench, &format!("zfs load-key -n -L file://{own} tank/b"));
    nobody_may_not(&bench, "zfs load-key tank/a", "Permission denied");
    assert_eq!(bench.get("keystatus", "tank/a"), "unavailable");
    nobody_may(&bench, &format!("zfs load-key -L file://{same} tank/a"));
    assert_eq!(bench.get("keystatus", "tank/a"), "available");

    // Changing a key: the new one would come from the location set by root.
    nobody_may_not(&bench, "zfs change-key tank/a", "Permission denied");
    bench.done("zfs unload-key tank/a");
    bench.done("zfs load-key tank/a");
}

#[test]
fn groups_of_a_user_count_and_those_of_the_daemon_do_not() {
    if !can_mount() {
        return;
    }
    let (bench, [_, _, same]) = with_keys();
    bench.done("zfs allow -e load-key tank");
    chown(&same, Some(0), Some(4242)).unwrap();
    mode(Path::new(&same), 0o040);
    let line = format!("zfs load-key -n -L file://{same} tank/a");
    nobody_may_not(&bench, &line, "Permission denied");
    let mut member = bench.program();
    let output = member.args(line.split(' ')).stdin(Stdio::null()).uid(NOBODY).gid(4242).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // Nor does the daemon keep a user's rights: it still mounts and reads for root.
    bench.done("zfs load-key tank/a");
    bench.done("zfs mount tank/a");
}

#[test]
fn what_an_image_of_a_user_remembers_is_not_read_as_root() {
    if !can_mount() {
        return;
    }
    let (mut bench, [secret, ..]) = with_keys();
    bench.done("zpool export tank");
    chown(bench.path("d/a"), Some(NOBODY), Some(NOBODY)).unwrap();
    let import = bench.run(&["zpool", "import", "-l", "tank"]);
    let said = String::from_utf8_lossy(&import.stderr);
    assert!(said.contains("users other than root can write its devices"), "{import:?}");
    assert!(said.contains("is not read"), "{import:?}");
    assert_eq!(bench.get("keystatus", "tank/a"), "unavailable");
    assert!(bench.fails("zfs load-key tank/a").contains("is not read"));
    assert_eq!(bench.get("keystatus", "tank/a"), "unavailable");
    bench.signal(rustix::process::Signal::TERM);
    bench.start(&["--load-keys"]);
    assert_eq!(bench.get("keystatus", "tank/a"), "unavailable");
    // Root names the location.
    bench.done(&format!("zfs load-key -L file://{secret} tank/a"));
    assert_eq!(bench.get("keystatus", "tank/a"), "available");
    bench.done("zpool export tank");

    chown(bench.path("d/a"), Some(0), Some(0)).unwrap();
    bench.done("zpool import -l tank");
    assert_eq!(bench.get("keystatus", "tank/a"), "available");
    bench.signal(rustix::process::Signal::TERM);
}

#[test]
fn images_of_users_bring_no_programs_with_set_id_bits() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank a"));
    let options = || {
        let table = fs::read_to_string("/proc/mounts").unwrap();
        let line =
            table.lines().find(|line| line.contains(&format!(" {mnt} "))).unwrap_or_default().to_owned();
        ["nosuid", "nodev"].map(|option| line.split([' ', ',']).any(|word| word == option))
    };
    assert_eq!(options(), [false, false]);
    // Owned by another user, or writable by others.
    for (owner, bits) in [(NOBODY, 0o600), (0, 0o666), (0, 0o660)] {
        bench.done("zpool export tank");
        chown(bench.path("d/a"), Some(owner), None).unwrap();
        mode(&bench.path("d/a"), bits);
        bench.done("zpool import tank");
        assert_eq!(options(), [true, true], "{owner} {bits:o}");
    }
    assert_eq!(bench.get("setuid", "tank"), "off");
    // A property comes with the image, like everything else in it.
    bench.done("zfs set setuid=on tank");
    assert_eq!(options(), [true, true]);
    bench.done("zfs unmount tank");
    bench.done("zfs mount -o suid,dev tank");
    assert_eq!(options(), [false, false]);
    bench.done("zpool export tank");
    mode(&bench.path("d/a"), 0o644);
    bench.done("zpool import tank");
    assert_eq!(options(), [false, false]);
}

/// Starts a daemon that refuses these options; returns its message.
fn refused(bench: &Bench, options: &[&str]) -> String {
    let mut program = bench.program();
    program.args(["serve", "-d", ".", "-N"]).args(options).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut daemon = program.spawn().unwrap();
    let mut text = String::new();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(daemon.stderr.take().unwrap()));
    let is_serving = lines.by_ref().map_while(Result::ok).any(|line| {
        text += &line;
        line.contains("serving")
    });
    daemon.kill().ok();
    assert!(!daemon.wait().unwrap().success());
    assert!(!is_serving, "{text}");
    text
}

#[test]
fn state_that_others_can_have_written_is_not_believed() {
    let mut bench = Bench::new(&["a"]);
    bench.signal(rustix::process::Signal::TERM);
    let [shared, theirs, victim] = ["shared", "theirs", "victim"].map(|name| bench.path(name));
    fs::write(&victim, "kept").unwrap();
    fs::create_dir(&shared).unwrap();
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    let in_shared = bench.text("shared/sock");

    // Folders of the socket and of the state.
    for bits in [0o777, 0o775] {
        mode(&shared, bits);
        assert!(refused(&bench, &["--socket", &in_shared]).contains("others can write it"));
    }
    let state = bench.text("theirs/pools.json");
    assert!(refused(&bench, &["--state", &state]).contains("belongs to user 65534"));
    assert_eq!(fs::read_dir(&shared).unwrap().count() + fs::read_dir(&theirs).unwrap().count(), 0);

    // Files put by others into a folder open to all, such as /tmp.
    mode(&shared, 0o1777);
    let file = shared.join("pools.json");
    fs::write(&file, r#"{"pools": [{"name": "tank", "guid": 7, "devices": ["/tmp/image"]}]}"#).unwrap();
    chown(&file, Some(NOBODY), None).unwrap();
    assert!(refused(&bench, &["--socket", &in_shared]).contains("belongs to user 65534"));
    chown(&file, Some(0), None).unwrap();
    mode(&file, 0o666);
    assert!(refused(&bench, &["--socket", &in_shared]).contains("others can write it"));
    fs::remove_file(&file).unwrap();
    for name in ["pools.json", "daemon.lock", "connections"] {
        let file = shared.join(name);
        fs::remove_file(&file).ok();
        symlink(&victim, &file).unwrap();
        assert!(refused(&bench, &["--socket", &in_shared]).contains("is a link"), "{name}");
        fs::remove_file(&file).unwrap();
    }
    fs::hard_link(&victim, &file).unwrap();
    assert!(refused(&bench, &["--socket", &in_shared]).contains("has other names"));
    fs::remove_file(&file).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    // There, the daemon keeps its own files.
    bench.start(&["--socket", &in_shared]);
    bench.signal(rustix::process::Signal::TERM);
}

/// Fields of a process in `/proc`.
fn status(pid: u32) -> impl Fn(&str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    move |field| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
        line.unwrap().trim().to_owned()
    }
}

#[test]
fn the_daemon_and_its_helpers_give_up_what_they_do_not_use() {
    const SYS_MODULE: u64 = 1 << 16;
    const SYS_BOOT: u64 = 1 << 22;
    const SYS_ADMIN: u64 = 1 << 21;
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    // A mount needs a hand (`cenote_fuse::mount::hand`).
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    let daemon = bench.daemon.as_ref().unwrap().id();
    let children = fs::read_dir(format!("/proc/{daemon}/task")).unwrap().flat_map(|thread| {
        let children = fs::read_to_string(thread.unwrap().path().join("children")).unwrap_or_default();
        children.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>()
    });
    let processes: Vec<u32> = std::iter::once(daemon).chain(children).collect();
    assert!(processes.len() >= 3, "{processes:?}");
    let mut without_any = 0;
    for pid in processes {
        let of = status(pid);
        assert_eq!(of("Seccomp"), "2");
        let kept = u64::from_str_radix(&of("CapPrm"), 16).unwrap();
        let bounding = u64::from_str_radix(&of("CapBnd"), 16).unwrap();
        assert_eq!((kept | bounding) & (SYS_MODULE | SYS_BOOT), 0);
        without_any += u32::from(kept == 0);
        assert!(kept == 0 || kept & SYS_ADMIN != 0);
    }
    assert_eq!(without_any, 1, "the guard");
}

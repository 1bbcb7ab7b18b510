//! Rights of users other than administrators.

use std::os::unix::process::CommandExt;
use std::process::Output;

use crate::serve::bench::{Bench, can_mount, zdb_finds_nothing};

const NOBODY: u32 = 65534;

struct Users(Bench);

impl Users {
    fn run(&self, line: &str, (uid, gid): (u32, u32)) -> Output {
        let mut program = self.0.program();
        program.args(line.split(' ')).uid(uid).gid(gid).current_dir("/").output().unwrap()
    }

    /// User nobody can do this.
    #[track_caller]
    fn may(&self, line: &str) -> String {
        let output = self.run(line, (NOBODY, NOBODY));
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// User nobody can't, and gets a message.
    #[track_caller]
    fn may_not(&self, line: &str, why: &str) {
        let output = self.run(line, (NOBODY, NOBODY));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{line}: {output:?}");
    }
}

fn users() -> Users {
    let bench = Bench::new(&["a"]);
    std::fs::set_permissions(bench.folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    bench.done("zfs create tank/home");
    Users(bench)
}

#[test]
fn users_do_what_is_delegated_to_them_and_nothing_else() {
    if !can_mount() {
        return;
    }
    let mut users = users();
    users.may_not("zfs create tank/home/x", "cannot create 'tank/home/x': permission denied");
    users.may_not("zfs snapshot tank/home@a", "cannot create snapshots : permission denied");
    users.may_not("zpool export tank", "permission denied");
    users.may_not("cat tank:/x", "permission denied");
    users.may_not("zfs allow -u 65534 create tank", "cannot set permissions on 'tank': permission denied");

    let allow = |line: &str| users.0.done(&format!("zfs allow {line}"));
    allow("-u 65534 create,mount,snapshot tank/home");
    allow("-c destroy,@tuning tank/home");
    allow("-s @tuning compression tank");
    // Created but not mounted: only administrators mount.
    users.may_not("zfs create tank/home/x", "it may only be mounted by root");
    users.may_not("zfs create -o quota=1G tank/home/y", "permission denied");
    users.may_not("zfs create -o compression=lz4 tank/home/x/deeper", "may only be mounted by root");
    users.may_not("zfs create tank/x", "cannot create 'tank/x': permission denied");
    users.may("zfs snapshot tank/home/x@a");
    users.may("zfs set compression=zstd tank/home/x");
    users.may_not("zfs set compression=zstd tank/home", "cannot set property for 'tank/home'");
    users.may_not("zfs set quota=1G tank/home/x", "permission denied");
    users.may_not("zfs rollback tank/home/x@a", "cannot rollback 'tank/home/x': permission denied");
    users.may_not("zfs destroy tank/home/x@a", "cannot destroy snapshots: permission denied");
    users.may_not("zfs mount tank/home/x", "permission denied");
    users.may_not("zfs destroy -r tank/home", "permission denied");
    assert!(users.may("zfs allow tank/home/x").contains("user nobody @tuning,destroy"));
    users.may_not("zfs rename tank/home/x tank/home/z", "cannot rename 'tank/home/x': permission denied");

    // A permission granted for the dataset alone does not apply below it, and snapshots are below.
    allow("-l -u 65534 destroy,userprop tank/home/x");
    users.may("zfs set a:b=c tank/home/x");
    users.may_not("zfs set a:b=c tank/home/x/deeper", "permission denied");
    users.may_not("zfs destroy -r tank/home/x", "permission denied");
    allow("-d -u 65534 destroy,rollback tank/home");
    users.may("zfs rollback tank/home/x@a");
    users.may("zfs destroy -r tank/home/x");

    // Delegating permissions, and giving them up.
    allow("-u 65534 allow tank/home");
    users.may("zfs allow -g 4242 snapshot tank/home");
    users.may_not("zfs allow -g 4242 rename tank/home", "permission denied");
    users.may_not("zfs allow -g 4242 allow tank/home", "permission denied");
    let member = users.run("zfs snapshot tank/home@by-group", (4000, 4242));
    assert!(member.status.success(), "{member:?}");
    users.may_not("zfs unallow -g 4242 snapshot tank/home", "permission denied");
    users.may("zfs unallow -u 65534 snapshot tank/home");
    users.may_not("zfs snapshot tank/home@b", "permission denied");

    // The daemon reads files with the user's rights, but no files that it would have to read again later.
    allow("-e load-key,change-key,create,mount tank");
    users.may_not("zfs create --key tank/k=file:/etc/shadow tank/k", "Permission denied");
    users.may_not("zfs create -o keylocation=file:///etc/shadow tank/k", "only root and its user may set it");

    users.0.done("zpool set delegation=off tank");
    users.may_not("zfs create tank/home/x", "delegated administration is disabled on pool");
    users.0.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&users.0.path("d"), "tank");
}

#[test]
fn what_users_have_moved_is_not_mounted_there_by_the_next_command_of_root() {
    if !can_mount() {
        return;
    }
    let mut users = users();
    let (home, taken) = (users.0.path("mnt/home"), users.0.path("taken"));
    users.0.done("zfs allow -u 65534 mountpoint,userprop tank/home");
    users.0.done("zfs create tank/home/below");
    users.may_not(&format!("zfs set mountpoint={} tank/home", taken.display()), "that is for root");
    users.0.done("zfs create tank/other");
    users.0.done("zfs set atime=off tank/home");
    let mounts = || std::fs::read_to_string("/proc/mounts").unwrap();
    let is_at = |dir: &std::path::Path| mounts().contains(&format!(" {} ", dir.display()));
    assert!(is_at(&home) && !is_at(&taken), "{}", mounts());
    // Nor does the next daemon mount it, nor a request for all file systems.
    users.0.signal(rustix::process::Signal::TERM);
    users.0.start(&[]);
    users.0.done("zfs mount -a");
    assert!(!is_at(&home) && !is_at(&taken) && !is_at(&taken.join("below")), "{}", mounts());
    assert!(is_at(&users.0.path("mnt/other")), "{}", mounts());
    // Root names that file system.
    users.0.done("zfs mount tank/home");
    assert!(is_at(&taken) && !is_at(&home), "{}", mounts());
    // A user's new file system is not mounted either, whatever its user then says of its mount point.
    users.0.done("zfs allow -u 65534 create,mount,rename,mountpoint tank/home");
    users.run("zfs create tank/home/new", (NOBODY, NOBODY));
    users.0.done("zfs list tank/home/new");
    for line in [
        "inherit mountpoint tank/home/new",
        "set mountpoint=none tank/home/new",
        "inherit -S mountpoint tank/home/new",
        "rename -p tank/home/new tank/home/up/new",
    ] {
        users.run(&format!("zfs {line}"), (NOBODY, NOBODY));
    }
    assert!(!mounts().contains("/new ") && !mounts().contains("/up "), "{}", mounts());
    users.0.done("zfs destroy -r tank/home/up");
    // Root also sets its mount point from now on.
    users.0.done(&format!("zfs set mountpoint={} tank/home", home.display()));
    users.0.signal(rustix::process::Signal::TERM);
    users.0.start(&[]);
    assert!(is_at(&home) && is_at(&home.join("below")) && !is_at(&taken), "{}", mounts());
}

#[test]
fn what_is_checked_is_what_is_stored() {
    let users = users();
    users.0.done("zfs allow -u 65534 create,mount,encryption,keyformat,userprop tank/home");
    let secret = users.0.text("secret");
    std::fs::write(&secret, "not for others").unwrap();
    for typed in ["keylocation", "KEYLOCATION", "KeyLocation"] {
        let line = format!(
            "zfs create -o encryption=on -o keyformat=passphrase -o {typed}=file://{secret} \
                            tank/home/x"
        );
        users.may_not(&line, "only root and its user may set it");
    }
    for own in ["org.cenote:serve=on", "org.cenote:iscsi.lun=0", "org.cenote:iscsi.reservations=v1_0"] {
        users.may_not(&format!("zfs set {own} tank/home"), "only root and the daemon's user");
    }
    users.may("zfs set org.example:note=mine tank/home");
}

#[test]
fn who_was_given_snapshots_makes_them_as_directories_within_the_limit() {
    if !can_mount() {
        return;
    }
    let users = users();
    let place = users.0.path("mnt/home/.zfs/snapshot");
    let as_nobody = |program: &str, names: &[&str]| {
        let mut command = std::process::Command::new(program);
        command.args(names.iter().map(|name| place.join(name))).uid(NOBODY).gid(NOBODY);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (is_done, said) = as_nobody("mkdir", &["a"]);
    assert!(!is_done && said.contains("not permitted"), "{said}");
    users.0.done("zfs allow -u 65534 snapshot tank/home");
    assert_eq!(as_nobody("mkdir", &["a"]), (true, String::new()));
    for (program, names) in [("rmdir", &["a"][..]), ("mv", &["a", "b"])] {
        assert!(!as_nobody(program, names).0, "{program}");
    }
    users.0.done("zfs set snapshot_limit=2 tank/home");
    assert_eq!(as_nobody("mkdir", &["b"]), (true, String::new()));
    let (is_done, said) = as_nobody("mkdir", &["c"]);
    assert!(!is_done && said.contains("quota exceeded"), "{said}");
    users.0.done("zfs allow -u 65534 destroy,rename,mount,create tank/home");
    assert_eq!(as_nobody("rmdir", &["a"]), (true, String::new()));
    assert_eq!(as_nobody("mv", &["b", "d"]), (true, String::new()));
    assert_eq!(users.0.done("zfs list -H -o name -t snapshot"), "tank/home@d\n");
    users.0.done("zpool set delegation=off tank");
    assert!(!as_nobody("rmdir", &["d"]).0);
}

#[test]
fn users_send_what_they_may() {
    if !can_mount() {
        return;
    }
    let users = users();
    users.0.done("zfs create tank/home/x");
    users.0.done("zfs snapshot -r tank/home@a");
    let denied = "permission denied";
    users.may_not("zfs send tank/home@a", denied);
    users.0.done("zfs allow -l -u 65534 send:raw tank/home");
    users.may_not("zfs send tank/home@a", denied);
    assert!(users.run("zfs send -w tank/home@a", (NOBODY, NOBODY)).status.success());
    users.0.done("zfs allow -l -u 65534 send tank/home");
    let sent = users.run("zfs send tank/home@a", (NOBODY, NOBODY));
    assert!(sent.status.success() && sent.stdout.len() > 312, "{sent:?}");
    users.may_not("zfs send -R tank/home@a", denied);
    users.may_not("zfs send tank/home/x@a", denied);
    users.0.done("zfs allow -d -u 65534 send tank/home");
    assert!(users.run("zfs send -R tank/home@a", (NOBODY, NOBODY)).status.success());
    users.may_not("zfs send tank@a", denied);
}

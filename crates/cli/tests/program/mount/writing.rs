//! Refused writes, and mode bits cleared by writing.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use rustix::fs::FallocateFlags;

use crate::mount::mounted::Pool;

#[test]
fn a_file_to_append_to_keeps_its_owner_mode_and_times() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let path = mounted.path("log");
    fs::write(&path, "one\n").unwrap();
    let chattr = |flag| std::process::Command::new("chattr").arg(flag).arg(&path).status().unwrap();
    assert!(chattr("+a").success());
    let is_refused = |result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    };
    is_refused(fs::set_permissions(&path, fs::Permissions::from_mode(0o777)));
    is_refused(std::os::unix::fs::chown(&path, Some(1), Some(1)));
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    is_refused(file.set_modified(std::time::SystemTime::UNIX_EPOCH));
    file.write_all(b"two\n").unwrap();
    assert!(std::process::Command::new("touch").arg(&path).status().unwrap().success());
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    drop(file);
    assert!(chattr("-a").success());
    mounted.unmount();
}

#[test]
fn more_than_there_is_room_for_can_not_be_allocated() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let file = File::create(mounted.path("file")).unwrap();
    let free = rustix::fs::statvfs(&mounted.dir).unwrap();
    let room = free.f_bavail * free.f_frsize;
    for flags in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE] {
        let refused = rustix::fs::fallocate(&file, flags, 0, room).unwrap_err();
        assert_eq!(refused, rustix::io::Errno::NOSPC);
    }
    assert_eq!(file.metadata().unwrap().len(), 0);
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, room / 2).unwrap();
    assert_eq!(file.metadata().unwrap().len(), room / 2);
    drop(file);
    mounted.unmount();
}

/// `stat -c %a` asks only for the mode, which the kernel would answer by itself.
#[test]
fn a_write_by_someone_else_takes_the_set_id_bits_at_once() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let path = mounted.path("program");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "echo y >&0 && stat -Lc %a /dev/stdin"]).current_dir("/");
    shell.stdin(OpenOptions::new().read(true).write(true).open(&path).unwrap()).uid(65534).gid(65534);
    let output = shell.output().unwrap();
    drop(shell);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("777\n"), "{output:?}");
    mounted.unmount();
}

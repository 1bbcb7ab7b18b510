//! A pool of one file, mounted by the built program for the length of a test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::can_mount;
use crate::common::disks::Disks;

/// Time limit of a test. After it the file system is aborted, and requests that wait for it fail.
const LIMIT: Duration = Duration::from_secs(300);

/// A pool, `tank`, and a folder to mount it on.
pub struct Pool {
    pub disks: Disks,
    folder: tempfile::TempDir,
    _watchdog: mpsc::Sender<()>,
}

impl Pool {
    /// `None`, with a message, where nothing can be mounted.
    pub fn new() -> Option<Pool> {
        if !can_mount() {
            return None;
        }
        let disks = Disks::new(&[512]);
        disks.cenote("zpool create -O acltype=posix -O xattr=sa tank", &[&disks.path().join("a")]);
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("mnt");
        std::fs::create_dir(&dir).unwrap();
        let (_watchdog, ended) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if ended.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("nothing has happened for {LIMIT:?}: the file system is aborted");
                umount(&dir, "-f");
            }
        });
        Some(Pool { disks, folder, _watchdog })
    }

    pub fn dir(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    /// The program's standard error so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("said")).unwrap()
    }

    /// Starts `cenote mount` with these words.
    pub fn start(&self, words: &str) -> Child {
        let said = std::fs::File::create(self.folder.path().join("said")).unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
        program.arg("--disks").arg(self.disks.path()).arg("mount").args(words.split_whitespace());
        program.arg(self.dir()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap()
    }

    /// Mounts, with these words before the folder.
    pub fn mount(&self, words: &str) -> Mounted {
        let mut mounted = Mounted { dir: self.dir(), child: self.start(words) };
        let until = Instant::now() + Duration::from_secs(60);
        while !self.said().contains("is mounted on") {
            let ended = mounted.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < until, "not mounted: {ended:?} {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
        mounted
    }
}

/// A mounted file system. It is unmounted even if the test fails.
pub struct Mounted {
    pub dir: PathBuf,
    child: Child,
}

impl Mounted {
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Unmounts, and waits for the program. While another test's thread starts a program, the child briefly
    /// holds the files open in this process: the mount is then busy.
    pub fn unmount(mut self) {
        let until = Instant::now() + Duration::from_secs(20);
        while !umount(&self.dir, "") {
            assert!(Instant::now() < until, "it is busy");
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = self.wait();
        assert!(status.success(), "{status}");
    }

    pub fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status,
                None => assert!(Instant::now() < until, "the program does not end"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the program, which leaves a dead mount.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            umount(&self.dir, "-l");
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

fn umount(dir: &Path, option: &str) -> bool {
    let mut umount = Command::new("umount");
    umount.args(Some(option).filter(|option| !option.is_empty())).arg(dir).status().is_ok_and(|s| s.success())
}

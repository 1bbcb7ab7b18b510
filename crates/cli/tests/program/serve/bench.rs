//! A folder with disks, a socket and mount points; and a daemon.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub use crate::common::can_mount;
pub use cenote_testkit::zdb_finds_nothing;

/// Time limit of any step on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with disks, a socket and a mount point; and a daemon.
pub struct Bench {
    pub folder: TempDir,
    pub daemon: Option<Child>,
}

impl Bench {
    pub fn new(disks: &[&str]) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("d")).unwrap();
        for disk in disks {
            let file = fs::File::create(folder.path().join("d").join(disk)).unwrap();
            file.set_len(256 << 20).unwrap();
        }
        let mut bench = Bench { folder, daemon: None };
        bench.start(&[]);
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().into()
    }

    pub fn program(&self) -> Command {
        self.programs()()
    }

    /// The program, for threads that continue while the daemon restarts.
    pub fn programs(&self) -> impl Fn() -> Command + Sync + use<> {
        let (folder, socket) = (self.path("d"), self.path("sock"));
        move || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
            command.current_dir(&folder).env("CENOTE_SOCKET", &socket).env_remove("CENOTE_DISKS");
            command
        }
    }

    pub fn start(&mut self, more: &[&str]) {
        self.start_program(self.program(), more);
    }

    /// The daemon of a machine with this hostid.
    pub fn start_as(&mut self, hostid: &str) {
        let mut program = self.program();
        program.env("ZFS_HOSTID", hostid);
        self.start_program(program, &[]);
    }

    fn start_program(&mut self, mut program: Command, more: &[&str]) {
        let mut daemon =
            program.args(["serve", "-d", "."]).args(more).stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(daemon.stderr.take().unwrap()).lines();
        self.daemon = Some(daemon);
        let is_ready = messages.by_ref().map_while(Result::ok).any(|line| line.contains("serving"));
        assert!(is_ready, "the daemon ended");
        // Later messages must not fill the pipe.
        std::thread::spawn(move || messages.for_each(drop));
    }

    pub fn run(&self, words: &[&str]) -> Output {
        self.program().args(words).stdin(Stdio::null()).output().unwrap()
    }

    /// The same with standard input.
    pub fn run_with(&self, line: &str, input: &[u8]) -> Output {
        let mut program = self.program();
        program.args(line.split(' ')).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input).ok();
        child.wait_with_output().unwrap()
    }

    /// The value of a property.
    #[track_caller]
    /// Copies a 3 MB file into the pool `tank`; the seed gives its name and content.
    pub fn fill(&self, seed: u8) {
        let content: Vec<u8> =
            (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed).collect();
        fs::write(self.path("d/file"), content).unwrap();
        self.done(&format!("cp file tank:/{seed}"));
    }

    pub fn get(&self, property: &str, dataset: &str) -> String {
        self.done(&format!("zfs get -H -o value {property} {dataset}")).trim().into()
    }

    /// Runs a line that must succeed; returns its output.
    #[track_caller]
    pub fn done(&self, line: &str) -> String {
        let output = self.run(&line.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a line until its output is as wanted; returns that output.
    #[track_caller]
    pub fn until(&self, line: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let output = self.done(line);
            if is_so(&output) {
                return output;
            }
            assert!(begun.elapsed() < PATIENCE, "{line}: {output}");
            sleep(Duration::from_millis(100));
        }
    }

    /// Runs a line that must fail; returns its message.
    #[track_caller]
    pub fn fails(&self, line: &str) -> String {
        let output = self.run(&line.split(' ').collect::<Vec<_>>());
        assert!(!output.status.success(), "{line}: succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    pub fn signal(&mut self, signal: rustix::process::Signal) {
        let mut daemon = self.daemon.take().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&daemon), signal).unwrap();
        let begun = Instant::now();
        while daemon.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE, "the daemon does not end");
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().ok();
            daemon.wait().ok();
        }
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let here = self.folder.path().to_str().unwrap();
        for dir in table.lines().filter_map(|line| line.split(' ').nth(1)).filter(|dir| dir.starts_with(here))
        {
            Command::new("umount").args(["-l", dir]).status().ok();
        }
    }
}

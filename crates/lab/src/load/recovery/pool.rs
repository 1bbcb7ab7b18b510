//! The pool to be damaged, driven through `zpool` commands.
//!
//! Safeguards: its name starts with [`PREFIX`] and includes this process's id. `zpool create` without `-f`
//! refuses disks of another pool, and a name in use. Each command that changes the pool first checks its
//! GUID. The pool is not in the cache file, so the next boot does not import it; it is destroyed on drop.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::holder::Holder;
use crate::load::control::Control;
use crate::load::program;
use crate::{LabError, Result};

pub const PREFIX: &str = "cenote-lab-";

#[derive(Debug)]
pub struct TestPool<'a> {
    holder: &'a Holder,
    name: String,
    guid: String,
    destroyed: bool,
}

/// Result of a scrub or resilver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repair {
    pub elapsed_ns: u64,
    /// Bytes repaired or rewritten.
    pub repaired_bytes: u64,
    pub examined_bytes: u64,
}

impl<'a> TestPool<'a> {
    /// Creates a pool and mounts it at `mount`.
    pub fn create(
        holder: &'a Holder,
        layout: &str,
        record_bytes: u64,
        disks: &[PathBuf],
        mount: &Path,
    ) -> Result<TestPool<'a>> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let mut command =
            holder.zpool(&["create", "-o", "cachefile=none", "-O", "compression=off", "-O", "atime=off"])?;
        // Users' reads must come from the disks.
        command.args(["-O", "primarycache=metadata"]);
        let records = format!("recordsize={record_bytes}");
        command.args(["-O", &records, "-m"]).arg(mount).arg(&name).arg(layout).args(disks);
        finish(command)?;
        // From here on, drop destroys the pool after any failure.
        let mut pool = TestPool { holder, name, guid: String::new(), destroyed: false };
        pool.guid = pool.guid_now()?;
        Ok(pool)
    }

    fn guid_now(&self) -> Result<String> {
        Ok(self.output(&["get", "-Hp", "-o", "value", "guid", &self.name])?.trim().to_owned())
    }

    /// A command for this pool, refused if another pool has taken its name.
    fn guarded(&self, words: &[&str]) -> Result<Command> {
        let now = self.guid_now()?;
        if now != self.guid {
            return Err(LabError::Refused(format!(
                "pool {}: another pool now has that name (GUID {now}, expected {}); not touched",
                self.name, self.guid
            )));
        }
        self.holder.zpool(words)
    }

    fn output(&self, words: &[&str]) -> Result<String> {
        finish(self.holder.zpool(words)?)
    }

    pub fn sync(&self) -> Result<()> {
        finish(self.guarded(&["sync", &self.name])?).map(drop)
    }

    pub fn offline(&self, disk: &Path) -> Result<()> {
        let mut command = self.guarded(&["offline", &self.name])?;
        command.arg(disk);
        finish(command).map(drop)
    }

    pub fn scrub(&self, control: &Control) -> Result<Repair> {
        self.timed(self.guarded(&["scrub", &self.name])?, "scrub", control)
    }

    /// Replaces a wiped disk with itself, and waits for the resilver.
    pub fn replace(&self, disk: &Path, control: &Control) -> Result<Repair> {
        let mut command = self.guarded(&["replace", "-f", &self.name])?;
        command.arg(disk);
        self.timed(command, "resilver", control)
    }

    /// As [`Self::replace`], by a sequential rebuild, which verifies nothing. The scrub that follows is
    /// awaited but not timed.
    pub fn rebuild(&self, disk: &Path, control: &Control) -> Result<u64> {
        let mut command = self.guarded(&["replace", "-s", "-f", &self.name])?;
        command.arg(disk);
        let elapsed_ns = self.waited(command, "resilver", control)?;
        self.wait("scrub", control)?;
        Ok(elapsed_ns)
    }

    /// Replaces a disk, possibly missing, with a new one.
    pub fn exchange(&self, disk: &Path, new: &Path, control: &Control) -> Result<Repair> {
        self.put("replace", disk, new, control)
    }

    /// Copies a working disk onto a new one, which takes its place (`zpool evacuate`, of Cenote only).
    pub fn evacuate(&self, disk: &Path, new: &Path, control: &Control) -> Result<Repair> {
        self.put("evacuate", disk, new, control)
    }

    fn put(&self, verb: &str, disk: &Path, new: &Path, control: &Control) -> Result<Repair> {
        let mut command = self.guarded(&[verb, &self.name])?;
        command.arg(disk).arg(new);
        self.timed(command, "replace", control)
    }

    /// Makes this percentage of a disk's sectors unreadable.
    pub fn spoil(&self, disk: &Path, percent: u8) -> Result<()> {
        let mut command = self.holder.inject()?;
        command.arg(&self.name).arg(disk).args(["--error", "read", "--sectors", &percent.to_string()]);
        finish(command).map(drop)
    }

    /// State of a disk, and bytes moved by all disks since the pool was created.
    pub fn look(&self, disk: &Path) -> Result<Look> {
        let words = ["get", "-Hp", "-o", "name,property,value", "state,read_bytes,write_bytes", &self.name];
        let said = self.output(&[&words[..], &["all-vdevs"]].concat())?;
        Ok(Look::read(&said, &disk.file_name().unwrap_or_default().to_string_lossy()))
    }

    /// Runs a command and waits for the activity that it began. Returns the duration of both.
    fn waited(&self, command: Command, activity: &str, control: &Control) -> Result<u64> {
        let began = Instant::now();
        finish(command)?;
        self.wait(activity, control)?;
        Ok(began.elapsed().as_nanos() as u64)
    }

    fn wait(&self, activity: &str, control: &Control) -> Result<()> {
        let mut wait = self.holder.zpool(&["wait", "-t", activity, &self.name])?;
        program::run(&mut wait, Path::new("/dev/null"), control)?.well("zpool wait").map(drop)
    }

    fn timed(&self, command: Command, activity: &str, control: &Control) -> Result<Repair> {
        let elapsed_ns = self.waited(command, activity, control)?;
        let status = self.output(&["status", "-p", &self.name])?;
        let scan = Scan::read(&status).ok_or_else(|| LabError::Program {
            program: "zpool status".into(),
            what: format!("does not mention a finished {activity}:\n{status}"),
        })?;
        if scan.errors > 0 {
            return Err(LabError::Refused(format!(
                "pool {}: the {activity} left {} errors: this damage cannot be repaired",
                self.name, scan.errors
            )));
        }
        let examined_bytes =
            self.output(&["list", "-Hp", "-o", "allocated", &self.name])?.trim().parse().unwrap_or(0);
        Ok(Repair { elapsed_ns, repaired_bytes: scan.repaired_bytes, examined_bytes })
    }

    pub fn destroy(mut self) -> Result<()> {
        finish(self.guarded(&["destroy", "-f", &self.name])?)?;
        self.destroyed = true;
        Ok(())
    }
}

impl Drop for TestPool<'_> {
    fn drop(&mut self) {
        if !self.destroyed && (self.guid.is_empty() || self.guid_now().is_ok_and(|now| now == self.guid)) {
            // After an interrupted run, a failure has no recipient.
            let _ = self.holder.zpool(&["destroy", "-f", &self.name]).and_then(finish);
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Look {
    /// Bytes read from all disks, removed ones included.
    pub read_bytes: u64,
    /// Bytes written to them.
    pub written_bytes: u64,
    /// Part of the pool, but out of use.
    pub is_out: bool,
}

impl Look {
    /// Parses lines of name, property, value.
    fn read(said: &str, disk: &str) -> Look {
        /// `VDEV_STATE_DEGRADED`: a vdev in this or a better state is in use.
        const DEGRADED: u64 = 6;
        let mut look = Look::default();
        for line in said.lines() {
            let mut words = line.split('\t');
            let (Some(name), Some(property), Some(Ok(value))) =
                (words.next(), words.next(), words.next().map(str::parse::<u64>))
            else {
                continue;
            };
            match property {
                "read_bytes" if name == "root-0" => look.read_bytes = value,
                "write_bytes" if name == "root-0" => look.written_bytes = value,
                "state" if name.rsplit('/').next() == Some(disk) => look.is_out = value < DEGRADED,
                _ => {}
            }
        }
        look
    }
}

/// `scan:` line of `zpool status` after a scrub or resilver.
#[derive(Debug, PartialEq, Eq)]
struct Scan {
    repaired_bytes: u64,
    errors: u64,
}

impl Scan {
    /// `scan: scrub repaired 12.5M in 00:00:03 with 0 errors on ...`; `scan: resilvered 1.20G in ...`.
    fn read(status: &str) -> Option<Scan> {
        let line = status.lines().find_map(|line| line.trim().strip_prefix("scan: "))?;
        let mut words = line.split_whitespace();
        let size = loop {
            if matches!(words.next()?, "repaired" | "resilvered") {
                break words.next()?;
            }
        };
        let mut rest = words.skip_while(|&word| word != "with");
        rest.next()?;
        Some(Scan { repaired_bytes: bytes(size)?, errors: rest.next()?.parse().ok()? })
    }
}

/// `12.5M`, `512K`, `0B`, or a plain number, as OpenZFS prints sizes.
fn bytes(text: &str) -> Option<u64> {
    let text = text.strip_suffix('B').unwrap_or(text);
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let number: f64 = text[..split].parse().ok()?;
    let power = match &text[split..] {
        "" => 0,
        unit => 1 + "KMGTPE".find(unit)? as i32,
    };
    Some((number * 1024f64.powi(power)) as u64)
}

fn finish(mut command: Command) -> Result<String> {
    let output = command.output().map_err(LabError::io("cannot run zpool"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    Err(LabError::Program {
        program: format!("zpool {}", words.join(" ")),
        what: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_finds_the_disk_and_what_has_passed() {
        let said = "root-0\tstate\t6\nroot-0\tread_bytes\t70\nroot-0\twrite_bytes\t90\n\
                    mirror-0\tread_bytes\t-\n\
                    a\tstate\t7\na\tread_bytes\t30\nb\tstate\t2\nb\tread_bytes\t40\n";
        let look = Look { read_bytes: 70, written_bytes: 90, is_out: true };
        assert_eq!(Look::read(said, "b"), look);
        assert_eq!(Look::read(said, "a"), Look { is_out: false, ..look });
        assert_eq!(Look::read(said, "c"), Look { is_out: false, ..look }, "it has left");
    }

    #[test]
    fn the_scan_line_of_zpool_status_is_parsed() {
        let scan = |line: &str| Scan::read(&format!("  pool: a\n state: ONLINE\n  scan: {line}\nconfig:\n"));
        let of = |repaired_bytes, errors| Some(Scan { repaired_bytes, errors });
        assert_eq!(
            scan("scrub repaired 12.5M in 00:00:03 with 0 errors on Sun Nov 22 02:00:00 2026"),
            of(13_107_200, 0)
        );
        assert_eq!(
            scan("resilvered 1.25G in 00:10:03 with 3 errors on Sun Nov 22 02:00:00 2026"),
            of(1_342_177_280, 3)
        );
        assert_eq!(scan("scrub repaired 0B in 00:00:00 with 0 errors on Sun Nov 22 02:00:00 2026"), of(0, 0));
        assert_eq!(
            scan("scrub repaired 4096 in 00:00:00 with 0 errors on Sun Nov 22 02:00:00 2026"),
            of(4096, 0)
        );
        assert_eq!(scan("scrub in progress since Sun Nov 22 02:00:00 2026"), None);
        assert_eq!(Scan::read("no pools available"), None);
    }
}

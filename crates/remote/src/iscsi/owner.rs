//! Reservation keys: each names a machine and a process.
//!
//! ```text
//!   hostid, 32 bits | process number, 22 bits | digest of boot, numbering of processes, start: 10 bits
//! ```
//!
//! Idea: a reservation outlives the process that made it. The key lets the next process of the same machine
//! see that its predecessor has ended, also before a restart of the machine, so that a killed daemon gets its
//! disks back at once. Another machine can't know, and refuses.
//!
//! So machines and containers need different hostids, as for multihost protection. A process that has got the
//! number of the old one has another digest, but in one of 1,024 cases; then `-f` is needed.

use cenote_device::hostid;

use crate::process::{boot, life, numbering};

const DIGEST_BITS: u32 = 10;

/// A process that reserves disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    machine: u32,
    process: u32,
}

impl Owner {
    /// This process.
    pub fn this() -> Owner {
        let machine = match hostid() {
            // Without a hostid: the installation.
            0 => digest(&[&std::fs::read_to_string("/etc/machine-id").unwrap_or_default()]) as u32 | 1,
            id => id,
        };
        Owner { machine, process: living(std::process::id()).unwrap_or(0) }
    }

    /// Any process of any machine, for tests.
    pub fn with(machine: u32, process: u32) -> Owner {
        Owner { machine, process }
    }

    /// Another process of the same machine, for tests.
    #[must_use]
    pub fn next(self) -> Owner {
        Owner { process: self.process.wrapping_add(1 << DIGEST_BITS), ..self }
    }

    pub(super) fn key(self) -> u64 {
        u64::from(self.machine) << 32 | u64::from(self.process)
    }

    fn of(key: u64) -> Owner {
        Owner { machine: (key >> 32) as u32, process: key as u32 }
    }

    fn pid(self) -> u32 {
        self.process >> DIGEST_BITS
    }

    /// Whether a key is that of a process of this machine that has ended.
    pub(super) fn knows_as_ended(self, key: u64) -> bool {
        let other = Owner::of(key);
        other.machine == self.machine && living(other.pid()) != Some(other.process)
    }

    /// A key's owner, for messages.
    pub(super) fn describe(self, key: u64) -> String {
        let other = Owner::of(key);
        match other.machine == self.machine {
            true => format!("process {} of this machine (reservation key {key:#x})", other.pid()),
            false => format!("another machine (reservation key {key:#x}; hostid {:x}?)", other.machine),
        }
    }

    /// Identifier of this process's session with a disk (ISID), the same at each connection.
    pub(super) fn isid(self, disk: &str) -> [u8; 6] {
        isid(digest(&[&self.key().to_string(), disk]))
    }
}

/// Of type "random".
pub(super) fn isid(random: u64) -> [u8; 6] {
    let [a, b, c, d, e, ..] = random.to_be_bytes();
    [0x80, a, b, c, d, e]
}

/// The lower half of the key of a living process.
fn living(pid: u32) -> Option<u32> {
    let (is_alive, started) = life(pid)?;
    let digest = digest(&[&boot()?, &numbering()?, &started]) as u32 & ((1 << DIGEST_BITS) - 1);
    is_alive.then_some(pid << DIGEST_BITS | digest)
}

/// FNV-1a, with its bits mixed.
fn digest(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let sum = bytes
        .fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (sum ^ sum >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_whether_its_process_has_ended() {
        let this = Owner::this();
        assert_ne!(this.machine, 0);
        assert!(!this.knows_as_ended(this.key()), "it lives");
        assert!(this.knows_as_ended(this.key() ^ 1), "another process with its number");
        assert!(!this.knows_as_ended(Owner::with(this.machine ^ 1, 1).key()), "nobody knows");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = living(child.id()).unwrap();
        let key = Owner { process, ..this }.key();
        assert!(!this.knows_as_ended(key));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(this.knows_as_ended(key));
        assert!(this.describe(key).contains(&format!("process {} of this machine", child.id())));
        assert_eq!(this.isid("a"), this.isid("a"));
        assert_ne!(this.isid("a"), this.isid("b"));
    }
}

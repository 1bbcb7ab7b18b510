//! Processes of this machine, as the holders of locks in storage name them.

use std::fs;

/// Field of `/proc/PID/stat` after the name: the time at which it began.
const START_FIELD: usize = 19;

/// Whether a process lives, and when it began; `None`: there is no such process.
pub(crate) fn life(pid: u32) -> Option<(bool, String)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let started = fields.nth(START_FIELD - 1)?;
    Some((!["Z", "X", "x"].contains(&state), started.to_owned()))
}

/// This boot of this machine.
pub(crate) fn boot() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().into())
}

/// The numbering of processes: containers have their own.
pub(crate) fn numbering() -> Option<String> {
    Some(fs::read_link("/proc/self/ns/pid").ok()?.to_string_lossy().into_owned())
}

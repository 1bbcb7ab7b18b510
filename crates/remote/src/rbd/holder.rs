//! Records the process with an image's lock, in the image's metadata.
//!
//! Idea: Ceph takes 30 seconds to notice that a killed client is gone. The record lets the next process of
//! the same machine see at once that its predecessor has ended, and lets other machines name the holder. It
//! is only believed if it names the client with the lock, this boot of this machine, and the same numbering
//! of processes (containers have their own).

use std::ffi::CStr;
use std::io;

use super::image::Image;
use crate::error::cleaned;
use crate::process::{boot, life, numbering};

/// The key of the record.
const KEY: &CStr = c"cenote.holder";

/// A process with the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    /// Address of its connection.
    client: String,
    host: String,
    boot: String,
    /// Its numbering of processes.
    numbering: String,
    pid: u32,
    started: String,
}

impl Holder {
    /// This process, with this connection.
    fn this(client: &str) -> Option<Holder> {
        let pid = std::process::id();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Some(Holder {
            client: client.into(),
            host: if host.is_empty() { "-".into() } else { host.replace(char::is_whitespace, "-") },
            boot: boot()?,
            numbering: numbering()?,
            pid,
            started: life(pid)?.1,
        })
    }

    /// Writes this process's record.
    pub(super) fn record(image: &Image, client: &str) -> io::Result<()> {
        match Holder::this(client) {
            Some(holder) => image.put_metadata(KEY, &holder.encoded()).map(drop),
            None => Ok(()),
        }
    }

    /// The record of the client with the lock.
    pub(super) fn of(image: &Image, client: &str) -> Option<Holder> {
        Holder::decoded(&image.metadata(KEY)?).filter(|holder| holder.client == client)
    }

    fn encoded(&self) -> String {
        let Holder { client, host, boot, numbering, pid, started } = self;
        format!("{client} {host} {boot} {numbering} {pid} {started}")
    }

    fn decoded(text: &str) -> Option<Holder> {
        let mut fields = text.split(' ').map(str::to_owned);
        let mut next = || fields.next();
        let (client, host, boot, numbering) = (next()?, next()?, next()?, next()?);
        Some(Holder { client, host, boot, numbering, pid: next()?.parse().ok()?, started: next()? })
    }

    /// Whether it was a process of this machine that has surely ended.
    pub(super) fn has_ended(&self) -> bool {
        let Some(this) = Holder::this(&self.client) else { return false };
        let is_here = this.boot == self.boot && this.numbering == self.numbering;
        is_here && life(self.pid).is_none_or(|(is_alive, started)| !is_alive || started != self.started)
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} of host '{}' ({})", self.pid, cleaned(self.host.as_bytes()), self.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_this_machine_is_known_to_have_ended() {
        let this = Holder::this("10.0.0.1:0/7").unwrap();
        assert_eq!(Holder::decoded(&this.encoded()), Some(this.clone()));
        assert!(!this.has_ended());
        assert!(Holder { started: "1".into(), ..this.clone() }.has_ended(), "another process of that number");
        assert!(Holder { pid: u32::MAX, ..this.clone() }.has_ended());
        assert!(!Holder { pid: u32::MAX, boot: "another".into(), ..this.clone() }.has_ended());
        assert!(!Holder { pid: u32::MAX, numbering: "pid:[1]".into(), ..this }.has_ended());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while life(child.id()).is_some_and(|(is_alive, _)| is_alive) {
            std::thread::yield_now();
        }
        assert!(life(child.id()).is_some_and(|(is_alive, _)| !is_alive), "not waited for, but ended");
        child.wait().unwrap();
    }
}

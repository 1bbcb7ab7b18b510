//! Sessions with a target: login, the disk's description, and the watch over its reservation.
//!
//! ```text
//!   connect:  TCP --> login --> TEST UNIT READY until nothing is left to tell --> description
//!   run:      requests; each second, a look at the keys; at the end, the key is withdrawn
//! ```
//!
//! Idea: each session has the same name and identifier, so the target takes it for the same registrant, and
//! ends the session before it. A new session must find the same disk, and the reservation.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cenote_runtime::{JoinHandle, Runtime};

use super::answers::{self, Capacity, Verdict};
use super::commands::Command;
use super::login::{self, Login};
use super::nexus::{Nexus, PREEMPTED};
use super::reservation;
use crate::dial::Dial;
use crate::error::ServerError;
use crate::requests::{Lane, Requests};
use crate::session::lively::Lively;
use crate::session::{CONNECT, GOODBYE, Protocol, silence};

/// Interval of looks at the reservation.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time for a look.
const LOOK: Duration = Duration::from_secs(4);
/// Sizes of blocks that a pool can use.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 512..=16 << 10;
/// A target that unmaps less at once would need too many commands.
const UNMAP_BYTES_MIN: u64 = 64 << 10;
/// Most data of a request.
const PAYLOAD_BYTES: u64 = 1 << 20;

type Result<T> = std::result::Result<T, ServerError>;

/// A disk of a target.
pub(super) struct Iscsi {
    pub(super) login: Login,
    pub(super) isid: [u8; 6],
    pub(super) dial: Arc<dyn Dial>,
    pub(super) runtime: Runtime,
    /// The last sign of life of a connection.
    pub(super) alive_ns: Arc<AtomicU64>,
    /// As first described.
    pub(super) facts: Option<Facts>,
    /// The disk is reserved for this machine.
    pub(super) holds: bool,
}

/// A session, until dropped.
pub(super) struct Session {
    pub(super) nexus: Arc<Nexus>,
    pub(super) facts: Facts,
    work: Work,
}

/// The session's task, until dropped.
struct Work(JoinHandle<Result<Infallible>>);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The disk's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) size_bytes: u64,
    pub(super) block_bytes: u32,
    pub(super) physical_bytes: u32,
    pub(super) rotates: Option<bool>,
    /// Most data of a request.
    pub(super) payload_bytes: u32,
    /// Longest range of one UNMAP; 0: there is none.
    pub(super) unmap_bytes: u64,
    pub(super) has_fua: bool,
    pub(super) is_protected: bool,
    /// Page 83h, or the serial number: the same for the same disk.
    identity: Vec<u8>,
}

impl Facts {
    async fn read(nexus: &Nexus) -> Result<Facts> {
        ready(nexus).await?;
        if !answers::is_disk(&ask(nexus, Command::inquiry(), "INQUIRY").await?.data) {
            return Err(ServerError::NoDisk);
        }
        let pages = nexus.settled(Command::vital(0)).await?;
        let pages = answers::page(&pages.data, 0).to_vec();
        let vital = async |page: u8| -> Result<Vec<u8>> {
            if !pages.contains(&page) {
                return Ok(Vec::new());
            }
            let outcome = nexus.settled(Command::vital(page)).await?;
            Ok(answers::page(&outcome.data, page).to_vec())
        };
        let capacity = capacity(nexus).await?;
        let described = ServerError::Description { what: "READ CAPACITY (16)" };
        let size_bytes = capacity.size_bytes().ok_or(described)?;
        let block_bytes = capacity.block_bytes;
        if !block_bytes.is_power_of_two() || !BLOCK_BYTES.contains(&block_bytes) {
            return Err(ServerError::Blocks(block_bytes));
        }
        let limits = answers::Limits::parse(&vital(0xb0).await?);
        let rotates = answers::rotates(&vital(0xb1).await?);
        let unmaps = capacity.is_thin && answers::unmaps(&vital(0xb2).await?);
        let (modes, identity) = (nexus.settled(Command::mode_sense()).await?, vital(0x83).await?);
        let (is_protected, has_fua) = match modes.verdict() {
            Verdict::Done => answers::modes(&modes.data),
            _ => (false, false),
        };
        let most = u64::from(limits.transfer_blocks) * u64::from(block_bytes);
        let unmap_bytes = u64::from(limits.unmap_blocks) * u64::from(block_bytes);
        let unmaps = unmaps && unmap_bytes >= UNMAP_BYTES_MIN;
        Ok(Facts {
            size_bytes,
            block_bytes,
            physical_bytes: capacity.physical_bytes,
            rotates,
            payload_bytes: if most == 0 { PAYLOAD_BYTES } else { most.min(PAYLOAD_BYTES) } as u32,
            unmap_bytes: if unmaps { unmap_bytes } else { 0 },
            has_fua,
            is_protected,
            identity: if identity.is_empty() { vital(0x80).await? } else { identity },
        })
    }

    /// Whether requests made after an earlier description may be sent after this one.
    fn check_as_before(&self, before: &Facts) -> Result<()> {
        let lacks = self.payload_bytes < before.payload_bytes
            || self.unmap_bytes < before.unmap_bytes
            || before.has_fua && !self.has_fua
            || self.is_protected && !before.is_protected;
        match () {
            () if self.size_bytes < before.size_bytes => {
                Err(ServerError::Shrunk { before: before.size_bytes, now: self.size_bytes })
            }
            () if lacks || self.block_bytes != before.block_bytes || self.identity != before.identity => {
                Err(ServerError::Changed)
            }
            () => Ok(()),
        }
    }
}

/// A command that must succeed.
async fn ask(nexus: &Nexus, command: Command, what: &'static str) -> Result<answers::Outcome> {
    let outcome = nexus.settled(command).await?;
    match outcome.verdict() {
        Verdict::Done => Ok(outcome),
        Verdict::NotReady => Err(ServerError::NoDisk),
        _ => Err(ServerError::Description { what }),
    }
}

/// Takes what the target has to tell once. A reservation does not concern this command.
async fn ready(nexus: &Nexus) -> Result<()> {
    match nexus.settled(Command::test_unit_ready()).await?.verdict() {
        Verdict::Done | Verdict::Conflict => Ok(()),
        _ => Err(ServerError::NoDisk),
    }
}

async fn capacity(nexus: &Nexus) -> Result<Capacity> {
    let what = "READ CAPACITY (16)";
    let outcome = ask(nexus, Command::read_capacity(), what).await?;
    Capacity::parse(&outcome.data).ok_or(ServerError::Description { what })
}

impl Iscsi {
    /// Logs in, and asks for the disk's description.
    pub(super) async fn connect(&self) -> Result<Session> {
        let connecting = async {
            let lively = |stream| -> Box<dyn cenote_disk::Stream> {
                Box::new(Lively::new(stream, &self.runtime, &self.alive_ns))
            };
            let connection =
                login::log_in(&self.login, self.isid, &*self.dial, lively, &self.runtime).await?;
            let (nexus, work) = Nexus::new(connection, self.login.lun, &self.runtime);
            let mut work = Work(self.runtime.spawn(work));
            let described = tokio::select! {
                biased;
                described = Facts::read(&nexus) => described,
                ended = &mut work.0 => Err(why(ended)),
            };
            Ok(Session { nexus, facts: described?, work })
        };
        let connected = self.runtime.timeout(CONNECT, connecting).await;
        connected.unwrap_or(Err(ServerError::Silent { since: CONNECT }))
    }

    /// Returns why the session must end.
    async fn watch(&self, nexus: &Nexus, requests: &Requests) -> ServerError {
        loop {
            tokio::select! {
                biased;
                () = self.runtime.sleep(LOOK_INTERVAL) => {}
                () = nexus.poked.notified() => {}
            }
            let looking = async {
                if nexus.is_resized.swap(false, Ordering::AcqRel)
                    && let Some(size_bytes) = capacity(nexus).await?.size_bytes()
                {
                    requests.resized(size_bytes);
                }
                match self.holds {
                    true => self.check_ours(nexus).await,
                    false => nexus.settled(Command::test_unit_ready()).await.map(drop),
                }
            };
            match self.runtime.timeout(LOOK, looking).await {
                Ok(Ok(())) => {}
                Ok(Err(error @ ServerError::Fenced { .. })) => return error,
                // The session's own end tells more.
                Ok(Err(_)) => {}
                Err(_) => return ServerError::Silent { since: LOOK },
            }
        }
    }

    async fn check_ours(&self, nexus: &Nexus) -> Result<()> {
        match reservation::is_ours(nexus, self.login.owner).await? {
            true => Ok(()),
            false => Err(ServerError::Fenced { why: PREEMPTED.into() }),
        }
    }
}

/// Why the session's task has ended.
fn why<E>(ended: std::result::Result<Result<Infallible>, E>) -> ServerError {
    match ended {
        Ok(Ok(never)) => match never {},
        Ok(Err(error)) => error,
        Err(_) => ServerError::Protocol("a message stopped its reader"),
    }
}

impl Protocol for Iscsi {
    type Session = Session;

    async fn reconnect(&self) -> Result<Session> {
        let session = self.connect().await?;
        if let Some(before) = &self.facts {
            session.facts.check_as_before(before)?;
        }
        if self.holds {
            let check = self.runtime.timeout(CONNECT, self.check_ours(&session.nexus)).await;
            check.unwrap_or(Err(ServerError::Silent { since: CONNECT }))?;
        }
        Ok(session)
    }

    fn size_bytes(session: &Session) -> u64 {
        session.facts.size_bytes
    }

    async fn run(&self, mut session: Session, number: u64, requests: &Arc<Requests>) -> Result<()> {
        let nexus = session.nexus.clone();
        let lane = Lane { session: number, number: 0 };
        nexus.begin(requests.clone(), lane, session.facts.block_bytes, self.holds);
        let (ended, is_over) = tokio::select! {
            biased;
            ended = &mut session.work.0 => (Err(why(ended)), true),
            since = silence(requests, &self.runtime) => (Err(ServerError::Silent { since }), false),
            error = self.watch(&nexus, requests) => (Err(error), false),
            () = nexus.drained.notified() => (Ok(()), false),
        };
        if ended.is_ok() {
            let goodbye = async {
                if self.holds {
                    reservation::release(&nexus, self.login.owner).await.ok();
                }
                nexus.log_out().await;
            };
            self.runtime.timeout(GOODBYE, goodbye).await.ok();
        }
        if !is_over {
            // It must neither send nor take anything more.
            session.work.0.abort();
            (&mut session.work.0).await.ok();
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_disk_or_a_lesser_one_is_not_used() {
        let before = Facts {
            size_bytes: 1 << 30,
            block_bytes: 512,
            physical_bytes: 4096,
            rotates: None,
            payload_bytes: 1 << 20,
            unmap_bytes: 1 << 20,
            has_fua: true,
            is_protected: false,
            identity: vec![1],
        };
        let check = |change: fn(&mut Facts)| {
            let mut now = before.clone();
            change(&mut now);
            now.check_as_before(&before)
        };
        assert!(check(|_| {}).is_ok());
        assert!(check(|now| now.size_bytes *= 2).is_ok());
        assert!(matches!(check(|now| now.size_bytes -= 1), Err(ServerError::Shrunk { .. })));
        let lesser: [fn(&mut Facts); 6] = [
            |now| now.identity = vec![2],
            |now| now.block_bytes = 4096,
            |now| now.payload_bytes -= 1,
            |now| now.unmap_bytes = 0,
            |now| now.has_fua = false,
            |now| now.is_protected = true,
        ];
        for change in lesser {
            assert!(matches!(check(change), Err(ServerError::Changed)));
        }
    }
}

//! A disk of an iSCSI target.
//!
//! ```text
//!   session       login, description, the watch over the reservation      session, login, answers
//!     nexus       commands under way on a connection                      nexus, commands
//!   reservation   keeps other machines from writing                       reservation, owner
//! ```
//!
//! Idea: the protocol's messages are those of `cenote_iscsi`, Cenote's own target; this is the other side.
//! Repeated requests, deadlines and unflushed writes are as for NBD servers ([`crate::disk`]). In addition, a
//! target arbitrates: a disk opened for writing is reserved for this machine. Once another machine has
//! preempted the reservation, the target refuses all writes of this one, also late ones. The first refusal,
//! or a look at the keys each second, ends the device for good, and the pool stops.
//!
//! A target must not carry out commands of a session that another one with the same name and identifier has
//! replaced. RFC 7143 demands that.
//!
//! Why not libiscsi (read at 65ebd14 of June 2026; the first two seen with 1.19, too): a target that says
//! `MaxRecvDataSegmentLength=0`, or asks for 4 GiB with one R2T, keeps it in a loop that takes memory and
//! never returns, its own time limit notwithstanding; it reads sense data beyond the end of a short response;
//! it puts Data-In together without regard to offsets. A target could so stop the daemon with all its pools.
//! Its reconnection repeats commands, but not unflushed writes, and its sockets and clock keep it out of
//! simulations.
//!
//! Not supported: several connections or sessions, error recovery above level 0, IPsec, iSER, units numbered
//! above 255, READ CAPACITY (10) of disks before 2006.
//!
//! Source: RFC 7143; SAM-5, SPC-4, SBC-3 of T10.

mod answers;
mod commands;
mod login;
mod nexus;
mod owner;
mod reservation;
mod secrets;
mod session;

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use cenote_device::place::IscsiPlace;
use cenote_device::{
    Access, Device, DeviceError, DeviceInfo, Distance, Nature, OpenOptions, Place, StorageLock,
};
use cenote_runtime::Runtime;

use crate::claim::Claim;
use crate::dial::{Dial, Server};
use crate::disk::{Abilities, BEST_IO_BYTES, ServerDisk, Writing};
use crate::error::ServerError;
use crate::requests::{ANSWER, Requests};
use crate::session::drive;
use answers::Verdict;
use commands::Command;
pub use login::Login;
pub use owner::Owner;
pub use secrets::Chap;
use session::Iscsi;

/// Time for a reservation: the commands of another machine may have to be aborted.
const RESERVE: Duration = Duration::from_secs(15);
/// Largest physical block that counts as a sector.
const SECTOR_BYTES_MAX: u32 = 4096;

/// Opens a disk at its place; for writing, under a reservation.
///
/// # Errors
/// [`DeviceError::Locked`]: another machine has reserved it. [`DeviceError::Open`]: no target, or no disk.
pub(crate) async fn open_at(
    place: &Place,
    disk: &IscsiPlace,
    options: OpenOptions,
    runtime: &Runtime,
) -> Result<Arc<dyn Device>, DeviceError> {
    let name: Arc<str> = place.to_string().into();
    let failed = |error: ServerError| match error {
        ServerError::Locked { holder } => DeviceError::Locked { path: name.clone(), holder: holder.into() },
        error => DeviceError::Open { path: name.clone(), source: Arc::new(io::Error::other(error)) },
    };
    let named = disk.clone();
    let read = runtime.blocking(move || secrets::read(named.chap.as_deref(), &named.target)).await;
    let (initiator, chap) = read.map_err(failed)?;
    let owner = Owner::this();
    let login = Login { target: disk.target.clone(), lun: disk.lun, initiator, chap, owner };
    let claim = match options.access {
        Access::ReadOnly => None,
        _ => Some(Claim::take(place, runtime).await?),
    };
    let dial = Arc::new(Server::plain(&disk.host, disk.port));
    let access = match claim {
        None => Sharing::Reads,
        Some(_) if options.takes_over => Sharing::TakesOver,
        Some(_) => Sharing::Writes,
    };
    let opened = opened(name.clone(), login, dial, access, claim, runtime).await;
    Ok(Arc::new(opened.map_err(failed)?.at(place.clone(), None)))
}

/// Rights of other machines meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// All: the disk is opened for reading.
    Reads,
    /// They may not write. If one could, it stays so.
    Writes,
    /// They may not write, and are fenced.
    TakesOver,
}

/// Opens a disk of a target. `name`: the device's, in messages.
///
/// # Errors
/// [`ServerError::Locked`]: another machine has reserved it. The target can't be reached, refuses, or offers
/// less than a pool needs.
pub async fn open(
    name: Arc<str>,
    login: Login,
    dial: Arc<dyn Dial>,
    sharing: Sharing,
    runtime: &Runtime,
) -> Result<ServerDisk, ServerError> {
    opened(name, login, dial, sharing, None, runtime).await
}

async fn opened(
    name: Arc<str>,
    login: Login,
    dial: Arc<dyn Dial>,
    sharing: Sharing,
    claim: Option<Claim>,
    runtime: &Runtime,
) -> Result<ServerDisk, ServerError> {
    let read_only = sharing == Sharing::Reads;
    let isid = match read_only {
        // A look must not end this process's own session.
        true => owner::isid(runtime.random_u64()),
        false => login.owner.isid(&format!("{} {}", login.target, login.lun)),
    };
    let (alive_ns, runtime_) = (Arc::default(), runtime.clone());
    let mut iscsi = Iscsi { login, isid, dial, runtime: runtime_, alive_ns, facts: None, holds: false };
    let first = iscsi.connect().await?;
    let (facts, nexus) = (first.facts.clone(), first.nexus.clone());
    if !read_only && facts.is_protected {
        return Err(ServerError::ReadOnly);
    }
    let storage_lock = match read_only {
        true if reservation::is_offered(&nexus).await? => StorageLock::Offered,
        true => StorageLock::None,
        false => {
            let (owner, takes_over) = (iscsi.login.owner, sharing == Sharing::TakesOver);
            let taking = async {
                let holds = reservation::take(&nexus, owner, takes_over).await?;
                let flushed = nexus.settled(Command::synchronize_cache()).await?;
                match flushed.verdict() {
                    Verdict::Done => Ok(holds),
                    Verdict::Conflict => Err(ServerError::Locked { holder: "another initiator".into() }),
                    _ => Err(ServerError::NoFlush),
                }
            };
            let taken = runtime.timeout(RESERVE, taking).await;
            iscsi.holds = taken.unwrap_or(Err(ServerError::Silent { since: RESERVE }))?;
            if iscsi.holds { StorageLock::Held } else { StorageLock::None }
        }
    };
    let domain = iscsi.dial.domain();
    let info = DeviceInfo {
        path: name,
        size_bytes: facts.size_bytes,
        sector_bytes: facts.physical_bytes.clamp(facts.block_bytes, SECTOR_BYTES_MAX.max(facts.block_bytes)),
        rotational: facts.rotates,
        read_only,
        // Connections are not encrypted.
        others_may_write: true,
        nature: Nature {
            address: None,
            distance: if domain.is_some() { Distance::Network } else { Distance::Local },
            domain,
            best_io_bytes: BEST_IO_BYTES,
            deadline: ANSWER,
            storage_lock,
        },
    };
    let abilities = Abilities {
        block_bytes: facts.block_bytes,
        payload_bytes: facts.payload_bytes / facts.block_bytes * facts.block_bytes,
        trim_bytes: facts.unmap_bytes,
        can_zero: false,
        can_write_through: facts.has_fua,
    };
    let mut requests = Requests::new(runtime, facts.size_bytes);
    requests.alive_ns = iscsi.alive_ns.clone();
    iscsi.facts = Some(facts);
    let requests = Arc::new(requests);
    let (tell, ended) = mpsc::channel();
    let ended = iscsi.holds.then_some(ended);
    let driving = drive(requests.clone(), iscsi, first, runtime.clone());
    // A disk given up may be opened anew, although a suspended pool still has this device.
    runtime.spawn(async move { (driving.await, drop((claim, tell))) }).detach();
    Ok(ServerDisk::new(info, abilities, requests, Writing::Never, ended, runtime))
}

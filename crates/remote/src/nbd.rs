//! A disk behind an NBD server.
//!
//! ```text
//!   session       the connections of one agreement: all live, or none      session
//!     handshake   TLS, structured replies, the export and its limits       handshake
//!     replies     bounded, checked, put together                           replies
//! ```
//!
//! The common parts are in [`crate::disk`]: repeated requests, deadlines, trust.
//!
//! A server must not carry out a request of an ended connection after it has answered a later one. Cenote's
//! drops such requests.
//!
//! Not supported: NBD_OPT_EXPORT_NAME (servers before 2016), extended headers, growth of an export while
//! connected (it is noticed at the next connection), locks: two machines can open the same export.
//!
//! Source: the NBD project's `doc/proto.md`, of 2025.

mod handshake;
mod replies;
mod session;

use std::sync::Arc;

use cenote_device::{DeviceInfo, Distance, Nature, StorageLock};
use cenote_nbd::wire::can;
use cenote_runtime::Runtime;
use parking_lot::Mutex;

use crate::claim::Claim;
use crate::dial::Dial;
use crate::disk::{Abilities, BEST_IO_BYTES, ServerDisk, Writing};
use crate::error::ServerError;
use crate::requests::{ANSWER, Requests};
use crate::session::drive;
use session::Nbd;

/// Largest preferred block that counts as a sector: a larger one would be a waste of space.
const SECTOR_BYTES_MAX: u32 = 4096;

/// Connects to a server. `name`: the device's, in messages.
///
/// # Errors
/// The server can't be reached, refuses, or offers less than a pool needs.
pub async fn open(
    name: Arc<str>,
    export: String,
    dial: Arc<dyn Dial>,
    read_only: bool,
    runtime: &Runtime,
) -> Result<ServerDisk, ServerError> {
    let first = session::connect(&*dial, &export, runtime).await?;
    let agreed = first.agreed.clone();
    if !read_only {
        agreed.check_writable()?;
    }
    let (domain, others_may_write) = (dial.domain(), dial.others_may_write());
    let info = DeviceInfo {
        path: name,
        size_bytes: agreed.size_bytes,
        sector_bytes: agreed.preferred_bytes.min(SECTOR_BYTES_MAX).max(agreed.block_bytes).max(512),
        rotational: agreed.can(can::ROTATIONAL).then_some(true),
        read_only,
        others_may_write,
        nature: Nature {
            address: None,
            distance: if domain.is_some() { Distance::Network } else { Distance::Local },
            domain,
            best_io_bytes: BEST_IO_BYTES,
            deadline: ANSWER,
            storage_lock: StorageLock::None,
        },
    };
    let abilities = Abilities {
        block_bytes: agreed.block_bytes,
        payload_bytes: agreed.payload_bytes,
        trim_bytes: if agreed.can(can::TRIM) { u64::MAX } else { 0 },
        can_zero: agreed.can(can::WRITE_ZEROES),
        can_write_through: agreed.can(can::FUA),
    };
    let requests = Arc::new(Requests::new(runtime, agreed.size_bytes));
    let claim: Arc<Mutex<Option<Claim>>> = Arc::default();
    let writing = match agreed.check_writable() {
        Ok(()) => Writing::With(claim.clone()),
        Err(_) => Writing::Never,
    };
    let protocol = Nbd { dial, export, agreed, runtime: runtime.clone() };
    let driving = drive(requests.clone(), protocol, first, runtime.clone());
    // A disk given up may be opened anew, although a suspended pool still has this device.
    runtime.spawn(async move { (driving.await, claim.lock().take()) }).detach();
    Ok(ServerDisk::new(info, abilities, requests, writing, None, runtime))
}

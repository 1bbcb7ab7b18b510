//! `zfs receive`: streams into a pool.
//!
//! ```text
//!   receive      a stream, or a package of them: the dataset of each, its properties and holds
//!     name         the name of a received snapshot
//!     replicate    datasets that a package destroys, renames and promotes
//!     overrides    properties that the caller sets or excludes
//!     one          one stream: begin, records, end; clean-up if it breaks off
//!       apply        records become changes of objects, some under one hold
//!       object       an object that changes its shape
//!       reshare      equal blocks are stored once
//!     correct      one stream heals lost blocks of its snapshot, and changes nothing else
//!     host         remounts, and messages to the caller
//! ```
//!
//! Idea: a stream fills its own head, which becomes visible in one txg, at its end (`cenote_tasks`). Until
//! then no existing data has changed.
//!
//! Memory: the records of one batch, [`apply::BATCH_BYTES`], and a list of properties.
//!
//! Source: OpenZFS `libzfs_sendrecv.c` (`zfs_receive_impl`, `zfs_receive_package`, `zfs_receive_one`; also
//! the source of the messages), and `dmu_recv.c`.

mod apply;
mod correct;
mod error;
mod host;
mod name;
mod object;
mod one;
mod overrides;
mod package;
mod replicate;
mod reshare;
mod roots;

use cenote_boxed::boxed;
use cenote_engine::Engine;
use cenote_format::stream::{HeaderType, Record};
use cenote_object::DatasetError;
use cenote_tasks::{Corrected, Settings};

use crate::error::{StreamError, check_features};
use crate::reader::StreamReader;

pub use error::{ReceiveError, Result};
pub use host::{Alone, Host, Work};
pub use name::Placing;
pub use reshare::Reshared;

/// The arguments of a receive.
#[derive(Debug, Default, Clone)]
pub struct Order {
    /// The file system, volume or snapshot.
    pub destination: String,
    /// Forms names from the destination and the stream's names.
    pub placing: Placing,
    /// Destroys whatever is in the way (`-F`).
    pub is_forced: bool,
    /// Keeps the received part if the stream breaks off (`-s`).
    pub is_resumable: bool,
    /// The origin of the new dataset, a clone (`-o origin=`).
    pub origin: Option<String>,
    /// Ignores the package's holds (`-h`).
    pub skips_holds: bool,
    /// Reads the stream without receiving it (`-n`).
    pub is_dry: bool,
    /// Heals lost blocks of the snapshot that the stream is of (`-c`).
    pub is_corrective: bool,
    /// Stores equal blocks of the stream once (`--reshare`).
    pub reshares: bool,
    /// Properties to set (`-o`).
    pub settings: Settings,
    /// Properties to exclude (`-x`).
    pub excluded: Vec<String>,
}

/// The result of a receive.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Received {
    /// New snapshots, in order.
    pub snapshots: Vec<String>,
    /// Snapshots of the package that existed already.
    pub skipped: Vec<String>,
    /// Properties that could not be set: dataset, property, reason.
    pub refused: Vec<(String, String, String)>,
    /// Some of a package's renames and removals failed.
    pub is_partial: bool,
    /// Of a corrective receive: blocks verified, and those restored.
    pub corrected: Corrected,
    /// Blocks shared with equal ones.
    pub reshared: Reshared,
}

/// Receives a stream or a package.
///
/// # Errors
/// The first failed stream; earlier ones are received.
#[boxed]
pub async fn receive(
    engine: &Engine,
    reader: &mut StreamReader,
    order: &Order,
    host: &dyn Host,
) -> Result<Received> {
    overrides::check(order)?;
    let is_missing = async |name: &str| -> Result<bool> {
        let found = engine.mos().await?.dataset(name).await;
        Ok(matches!(found, Err(DatasetError::NoDataset { .. })))
    };
    if order.placing != Placing::Exact && is_missing(&order.destination).await? {
        let why = format!("specified fs ({}) does not exist", order.destination);
        return Err(ReceiveError::refused(error::RECEIVE, why));
    }
    if let Some(origin) = &order.origin
        && is_missing(origin).await?
    {
        let why = format!("specified origin fs ({origin}) does not exist");
        return Err(ReceiveError::refused(error::RECEIVE, why));
    }
    if order.reshares && order.is_corrective {
        let why = "--reshare doesn't go with -c, which writes no new blocks";
        return Err(ReceiveError::refused(error::RECEIVE, why));
    }
    if order.reshares && !engine.mos().await?.enabled_features().await?.contains("block_cloning") {
        let why = "--reshare needs the pool's feature block_cloning, which is not enabled";
        return Err(ReceiveError::refused(error::RECEIVE, why));
    }
    let item = reader.next().await.map_err(ReceiveError::of_stream)?;
    let Some(item) = item else { return Err(ReceiveError::of_stream(StreamError::Incomplete)) };
    let Record::Begin(begin) = &item.record else {
        return Err(ReceiveError::of_stream(StreamError::BadMagic));
    };
    check_features(begin.features).map_err(ReceiveError::of_stream)?;
    let (around, mut receipt) = (Around { engine, order, host }, Receipt::default());
    receipt.reshare = (order.reshares && !order.is_dry).then(reshare::Reshare::new);
    match begin.header {
        HeaderType::Substream => {
            let sent = name::split(&begin.to_name)?;
            let place = name::place(order, &sent, &sent.dataset)?;
            one::receive_one(around, &mut receipt, reader, place, one::Context::default(), item).await?;
        }
        HeaderType::Compound => package::receive_package(around, &mut receipt, reader, item).await?,
    }
    if let Some(reshare) = receipt.reshare {
        receipt.received.reshared = reshare.shared();
        host.reshared(reshare.shared());
    }
    Ok(receipt.received)
}

#[derive(Clone, Copy)]
struct Around<'a> {
    engine: &'a Engine,
    order: &'a Order,
    host: &'a dyn Host,
}

#[derive(Default)]
struct Receipt {
    /// The first dataset received.
    top: Option<String>,
    reshare: Option<reshare::Reshare>,
    received: Received,
}

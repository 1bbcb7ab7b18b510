//! `zfs receive`: streams into a pool.
//!
//! ```text
//!   receive      a stream, or a package of them: which dataset each is for, its properties and holds
//!     name         what it is called here
//!     replicate    what a package destroys, renames and promotes
//!     overrides    properties that are set or left out, whatever the stream says
//!     one          one stream: begin, records, end; what is kept or goes if it breaks off
//!       apply        records become changes of objects, some under one hold
//!         object       an object that changes its shape
//!     host         mounts that follow, and who is told
//! ```
//!
//! Idea: a stream fills a head of its own and becomes visible in one txg, at its end (`cenote_tasks`). Up to
//! then nothing that was there has changed, whatever the stream holds.
//!
//! Memory: the records of one batch, [`apply::BATCH_BYTES`], and a list of properties.
//!
//! Source: OpenZFS `libzfs_sendrecv.c` (`zfs_receive_impl`, `zfs_receive_package`, `zfs_receive_one`), whose
//! words these are, and `dmu_recv.c`.

mod apply;
mod error;
mod host;
mod name;
mod object;
mod one;
mod overrides;
mod package;
mod replicate;

use cenote_boxed::boxed;
use cenote_engine::Engine;
use cenote_format::stream::{HeaderType, Record};
use cenote_object::DatasetError;
use cenote_tasks::Settings;

use crate::error::{StreamError, check_features};
use crate::reader::StreamReader;

pub use error::{ReceiveError, Result};
pub use host::{Alone, Host, Work};
pub use name::Placing;

/// What is to be received where.
#[derive(Debug, Default, Clone)]
pub struct Order {
    /// The file system, volume or snapshot.
    pub destination: String,
    /// How a name follows from that and from the name in the stream.
    pub placing: Placing,
    /// What is in the way goes (`-F`).
    pub is_forced: bool,
    /// What has come is kept if the stream breaks off (`-s`).
    pub is_resumable: bool,
    /// The snapshot that the new dataset is to be a clone of (`-o origin=`).
    pub origin: Option<String>,
    /// Holds of the package are left out (`-h`).
    pub skips_holds: bool,
    /// Nothing is received, but the stream is read (`-n`).
    pub is_dry: bool,
    /// Properties that are set (`-o`).
    pub settings: Settings,
    /// Properties that are left out (`-x`).
    pub excluded: Vec<String>,
}

/// What was received.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Received {
    /// Snapshots that were made, in order.
    pub snapshots: Vec<String>,
    /// Snapshots of the package that were there already.
    pub skipped: Vec<String>,
    /// Properties that could not be set: dataset, property, reason.
    pub refused: Vec<(String, String, String)>,
    /// Not all of a package's renames and removals could be done.
    pub is_partial: bool,
}

/// Receives a stream or a package.
///
/// # Errors
/// The first of its streams that can't be received; those before it have been.
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
    let item = reader.next().await.map_err(ReceiveError::of_stream)?;
    let Some(item) = item else { return Err(ReceiveError::of_stream(StreamError::Incomplete)) };
    let Record::Begin(begin) = &item.record else {
        return Err(ReceiveError::of_stream(StreamError::BadMagic));
    };
    check_features(begin.features).map_err(ReceiveError::of_stream)?;
    let (around, mut receipt) = (Around { engine, order, host }, Receipt::default());
    match begin.header {
        HeaderType::Substream => {
            let sent = name::split(&begin.to_name)?;
            let place = name::place(order, &sent, &sent.dataset)?;
            one::receive_one(around, &mut receipt, reader, place, one::Context::default(), item).await?;
        }
        HeaderType::Compound => package::receive_package(around, &mut receipt, reader, item).await?,
    }
    Ok(receipt.received)
}

/// Where a receive is done, and how.
#[derive(Clone, Copy)]
struct Around<'a> {
    engine: &'a Engine,
    order: &'a Order,
    host: &'a dyn Host,
}

/// What has come of a receive.
#[derive(Default)]
struct Receipt {
    /// The first dataset that was received.
    top: Option<String>,
    received: Received,
}

//! A package: streams of several snapshots and datasets, and a list that describes them.
//!
//! ```text
//!   fromsnap, tosnap     names of the first and the last snapshot
//!   not_recursive        one dataset (`-p`, `-I`)
//!   fss                  by guid of each dataset:
//!     name, parentfromsnap, origin    its name, its parent's snapshot, its origin
//!     props, snaps, snapprops, snapholds
//! ```
//!
//! Source: OpenZFS `libzfs_sendrecv.c` (`zfs_receive_package`, `zfs_receive_one`, `gather_nvlist`).

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_dataset::Value;
use cenote_engine::Engine;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::stream::{Begin, Record, StreamFeatures};
use cenote_format::units::Guid;
use cenote_object::DatasetError;
use cenote_tasks::{Settings, hold_snapshots, receive_properties};

use crate::error::StreamError;
use crate::reader::{Item, StreamReader};
use crate::receive::error::{RECEIVE, ReceiveError, Result};
use crate::receive::name::{Place, Sent, place, split};
use crate::receive::one::{Context, receive_one};
use crate::receive::replicate::Replication;
use crate::receive::{Around, Receipt, roots};

/// The head of a package.
#[derive(Debug)]
pub(super) struct Package {
    datasets: Vec<SentDataset>,
}

/// The package's description of a dataset.
#[derive(Debug, Default)]
pub(super) struct SentDataset {
    pub(super) name: String,
    /// The snapshot that identifies its parent.
    pub(super) parent_from: Guid,
    pub(super) origin: Guid,
    /// It has its own wrapping key.
    pub(super) is_encryption_root: bool,
    /// Of an encryption root, if properties were sent.
    pub(super) keylocation: Option<String>,
    /// `None`: not sent.
    props: Option<Settings>,
    /// Snapshot names by guid.
    snapshots: BTreeMap<Guid, String>,
    pub(super) snapshot_props: BTreeMap<String, Settings>,
    holds: BTreeMap<String, Vec<String>>,
}

impl Package {
    pub(super) fn owner(&self, snapshot: Guid) -> Option<(&SentDataset, &str)> {
        self.datasets.iter().find_map(|sent| Some((sent, sent.snapshots.get(&snapshot)?.as_str())))
    }
}

#[boxed]
pub(super) async fn receive_package(
    around: Around<'_>,
    receipt: &mut Receipt,
    reader: &mut StreamReader,
    head: Item,
) -> Result<()> {
    let Around { engine, order, host } = around;
    let Record::Begin(begin) = &head.record else {
        return Err(ReceiveError::of_stream(StreamError::WrongPlace));
    };
    let list = match head.payload.is_empty() {
        true => Nvlist::new(),
        false => Nvlist::decode(&head.payload)
            .map_err(|error| ReceiveError::of_stream(StreamError::Nvlist(error)))?,
    };
    let is_recursive = !list.contains("not_recursive");
    if is_recursive && order.destination.contains('@') {
        let why = "cannot specify snapshot name for multi-snapshot stream";
        return Err(ReceiveError::refused(RECEIVE, why));
    }
    let has_holds = begin.features.has(StreamFeatures::HOLDS) && !order.skips_holds;
    let package = Package { datasets: sent_datasets(&list) };
    let Sent { dataset: top, snapshot: last } = split(&begin.to_name)?;
    // The END of the package's head was verified when read.
    reader.next().await.map_err(ReceiveError::of_stream)?;
    let from = list.get_str("fromsnap").filter(|_| is_recursive && !order.is_dry);
    let to = place(order, &Sent { dataset: top.clone(), snapshot: last }, &top)?.dataset;
    let replication = from.map(|from| Replication { engine, host, order, package: &package, from, to: &to });
    if let Some(replication) = &replication {
        replication.run().await?;
    }
    let (mut first_error, mut is_raw) = (None, false);
    while let Some(item) = reader.next().await.map_err(ReceiveError::of_stream)? {
        let begin = match &item.record {
            Record::Begin(begin) => begin.clone(),
            _ => break,
        };
        let found = package.owner(begin.to_guid).map(|(sent, _)| sent);
        let one = split(&begin.to_name)?;
        let place = place(order, &one, &top)?;
        let context = Context {
            is_recursive,
            is_below: one.dataset != top,
            parent_from: found.map_or(Guid(0), |sent| sent.parent_from),
            props: found.and_then(|sent| sent.props.clone()),
        };
        let Some(place) = receive_one(around, receipt, reader, place, context, item).await? else { continue };
        is_raw |= begin.features.has(StreamFeatures::RAW);
        if let Some(sent) = found.filter(|_| !order.is_dry) {
            let told = tell(engine, sent, &begin, &place, has_holds).await;
            first_error = first_error.or(told.err());
        }
    }
    if let Some(replication) = &replication
        && !replication.run().await?
    {
        host.warn(
            "not all file systems and snapshots could be destroyed or renamed as they were sent".into(),
        );
        receipt.received.is_partial = true;
    }
    if is_raw && !order.is_dry {
        roots::settle(engine, order, &package, &to).await?;
    }
    first_error.map_or(Ok(()), Err)
}

/// Applies properties and holds of a received snapshot.
async fn tell(
    engine: &Engine,
    sent: &SentDataset,
    begin: &Begin,
    place: &Place,
    has_holds: bool,
) -> Result<()> {
    let Some(own) = sent.snapshots.get(&begin.to_guid) else { return Ok(()) };
    let full = place.full();
    if let Some(props) = sent.snapshot_props.get(own).filter(|props| !props.is_empty()) {
        receive_properties(engine, &full, props.clone()).await?;
    }
    for tag in sent.holds.get(own).into_iter().flatten().filter(|_| has_holds) {
        match hold_snapshots(engine, std::slice::from_ref(&full), tag).await {
            // It is held already.
            Err(DatasetError::Unsuitable { .. }) => {}
            done => done?,
        }
    }
    Ok(())
}

fn sent_datasets(list: &Nvlist) -> Vec<SentDataset> {
    let datasets = list.get_nvlist("fss").into_iter().flat_map(Nvlist::iter);
    datasets
        .filter_map(
            |(_, value)| if let NvValue::Nvlist(list) = value { Some(sent_dataset(list)) } else { None },
        )
        .collect()
}

fn sent_dataset(list: &Nvlist) -> SentDataset {
    let guid = |(name, value): (&str, &NvValue)| match value {
        NvValue::Uint64(guid) => Some((Guid(*guid), name.to_owned())),
        _ => None,
    };
    let lists = |name: &str| list.get_nvlist(name).into_iter().flat_map(Nvlist::iter);
    let of_snapshot = |(name, value): (&str, &NvValue)| match value {
        NvValue::Nvlist(list) => Some((name.to_owned(), list.clone())),
        _ => None,
    };
    let guid_of = |name: &str| Guid(list.get_u64(name).unwrap_or(0));
    SentDataset {
        name: list.get_str("name").unwrap_or_default().to_owned(),
        parent_from: guid_of("parentfromsnap"),
        origin: guid_of("origin"),
        is_encryption_root: list.contains("is_encroot"),
        keylocation: list.get_nvlist("props").and_then(|props| text_of(props.get("keylocation")?)),
        props: list.get_nvlist("props").map(settings),
        snapshots: lists("snaps").filter_map(guid).collect(),
        snapshot_props: lists("snapprops")
            .filter_map(of_snapshot)
            .map(|(name, list)| (name, settings(&list)))
            .collect(),
        holds: lists("snapholds")
            .filter_map(of_snapshot)
            .map(|(name, list)| (name, list.iter().map(|(tag, _)| tag.to_owned()).collect()))
            .collect(),
    }
}

/// A text property: its value, or a list with it.
fn text_of(value: &NvValue) -> Option<String> {
    match value {
        NvValue::String(text) => Some(String::from_utf8_lossy(text).into_owned()),
        NvValue::Nvlist(list) => list.get_str("value").map(str::to_owned),
        _ => None,
    }
}

/// Properties by name: values, or lists of them (of old senders).
fn settings(list: &Nvlist) -> Settings {
    let value = |value: &NvValue| match value {
        NvValue::Uint64(number) => Some(Value::Number(*number)),
        NvValue::String(text) => Some(Value::Text(String::from_utf8_lossy(text).into_owned())),
        _ => None,
    };
    let setting = |(name, found): (&str, &NvValue)| {
        // Of encryption roots, which are known once all streams are received (`roots`).
        if name == "keylocation" {
            return None;
        }
        let found = match found {
            NvValue::Nvlist(list) => list.get("value").and_then(value),
            found => value(found),
        };
        Some((name.to_owned(), found?))
    };
    list.iter().filter_map(setting).collect()
}

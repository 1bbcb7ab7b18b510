//! A package: streams of several snapshots and datasets, with what is to be known of them.
//!
//! ```text
//!   fromsnap, tosnap     names of the first and the last snapshot
//!   not_recursive        one dataset (`-p`, `-I`)
//!   fss                  by guid of each dataset:
//!     name, parentfromsnap, origin    what it is called, what it is below, what it is a clone of
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
use cenote_tasks::{hold_snapshots, inherit_root, receive_properties};

use crate::error::StreamError;
use crate::reader::{Item, StreamReader};
use crate::receive::error::{RECEIVE, ReceiveError, Result};
use crate::receive::name::{Place, place, split};
use crate::receive::one::receive_one;
use crate::receive::{Order, Received};

/// A dataset as the package describes it.
#[derive(Debug, Default)]
struct SentDataset {
    /// Its keys are wrapped by a user's key of its own.
    is_encryption_root: bool,
    props: Vec<(String, Value)>,
    /// Snapshots by guid: their own names.
    snapshots: BTreeMap<Guid, String>,
    snapshot_props: BTreeMap<String, Vec<(String, Value)>>,
    holds: BTreeMap<String, Vec<String>>,
}

/// Receives all streams of the package whose BEGIN is `head`.
#[boxed]
pub(super) async fn receive_package(
    engine: &Engine,
    reader: &mut StreamReader,
    order: &Order,
    head: Item,
    received: &mut Received,
) -> Result<()> {
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
    let sent: Vec<SentDataset> = sent_datasets(&list);
    let top = split(&begin.to_name)?.dataset;
    // The END of the package's head was verified when it is read.
    reader.next().await.map_err(ReceiveError::of_stream)?;
    let mut first_error = None;
    while let Some(item) = reader.next().await.map_err(ReceiveError::of_stream)? {
        let begin = match &item.record {
            Record::Begin(begin) => begin.clone(),
            _ => break,
        };
        let found = sent.iter().find(|sent| sent.snapshots.contains_key(&begin.to_guid));
        let one = split(&begin.to_name)?;
        let place = place(order, &one, &top)?;
        if is_there(engine, &place, &begin).await? {
            skip(reader).await?;
            received.skipped.push(place.full());
            continue;
        }
        receive_one(engine, reader, order, &place, item, received).await?;
        if let Some(sent) = found {
            let is_below = one.dataset != top;
            if begin.features.has(StreamFeatures::RAW) && is_below && !sent.is_encryption_root {
                inherit_root(engine, &place.dataset).await?;
            }
            let told = tell(engine, sent, &begin, &place, has_holds, received).await;
            first_error = first_error.or(told.err());
        }
    }
    first_error.map_or(Ok(()), Err)
}

/// Whether a snapshot of that guid is there already: it came with an earlier package.
async fn is_there(engine: &Engine, place: &Place, begin: &Begin) -> Result<bool> {
    let mos = engine.mos().await?;
    match mos.dataset(&place.dataset).await {
        Err(DatasetError::NoDataset { .. }) => Ok(false),
        found => {
            let found = found?.snapshots().await?;
            Ok(found.iter().any(|snapshot| snapshot.guid() == begin.to_guid))
        }
    }
}

/// Passes over a stream.
async fn skip(reader: &mut StreamReader) -> Result<()> {
    while let Some(item) = reader.next().await.map_err(ReceiveError::of_stream)? {
        if matches!(item.record, Record::End(_)) {
            return Ok(());
        }
    }
    Err(ReceiveError::of_stream(StreamError::Incomplete))
}

/// Properties and holds of a snapshot that was received, and of its dataset.
async fn tell(
    engine: &Engine,
    sent: &SentDataset,
    begin: &Begin,
    place: &Place,
    has_holds: bool,
    received: &mut Received,
) -> Result<()> {
    let refused = receive_properties(engine, &place.dataset, sent.props.clone()).await?;
    let note =
        |(property, error): (String, DatasetError)| (place.dataset.clone(), property, error.to_string());
    received.refused.extend(refused.into_iter().map(note));
    let Some(own) = sent.snapshots.get(&begin.to_guid) else { return Ok(()) };
    let full = place.full();
    if let Some(props) = sent.snapshot_props.get(own).filter(|props| !props.is_empty()) {
        receive_properties(engine, &full, props.clone()).await?;
    }
    for tag in sent.holds.get(own).into_iter().flatten().filter(|_| has_holds) {
        hold_snapshots(engine, std::slice::from_ref(&full), tag).await?;
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
    SentDataset {
        is_encryption_root: list.contains("is_encroot"),
        props: list.get_nvlist("props").map(settings).unwrap_or_default(),
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

/// Properties by name: values, or lists that hold them (of old senders).
fn settings(list: &Nvlist) -> Vec<(String, Value)> {
    let value = |value: &NvValue| match value {
        NvValue::Uint64(number) => Some(Value::Number(*number)),
        NvValue::String(text) => Some(Value::Text(String::from_utf8_lossy(text).into_owned())),
        _ => None,
    };
    let setting = |(name, found): (&str, &NvValue)| {
        // Of encryption roots, which follow from the streams themselves.
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

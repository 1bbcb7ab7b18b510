//! One stream: the head that it fills, its records, its end; what becomes of it if it breaks off.
//!
//! Source: OpenZFS `dmu_recv.c` (`dmu_recv_stream`, `dmu_recv_cleanup_ds`), `libzfs_sendrecv.c`
//! (`zfs_receive_one`).

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_engine::Engine;
use cenote_format::bytes::Endian;
use cenote_format::nvlist::Nvlist;
use cenote_format::stream::{Begin, BeginFlags, Record, StreamFeatures};
use cenote_format::units::Guid;
use cenote_object::DatasetError;
use cenote_tasks::{
    Finish, NewReceive, Progress, RawKeys, Receiving, abort_receive, begin_receive, end_receive,
    note_progress, resume_state,
};

use crate::error::{StreamError, check_features};
use crate::reader::{Item, StreamReader};
use crate::receive::apply::{Filling, Way};
use crate::receive::error::{RECEIVE, ReceiveError, Result};
use crate::receive::name::Place;
use crate::receive::{Order, Received};
use crate::token;

/// How far a receive comes before its state is noted.
const NOTE_AFTER_BYTES: u64 = 64 << 20;

/// Receives the stream whose BEGIN is `item`.
#[boxed]
pub(super) async fn receive_one(
    engine: &Engine,
    reader: &mut StreamReader,
    order: &Order,
    place: &Place,
    item: Item,
    received: &mut Received,
) -> Result<()> {
    let Record::Begin(begin) = item.record else {
        return Err(ReceiveError::of_stream(StreamError::WrongPlace));
    };
    let what = kind_of(&begin, order);
    // As the module counts them: BEGIN was read by somebody else.
    let start_bytes = item.end_bytes - item.payload.len() as u64;
    let in_stream = |source| ReceiveError::Stream { what, source };
    check_features(begin.features).map_err(in_stream)?;
    let list = match item.payload.is_empty() {
        true => Nvlist::new(),
        false => Nvlist::decode(&item.payload).map_err(|error| in_stream(StreamError::Nvlist(error)))?,
    };
    let raw = match begin.features.has(StreamFeatures::RAW) {
        true => Some(keys_of(&list, reader.endian()).map_err(|why| ReceiveError::refused(what, why))?),
        false => None,
    };
    let origin = match &order.origin {
        None if begin.flags.has(BeginFlags::CLONE) => Some(origin_of(engine, begin.from_guid, place).await?),
        given => given.clone(),
    };
    let is_clone = origin.is_some();
    let new = NewReceive {
        target: place.dataset.clone(),
        snapshot: place.snapshot.clone(),
        begin: begin.clone(),
        origin,
        is_forced: order.is_forced,
        is_resumable: order.is_resumable,
        settings: Vec::new(),
        raw: raw.clone(),
    };
    let receiving = begin_receive(engine, new).await.map_err(|error| ReceiveError::of_task(what, error))?;
    let ended =
        match fill(engine, reader, &begin, &list, &receiving, raw.as_ref(), (is_clone, start_bytes)).await {
            Ok(()) => {
                let finish = Finish {
                    receiving: receiving.clone(),
                    snapshot: place.snapshot.clone(),
                    to_guid: begin.to_guid,
                    creation_time_s: begin.creation_time,
                    is_forced: order.is_forced,
                    raw,
                };
                end_receive(engine, finish).await.map_err(Broken::Pool)
            }
            Err(broken) => Err(broken),
        };
    if let Err(broken) = ended {
        return Err(give_up(engine, what, &receiving, order.is_resumable, broken).await);
    }
    received.snapshots.push(place.full());
    Ok(())
}

/// What a raw stream says of its keys.
fn keys_of(list: &Nvlist, endian: Endian) -> Result<RawKeys, &'static str> {
    if endian != Endian::NATIVE {
        return Err("raw streams of machines of the other byte order can't be received");
    }
    RawKeys::of(list.get_nvlist("crypt_keydata").ok_or("stream has no encryption keys")?)
}

/// Why a receive was broken off.
enum Broken {
    Stream(StreamError),
    Pool(DatasetError),
}

impl From<StreamError> for Broken {
    fn from(error: StreamError) -> Broken {
        Broken::Stream(error)
    }
}

impl From<DatasetError> for Broken {
    fn from(error: DatasetError) -> Broken {
        Broken::Pool(error)
    }
}

/// Takes the records of a stream up to its end.
async fn fill(
    engine: &Engine,
    reader: &mut StreamReader,
    begin: &Begin,
    list: &Nvlist,
    receiving: &Receiving,
    keys: Option<&RawKeys>,
    (is_clone, start_bytes): (bool, u64),
) -> Result<(), Broken> {
    let is_resumable = {
        let head = engine.mos().await?.dataset(&receiving.head).await?;
        let state = resume_state(&head).await?;
        if begin.features.has(StreamFeatures::RESUMING) {
            let at = (list.get_u64("resume_object"), list.get_u64("resume_offset"));
            let known = state.as_ref().map(|state| (state.progress.object.0, state.progress.offset));
            if known.is_none_or(|(object, offset)| at != (Some(object), Some(offset))) {
                return Err(StreamError::WrongPlace.into());
            }
        }
        state
    };
    let before_bytes = is_resumable.as_ref().map_or(0, |state| state.progress.bytes);
    let raw = keys.map(|keys| Arc::new(keys.head()));
    let opened = engine.dataset_being_received(&receiving.head, receiving.id, raw.clone()).await?;
    let way = Way {
        endian: reader.endian(),
        tells_of_spills: begin.flags.has(BeginFlags::SPILL_BLOCK),
        is_whole: begin.from_guid == Guid(0),
        is_raw: raw.is_some(),
    };
    let mut filling = Filling::new(engine, opened.live().clone(), way, begin.to_guid, raw, start_bytes);
    let mut noted = 0;
    let ended = loop {
        let item = match reader.next().await {
            Ok(Some(item)) => item,
            Ok(None) => break Err(StreamError::Incomplete.into()),
            Err(error) => break Err(Broken::Stream(error)),
        };
        if let Record::End(_) = item.record {
            break Ok(());
        }
        if let Err(error) = filling.take(item).await {
            break Err(error.into());
        }
        if is_resumable.is_some() && filling.progress().is_some_and(|at| at.bytes >= noted + NOTE_AFTER_BYTES)
        {
            note(engine, receiving, &filling, before_bytes).await?;
            noted = filling.progress().map_or(noted, |at| at.bytes);
        }
    };
    // What has come is right: each record's sum was verified.
    let flushed = filling.flush().await;
    if ended.is_ok() && flushed.is_ok() && is_clone && begin.from_guid == Guid(0) {
        filling.free_beyond().await?;
    }
    if is_resumable.is_some() && ended.is_err() && flushed.is_ok() {
        note(engine, receiving, &filling, before_bytes).await?;
    }
    ended.and(flushed.map_err(Broken::Pool))
}

async fn note(
    engine: &Engine,
    receiving: &Receiving,
    filling: &Filling,
    before_bytes: u64,
) -> Result<(), DatasetError> {
    match filling.progress() {
        Some(at) => {
            let progress = Progress { bytes: at.bytes.saturating_add(before_bytes), ..at };
            note_progress(engine, receiving.id, progress).await
        }
        None => Ok(()),
    }
}

/// A receive broke off: what it made goes, unless it may be resumed.
async fn give_up(
    engine: &Engine,
    what: &'static str,
    receiving: &Receiving,
    is_resumable: bool,
    broken: Broken,
) -> ReceiveError {
    let saved = if is_resumable { saved_token(engine, receiving).await } else { None };
    if let (Some(token), Broken::Stream(source)) = (saved, &broken) {
        let source = match source {
            StreamError::Checksum => StreamError::Checksum,
            _ => StreamError::Incomplete,
        };
        return ReceiveError::Saved { what, source, token };
    }
    // The first error is what has to be told; what is left behind is cleared away by the next receive.
    let _ = abort_receive(engine, &receiving.target).await;
    match broken {
        Broken::Stream(source) => ReceiveError::Stream { what, source },
        Broken::Pool(DatasetError::Damaged { object, why, .. }) => {
            ReceiveError::refused(what, format!("invalid backup stream (object {object} {why})"))
        }
        Broken::Pool(error) => ReceiveError::of_task(what, error),
    }
}

async fn saved_token(engine: &Engine, receiving: &Receiving) -> Option<String> {
    let head = engine.mos().await.ok()?.dataset(&receiving.head).await.ok()?;
    let state = resume_state(&head).await.ok()??;
    Some(token::encode(&state))
}

/// What is tried, by the kind of stream.
fn kind_of(begin: &Begin, order: &Order) -> &'static str {
    let is_new = begin.from_guid == Guid(0) || begin.flags.has(BeginFlags::CLONE) || order.origin.is_some();
    match (begin.features.has(StreamFeatures::RESUMING), is_new) {
        (true, _) => "cannot receive resume stream",
        (false, true) => "cannot receive new filesystem stream",
        (false, false) => "cannot receive incremental stream",
    }
}

/// The snapshot of a guid, looked for from the new dataset upwards: near ones are meant first.
async fn origin_of(engine: &Engine, guid: Guid, place: &Place) -> Result<String> {
    let mos = engine.mos().await?;
    let mut above = place.dataset.as_str();
    while let Some((parent, _)) = above.rsplit_once('/') {
        above = parent;
        let Ok(top) = mos.dataset(above).await else { continue };
        let mut datasets = vec![top.clone()];
        datasets.extend(top.descendants().await?);
        for dataset in datasets.iter().filter(|dataset| !dataset.is_snapshot()) {
            if let Some(found) = dataset.snapshots().await?.into_iter().find(|found| found.guid() == guid) {
                return Ok(found.name().to_owned());
            }
        }
    }
    let why = format!("local origin for clone {} does not exist", place.full());
    Err(ReceiveError::refused(RECEIVE, why))
}

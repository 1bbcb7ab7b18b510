//! One stream: the head that it fills, its records, its end; and the clean-up if it breaks off.
//!
//! Source: OpenZFS `dmu_recv.c` (`dmu_recv_stream`, `dmu_recv_cleanup_ds`), `libzfs_sendrecv.c`
//! (`zfs_receive_one`).

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, DatasetKind};
use cenote_engine::Engine;
use cenote_format::bytes::Endian;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::objset::ObjsetType;
use cenote_format::stream::{Begin, BeginFlags, Record, StreamFeatures};
use cenote_format::units::{Guid, SPA_MAXBLOCKSIZE, SPA_OLD_MAXBLOCKSIZE};
use cenote_object::DatasetError;
use cenote_tasks::{
    Finish, NewReceive, Progress, RawKeys, Receiving, RedactedFor, Settings, abort_receive, begin_receive,
    end_receive, note_progress, receive_properties, resume_state,
};

use crate::error::{StreamError, check_features};
use crate::reader::{Item, StreamReader};
use crate::receive::apply::{Filling, Limits, Way};
use crate::receive::correct;
use crate::receive::error::{RECEIVE, ReceiveError, Result};
use crate::receive::host::Work;
use crate::receive::name::{Place, Placing};
use crate::receive::object::MAX_SLOTS;
use crate::receive::overrides::{Overrides, Target};
use crate::receive::reshare::Reshare;
use crate::receive::{Around, Order, Receipt};
use crate::token;

/// Bytes between two notes of the receive's state.
const NOTE_AFTER_BYTES: u64 = 64 << 20;

/// The package's data about a stream.
#[derive(Debug, Default)]
pub(super) struct Context {
    /// The package has several file systems and volumes.
    pub(super) is_recursive: bool,
    /// It is not the topmost of them.
    pub(super) is_below: bool,
    /// The snapshot that identifies its parent.
    pub(super) parent_from: Guid,
    pub(super) props: Option<Settings>,
}

/// Receives the stream whose BEGIN is `item`. Returns its place; `None` if it existed already.
#[boxed]
pub(super) async fn receive_one(
    Around { engine, order, host }: Around<'_>,
    receipt: &mut Receipt,
    reader: &mut StreamReader,
    place: Place,
    context: Context,
    item: Item,
) -> Result<Option<Place>> {
    let begun = engine.runtime().now();
    let Record::Begin(begin) = item.record else {
        return Err(ReceiveError::of_stream(StreamError::WrongPlace));
    };
    let what = kind_of(&begin, order);
    // The module counts without BEGIN, which its caller has read.
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
    if order.reshares && raw.is_some() {
        let why = "blocks of a raw stream can't be compared, so --reshare doesn't go with it";
        return Err(ReceiveError::refused(what, why));
    }
    let place = settled(engine, order, &begin, place, &context).await?;
    if order.is_corrective {
        correct::check(Around { engine, order, host }, what, &place, &begin).await?;
        return corrected(Around { engine, order, host }, receipt, reader, place, &begin, start_bytes).await;
    }
    let origin = match &order.origin {
        None if begin.flags.has(BeginFlags::CLONE) => {
            let found = by_guid(engine, begin.from_guid, &place.dataset).await?;
            let why = || format!("local origin for clone {} does not exist", place.full());
            let found = found.ok_or_else(|| ReceiveError::refused(RECEIVE, why()))?;
            host.line(format!("found clone origin {found}"));
            Some(found)
        }
        given => {
            given.iter().for_each(|origin| host.line(format!("using provided clone origin {origin}")));
            given.clone()
        }
    };
    let found = existing(engine, &place.dataset).await?;
    let is_resuming = begin.features.has(StreamFeatures::RESUMING);
    let is_new = is_new(&begin, order) && !is_resuming;
    if let Some(found) = found.as_ref().filter(|_| !is_new && !is_resuming)
        && found.snapshots().await?.iter().any(|snapshot| snapshot.guid() == begin.to_guid)
    {
        host.line(format!("snap {} already exists; ignoring", place.full()));
        skip(reader).await?;
        receipt.received.skipped.push(place.full());
        return Ok(None);
    }
    let doing = if order.is_dry { "would receive" } else { "receiving" };
    let kind = if begin.from_guid == Guid(0) { "full" } else { "incremental" };
    let sent = String::from_utf8_lossy(&begin.to_name);
    host.line(format!("{doing} {kind} stream of {sent} into {}", place.full()));
    let top = receipt.top.get_or_insert_with(|| place.dataset.clone());
    let target = Target {
        name: &place.dataset,
        is_volume: u64::from(begin.objset_type) == u64::from(ObjsetType::Zvol),
        is_top: *top == place.dataset,
        is_new,
        is_recursive: context.is_recursive,
        is_raw: raw.is_some(),
    };
    let mut overrides = Overrides::of(order, what, target, found.as_ref(), host).await?;
    if is_new && raw.is_none() && origin.is_none() && context.props.is_some() {
        overrides.decrypt(order);
    }
    if order.is_dry {
        if is_new && found.is_some() && !order.is_forced {
            let why = format!("destination '{}' exists\nmust specify -F to overwrite it", place.dataset);
            return Err(ReceiveError::refused(what, why));
        }
        skip(reader).await?;
        return Ok(Some(place));
    }
    if order.placing == Placing::WithoutPool && is_new && found.is_none() {
        let made = host.make_parents(&place.dataset).await;
        made.map_err(|error| ReceiveError::of_task(what, error))?;
    }
    if is_new
        && found.is_none()
        && let Some((parent, _)) = place.dataset.rsplit_once('/')
    {
        let parent = engine.mos().await?.dataset(parent).await;
        let parent = parent.map_err(|error| ReceiveError::of_task(what, error))?;
        if parent.kind().await? != DatasetKind::Filesystem {
            let why = format!("parent '{}' is not a filesystem", parent.name());
            return Err(ReceiveError::refused(what, why));
        }
    }
    let is_clone = origin.is_some();
    let new = NewReceive {
        target: place.dataset.clone(),
        snapshot: place.snapshot.clone(),
        begin: begin.clone(),
        origin,
        is_forced: order.is_forced,
        is_resumable: order.is_resumable,
        settings: if is_new && found.is_none() { overrides.set.clone() } else { Settings::new() },
        raw: raw.clone(),
        redacted: redacted_for(&list),
    };
    let receiving = begin_receive(engine, new).await.map_err(|error| ReceiveError::of_task(what, error))?;
    let is_raw = raw.is_some();
    let reshare = receipt.reshare.clone();
    if let Some(reshare) = &reshare {
        reshare.begin(&place.dataset);
    }
    let of_stream = OfStream { begin: &begin, list: &list, keys: raw.as_ref(), is_clone, start_bytes };
    let filled = fill(engine, reader, of_stream, &receiving, reshare).await;
    let ended = match filled {
        Ok(()) => {
            let finish = Finish {
                receiving: receiving.clone(),
                snapshot: place.snapshot.clone(),
                to_guid: begin.to_guid,
                creation_time_s: begin.creation_time,
                is_forced: order.is_forced,
                raw,
            };
            let work: Work<'_> = Box::pin(end_receive(engine, finish));
            let done = match receiving.is_new() {
                true => work.await,
                false => host.replacing(&receiving.target, &receiving.head, is_raw, work).await,
            };
            done.map_err(Broken::Pool)
        }
        Err(broken) => Err(broken),
    };
    if let Err(broken) = ended {
        return Err(give_up(engine, what, &receiving, order.is_resumable, broken).await);
    }
    receipt.received.snapshots.push(place.full());
    if let Some(props) = context.props {
        let refused = receive_properties(engine, &place.dataset, overrides.received(props)).await?;
        let note =
            |(property, error): (String, DatasetError)| (place.dataset.clone(), property, error.to_string());
        receipt.received.refused.extend(refused.into_iter().map(note));
    }
    let is_made = is_new && found.is_none();
    overrides.follow(engine, &place.dataset, is_made, &mut receipt.received).await?;
    let took = engine.runtime().now().since(begun);
    host.received(reader.read_bytes().saturating_sub(start_bytes), took);
    Ok(Some(place))
}

/// Heals the snapshot of a stream.
async fn corrected(
    around: Around<'_>,
    receipt: &mut Receipt,
    reader: &mut StreamReader,
    place: Place,
    begin: &Begin,
    start_bytes: u64,
) -> Result<Option<Place>> {
    let Around { engine, order, host } = around;
    let begun = engine.runtime().now();
    let doing = if order.is_dry { "would receive" } else { "receiving" };
    let kind = if begin.from_guid == Guid(0) { "full" } else { "incremental" };
    let sent = String::from_utf8_lossy(&begin.to_name);
    host.line(format!("{doing} corrective {kind} stream of {sent} into {}", place.full()));
    if order.is_dry {
        skip(reader).await?;
        return Ok(Some(place));
    }
    let done = correct::correct(around, kind_of(begin, order), reader, &place, begin).await?;
    receipt.received.corrected.blocks += done.blocks;
    receipt.received.corrected.restored += done.restored;
    let took = engine.runtime().now().since(begun);
    host.received(reader.read_bytes().saturating_sub(start_bytes), took);
    Ok(Some(place))
}

/// The target of a stream if its dataset is missing under the computed name: it may have been renamed here.
async fn settled(
    engine: &Engine,
    order: &Order,
    begin: &Begin,
    place: Place,
    context: &Context,
) -> Result<Place> {
    if is_new(begin, order) && !begin.features.has(StreamFeatures::RESUMING) {
        let Some((above, own)) = place.dataset.rsplit_once('/') else { return Ok(place) };
        if context.parent_from == Guid(0) || existing(engine, above).await?.is_some() {
            return Ok(place);
        }
        let found = by_guid(engine, context.parent_from, above).await?;
        let parent = found.as_deref().and_then(|found| found.split_once('@'));
        return Ok(match parent {
            Some((parent, _)) => Place { dataset: format!("{parent}/{own}"), ..place },
            None => place,
        });
    }
    let may_be_elsewhere = order.placing != Placing::Exact || context.is_below;
    if !may_be_elsewhere || existing(engine, &place.dataset).await?.is_some() {
        return Ok(place);
    }
    let found = by_guid(engine, begin.from_guid, &place.dataset).await?;
    Ok(match found.as_deref().and_then(|found| found.split_once('@')) {
        Some((dataset, _)) => Place { dataset: dataset.to_owned(), ..place },
        None => place,
    })
}

async fn existing(engine: &Engine, name: &str) -> Result<Option<Dataset>> {
    match engine.mos().await?.dataset(name).await {
        Err(DatasetError::NoDataset { .. }) => Ok(None),
        found => Ok(Some(found?)),
    }
}

async fn skip(reader: &mut StreamReader) -> Result<()> {
    while let Some(item) = reader.next().await.map_err(ReceiveError::of_stream)? {
        if matches!(item.record, Record::End(_)) {
            return Ok(());
        }
    }
    Err(ReceiveError::of_stream(StreamError::Incomplete))
}

/// The redaction snapshots in a stream.
fn redacted_for(list: &Nvlist) -> RedactedFor {
    let guids = |name: &str| match list.get(name) {
        Some(NvValue::Uint64Array(guids)) => Some(guids.clone()),
        _ => None,
    };
    RedactedFor { snapshots: guids("redact_snaps"), from: guids("redact_from_snaps") }
}

fn keys_of(list: &Nvlist, endian: Endian) -> Result<RawKeys, &'static str> {
    if endian != Endian::NATIVE {
        return Err("raw streams of machines of the other byte order can't be received");
    }
    RawKeys::of(list.get_nvlist("crypt_keydata").ok_or("stream has no encryption keys")?)
}

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

/// The beginning of a stream.
struct OfStream<'a> {
    begin: &'a Begin,
    list: &'a Nvlist,
    keys: Option<&'a RawKeys>,
    is_clone: bool,
    start_bytes: u64,
}

async fn fill(
    engine: &Engine,
    reader: &mut StreamReader,
    OfStream { begin, list, keys, is_clone, start_bytes }: OfStream<'_>,
    receiving: &Receiving,
    reshare: Option<Reshare>,
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
        limits: limits(engine, begin).await?,
    };
    let live = opened.live().clone();
    let mut filling = Filling::new(engine, live, way, raw, reshare, start_bytes);
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
    // Records received are valid: each sum was verified.
    let flushed = filling.flush().await;
    if ended.is_ok() && flushed.is_ok() && is_clone && begin.from_guid == Guid(0) {
        filling.free_beyond().await?;
    }
    if ended.is_ok() && flushed.is_ok() {
        filling.settle().await?;
    }
    if is_resumable.is_some() && (ended.is_err() || flushed.is_err()) {
        // The first error takes precedence; without this note, a resume starts at the previous one.
        note(engine, receiving, &filling, before_bytes).await.ok();
    }
    ended.and(flushed.map_err(Broken::Pool))
}

/// The limits of a pool for a stream, whose declared features it has.
async fn limits(engine: &Engine, begin: &Begin) -> Result<Limits, DatasetError> {
    let enabled = engine.mos().await?.enabled_features().await?;
    Ok(Limits {
        block_bytes: if enabled.contains("large_blocks") { SPA_MAXBLOCKSIZE } else { SPA_OLD_MAXBLOCKSIZE },
        slots: if begin.features.has(StreamFeatures::LARGE_DNODE) { MAX_SLOTS } else { 1 },
        has_lz4: enabled.contains("lz4_compress"),
        has_zstd: enabled.contains("zstd_compress"),
    })
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

/// Removes a broken receive, unless it can be resumed.
async fn give_up(
    engine: &Engine,
    what: &'static str,
    receiving: &Receiving,
    is_resumable: bool,
    broken: Broken,
) -> ReceiveError {
    let saved = if is_resumable { saved_token(engine, receiving).await } else { None };
    let broken = match (saved, broken) {
        (Some(token), Broken::Stream(source)) => {
            let source = match source {
                StreamError::Checksum => StreamError::Checksum,
                _ => StreamError::Incomplete,
            };
            return ReceiveError::Saved { what, source, token };
        }
        // The received part is valid: there may be room for the rest later.
        (Some(_), Broken::Pool(error)) if !error.is_damage() => return ReceiveError::of_task(what, error),
        (_, broken) => broken,
    };
    // The first error takes precedence; the next receive removes the remains.
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

/// Whether a stream makes a dataset, rather than continuing one.
fn is_new(begin: &Begin, order: &Order) -> bool {
    begin.from_guid == Guid(0) || begin.flags.has(BeginFlags::CLONE) || order.origin.is_some()
}

/// The operation, by the kind of stream.
fn kind_of(begin: &Begin, order: &Order) -> &'static str {
    match (begin.features.has(StreamFeatures::RESUMING), is_new(begin, order)) {
        (true, _) => "cannot receive resume stream",
        (false, true) => "cannot receive new filesystem stream",
        (false, false) => "cannot receive incremental stream",
    }
}

/// The snapshot with this guid, nearest first: from a dataset upwards.
async fn by_guid(engine: &Engine, guid: Guid, near: &str) -> Result<Option<String>> {
    let mos = engine.mos().await?;
    let mut above = near;
    while let Some((parent, _)) = above.rsplit_once('/') {
        above = parent;
        let Ok(top) = mos.dataset(above).await else { continue };
        let mut datasets = vec![top.clone()];
        datasets.extend(top.descendants().await?);
        for dataset in datasets.iter().filter(|dataset| !dataset.is_snapshot()) {
            if let Some(found) = dataset.snapshots().await?.into_iter().find(|found| found.guid() == guid) {
                return Ok(Some(found.name().to_owned()));
            }
        }
    }
    Ok(None)
}

//! State of a resumable receive, stored with its head in OpenZFS's format.
//!
//! Idea: the head records the sent snapshot and the last object and offset received. A token of these fields
//! (`cenote_stream`) tells the sender where to resume. State is saved now and then, so some records arrive
//! twice; applying one again changes nothing.
//!
//! Source: OpenZFS `dsl_dataset.h` (`DS_FIELD_RESUME_*`), `dmu_recv.c` (`dmu_recv_begin_sync`,
//! `save_resume_state`), `dsl_dataset.c` (`get_receive_resume_token_impl`).

use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_dataset::mos::RECV_CLONE_NAME;
use cenote_dataset::properties::REDACTED_DATASETS;
use cenote_engine::{Engine, SyncContext};
use cenote_format::dsl::names::dataset_field;
use cenote_format::stream::{Begin, StreamFeatures};
use cenote_format::units::{DatasetId, Guid, ObjectId};
use cenote_object::{DatasetError, Result, ZapEdit, ZapValue};

use crate::receive::redacted::RedactedFor;

/// Stream flags that the resumed stream must share.
const OPTIONS: [(StreamFeatures, &str); 4] = [
    (StreamFeatures::LARGE_BLOCKS, dataset_field::RESUME_LARGEBLOCK),
    (StreamFeatures::EMBED_DATA, dataset_field::RESUME_EMBEDOK),
    (StreamFeatures::COMPRESSED, dataset_field::RESUME_COMPRESSOK),
    (StreamFeatures::RAW, dataset_field::RESUME_RAWOK),
];
/// All fields.
const FIELDS: [&str; 11] = [
    dataset_field::RESUME_FROMGUID,
    dataset_field::RESUME_TOGUID,
    dataset_field::RESUME_TONAME,
    dataset_field::RESUME_OBJECT,
    dataset_field::RESUME_OFFSET,
    dataset_field::RESUME_BYTES,
    dataset_field::RESUME_LARGEBLOCK,
    dataset_field::RESUME_EMBEDOK,
    dataset_field::RESUME_COMPRESSOK,
    dataset_field::RESUME_RAWOK,
    dataset_field::RESUME_REDACT_BOOKMARK_SNAPS,
];

/// Progress of a receive: the last block written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Its object.
    pub object: ObjectId,
    /// Byte offset in the object.
    pub offset: u64,
    /// Bytes of the stream up to there.
    pub bytes: u64,
}

/// Saved state of an interrupted receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeState {
    /// The incremental base; 0: a full stream.
    pub from_guid: Guid,
    /// The sent snapshot's guid.
    pub to_guid: Guid,
    /// The sender's name of it.
    pub to_name: Vec<u8>,
    /// The last block received.
    pub progress: Progress,
    /// Block kinds in the stream: large, embedded, compressed, raw.
    pub features: StreamFeatures,
    /// Its redaction snapshots.
    pub redacted: RedactedFor,
}

/// The saved receive state of a head, if any.
///
/// # Errors
/// The table is damaged.
#[boxed]
pub async fn resume_state(head: &Dataset) -> Result<Option<ResumeState>> {
    let number = async |field: &str| -> Result<Option<u64>> {
        Ok(head.field(field).await?.and_then(|words| words.first().copied()))
    };
    let Some(to_guid) = number(dataset_field::RESUME_TOGUID).await? else { return Ok(None) };
    let mut features = StreamFeatures::default();
    for (feature, field) in OPTIONS {
        if number(field).await?.is_some_and(|value| value != 0) {
            features = features | feature;
        }
    }
    Ok(Some(ResumeState {
        from_guid: Guid(number(dataset_field::RESUME_FROMGUID).await?.unwrap_or(0)),
        to_guid: Guid(to_guid),
        to_name: head.text_field(dataset_field::RESUME_TONAME).await?.unwrap_or_default(),
        progress: Progress {
            object: ObjectId(number(dataset_field::RESUME_OBJECT).await?.unwrap_or(0)),
            offset: number(dataset_field::RESUME_OFFSET).await?.unwrap_or(0),
            bytes: number(dataset_field::RESUME_BYTES).await?.unwrap_or(0),
        },
        features,
        redacted: RedactedFor {
            snapshots: head.field(REDACTED_DATASETS).await?,
            from: head.field(dataset_field::RESUME_REDACT_BOOKMARK_SNAPS).await?,
        },
    }))
}

/// The receive state of a file system or volume, in its head or in `%recv`, if any.
///
/// # Errors
/// Tables are damaged.
#[boxed]
pub async fn unfinished_receive(head: &Dataset) -> Result<Option<ResumeState>> {
    if head.phys().is_inconsistent() {
        return resume_state(head).await;
    }
    match head.dir().child(RECV_CLONE_NAME).await? {
        Some(beside) => resume_state(&beside.head().await?).await,
        None => Ok(None),
    }
}

/// Saves a receive's progress. On return, everything up to there is on disk.
///
/// # Errors
/// The txg could not be written.
#[boxed]
pub async fn note_progress(engine: &Engine, head: DatasetId, progress: Progress) -> Result<()> {
    engine
        .run(move |context| {
            context.touch_nothing();
            Box::pin(async move {
                let edit = context.edit();
                let fields = ZapEdit::new(&edit, ObjectId(head.0));
                fields.update(dataset_field::RESUME_OBJECT, progress.object.0).await?;
                fields.update(dataset_field::RESUME_OFFSET, progress.offset).await?;
                fields.update(dataset_field::RESUME_BYTES, progress.bytes).await
            })
        })
        .await
}

/// Whether a head has resume state.
pub(crate) async fn has_state(context: &SyncContext, id: ObjectId) -> Result<bool> {
    let edit = context.edit();
    if !edit.view().dnode(id).await?.object_type.is_zap() {
        return Ok(false);
    }
    Ok(ZapEdit::new(&edit, id).get(dataset_field::RESUME_TOGUID).await?.is_some())
}

/// Saves the initial state of a resumable receive.
pub(crate) async fn begin_resumable(
    context: &mut SyncContext,
    id: ObjectId,
    begin: &Begin,
    redacted: &RedactedFor,
) -> Result<()> {
    context.zapify(id).await?;
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, id);
    if begin.from_guid.0 != 0 {
        fields.add(dataset_field::RESUME_FROMGUID, begin.from_guid.0).await?;
    }
    let mut name = begin.to_name.clone();
    name.push(0);
    fields.add(dataset_field::RESUME_TOGUID, begin.to_guid.0).await?;
    fields.add(dataset_field::RESUME_TONAME, &ZapValue::new(1, name.into())).await?;
    // Starts at object 1: the meta dnode has no blocks to resume from.
    fields.add(dataset_field::RESUME_OBJECT, 1).await?;
    fields.add(dataset_field::RESUME_OFFSET, 0).await?;
    fields.add(dataset_field::RESUME_BYTES, 0).await?;
    for (feature, field) in OPTIONS {
        if begin.features.has(feature) {
            fields.add(field, 1).await?;
        }
    }
    if let Some(guids) = &redacted.from {
        let value = ZapValue::from_words(guids);
        fields.add(dataset_field::RESUME_REDACT_BOOKMARK_SNAPS, &value).await?;
    }
    Ok(())
}

/// Drops the resume state of a complete head.
pub(crate) async fn drop_state(context: &SyncContext, id: ObjectId) -> Result<()> {
    let edit = context.edit();
    if !edit.view().dnode(id).await?.object_type.is_zap() {
        return Ok(());
    }
    let fields = ZapEdit::new(&edit, id);
    for field in FIELDS {
        match fields.remove(field).await {
            Err(DatasetError::NoEntry { .. }) => {}
            done => done?,
        }
    }
    Ok(())
}

/// Checks that a stream continues the interrupted receive.
pub(crate) async fn check_resumed(head: &Dataset, begin: &Begin) -> Result<()> {
    let refuse = |why: &str| Err(DatasetError::unsuitable(head.name(), why));
    if !head.phys().is_inconsistent() {
        return refuse("no receive into it has broken off");
    }
    match resume_state(head).await? {
        None => refuse("the receive that broke off can't be resumed"),
        Some(state) if state.to_guid != begin.to_guid || state.from_guid != begin.from_guid => {
            refuse("the stream is not the rest of what has been received")
        }
        Some(_) => Ok(()),
    }
}

//! The state of a receive that may be resumed, kept with its head as OpenZFS keeps it.
//!
//! Idea: the head says which snapshot it is to become and the last object and offset that have come. A token
//! with these words (`cenote_stream`) tells the sender where to go on. Records from there on may have come
//! already, for the state is noted now and then: they come again, and change nothing.
//!
//! Source: OpenZFS `dsl_dataset.h` (`DS_FIELD_RESUME_*`), `dmu_recv.c` (`dmu_recv_begin_sync`,
//! `save_resume_state`), `dsl_dataset.c` (`get_receive_resume_token_impl`).

use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_engine::{Engine, SyncContext};
use cenote_format::dsl::names::dataset_field;
use cenote_format::stream::{Begin, StreamFeatures};
use cenote_format::units::{DatasetId, Guid, ObjectId};
use cenote_object::{DatasetError, Result, ZapEdit, ZapValue};

use crate::make::RECV_CLONE_NAME;

/// Flags of the stream that the rest must have, too.
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

/// How far a receive has come: the last block that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Its object.
    pub object: ObjectId,
    /// Where in it.
    pub offset: u64,
    /// Bytes of the stream up to that.
    pub bytes: u64,
}

/// What a head says of a receive that broke off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeState {
    /// What the increment builds on; 0: the stream is whole.
    pub from_guid: Guid,
    /// The snapshot.
    pub to_guid: Guid,
    /// Its name at the sender.
    pub to_name: Vec<u8>,
    /// How far it has come.
    pub progress: Progress,
    /// What the stream may hold: large, embedded, compressed, raw blocks.
    pub features: StreamFeatures,
}

/// The state that a receive left; `None` if there is none.
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
    }))
}

/// The state that a receive into a file system or volume left, in that or beside it; `None` if there is none.
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

/// Notes how far a receive has come; all of that is on disk when this returns.
///
/// # Errors
/// The txg could not be written.
#[boxed]
pub async fn note_progress(engine: &Engine, head: DatasetId, progress: Progress) -> Result<()> {
    engine
        .run(move |context| {
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

/// Whether a head may be resumed.
pub(crate) async fn has_state(context: &SyncContext, id: ObjectId) -> Result<bool> {
    let edit = context.edit();
    if !edit.view().dnode(id).await?.object_type.is_zap() {
        return Ok(false);
    }
    Ok(ZapEdit::new(&edit, id).get(dataset_field::RESUME_TOGUID).await?.is_some())
}

/// A receive begins that may be resumed.
pub(crate) async fn begin_resumable(context: &mut SyncContext, id: ObjectId, begin: &Begin) -> Result<()> {
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
    // The meta dnode has no blocks of its own to resume from.
    fields.add(dataset_field::RESUME_OBJECT, 1).await?;
    fields.add(dataset_field::RESUME_OFFSET, 0).await?;
    fields.add(dataset_field::RESUME_BYTES, 0).await?;
    for (feature, field) in OPTIONS {
        if begin.features.has(feature) {
            fields.add(field, 1).await?;
        }
    }
    Ok(())
}

/// A head is whole: it does not say any more how it came.
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

/// The rest of a stream must be the rest of what broke off.
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

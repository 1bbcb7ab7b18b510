//! Redacted datasets: received without some blocks, which the field below the feature's name tells of.
//!
//! Idea: a redacted dataset has holes where the sender left blocks out. An increment from the complete
//! snapshot may rely on such a block. So it is received only if its sender knew of the holes, or if it fills
//! them: the increment comes from a redaction bookmark or a redacted dataset, is redacted itself for no more
//! snapshots, or leads to one of the snapshots that it was redacted for.
//!
//! Source: OpenZFS `dmu_recv.c` (`redact_check`, `dmu_recv_begin_sync`, `dmu_recv_resume_begin_check`),
//! `dsl_dataset.c` (`dsl_dataset_activate_redaction`).

use cenote_dataset::Dataset;
use cenote_engine::SyncContext;
use cenote_format::features::Feature;
use cenote_format::units::{Guid, ObjectId};
use cenote_object::{DatasetError, Result, ZapEdit, ZapValue};

use super::NewReceive;

const INVALID: &str = "invalid backup stream";

/// The redaction snapshots in a stream's BEGIN.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RedactedFor {
    /// Those for which it is redacted.
    pub snapshots: Option<Vec<u64>>,
    /// Those of its source, a redaction bookmark or redacted snapshot.
    pub from: Option<Vec<u64>>,
}

fn feature() -> Option<&'static Feature> {
    Feature::by_name("redacted_datasets")
}

/// The redaction snapshots of a dataset; none: it is complete.
async fn redaction_of(dataset: &Dataset) -> Result<Option<Vec<u64>>> {
    match feature() {
        Some(feature) => dataset.field(feature.guid).await,
        None => Ok(None),
    }
}

/// Whether a stream can be received on top of this snapshot.
pub(super) async fn check_base(new: &NewReceive, base: &Dataset) -> Result<()> {
    let Some(origin) = redaction_of(base).await? else { return Ok(()) };
    let within =
        |some: &Vec<u64>| some.len() <= origin.len() && some.iter().all(|guid| origin.contains(guid));
    let fits = match (&new.redacted.from, &new.redacted.snapshots) {
        _ if new.begin.from_guid == Guid(0) => true,
        (Some(from), _) => within(from),
        (None, Some(snapshots)) => within(snapshots),
        (None, None) => origin.contains(&new.begin.to_guid.0),
    };
    if fits { Ok(()) } else { Err(DatasetError::unsuitable(&new.target, INVALID)) }
}

/// Notes a new head's redaction snapshots. Those of its base do not apply to it.
pub(super) async fn note(context: &mut SyncContext, head: ObjectId, new: &NewReceive) -> Result<()> {
    let Some(feature) = feature() else { return Ok(()) };
    let edit = context.edit();
    let has_fields = edit.view().dnode(head).await?.object_type.is_zap();
    if has_fields && ZapEdit::new(&edit, head).get(feature.guid).await?.is_some() {
        ZapEdit::new(&edit, head).remove(feature.guid).await?;
        context.use_feature(feature.name, -1).await?;
    }
    match &new.redacted.snapshots {
        Some(guids) => context.activate_feature(head, feature, ZapValue::from_words(guids)).await,
        None => Ok(()),
    }
}

/// Whether the rest of a stream is redacted as its beginning was.
pub(super) async fn check_resumed(new: &NewReceive, head: &Dataset) -> Result<()> {
    let here = redaction_of(head).await?;
    let is_same = match (&here, &new.redacted.snapshots) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(here), Some(snapshots)) => {
            here.len() == snapshots.len() && here.iter().all(|guid| snapshots.contains(guid))
        }
    };
    if is_same { Ok(()) } else { Err(DatasetError::unsuitable(&new.target, INVALID)) }
}

//! Notes datasets touched by a task, by name ([`cenote_engine::Touched`]).
//!
//! Only the functions that run a whole task note, and each step of a channel program: parts of tasks do not
//! know what the rest of the task touches.

use std::collections::BTreeSet;

use cenote_dataset::Dataset;
use cenote_engine::{Reach, SyncContext};
use cenote_object::{DatasetError, Result};

/// Notes the file systems and volumes of these names, which may also be of their snapshots.
pub(crate) async fn touch(
    context: &mut SyncContext,
    names: impl IntoIterator<Item = &str>,
    reach: Reach,
) -> Result<()> {
    context.touch_nothing();
    let mos = context.mos().await?;
    let heads: BTreeSet<&str> =
        names.into_iter().map(|name| name.split('@').next().unwrap_or(name)).collect();
    for name in heads {
        match mos.dataset(name).await {
            Ok(head) => context.touch(&head, reach),
            Err(DatasetError::NoDataset { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Notes a dataset whose property changed; a snapshot's concerns no mount.
pub(crate) async fn touch_setting(context: &mut SyncContext, name: &str) -> Result<()> {
    match name.contains('@') {
        true => {
            context.touch_nothing();
            Ok(())
        }
        false => touch(context, [name], Reach::Below).await,
    }
}

/// Notes heads.
pub(crate) fn touch_heads<'a>(
    context: &mut SyncContext,
    heads: impl IntoIterator<Item = &'a Dataset>,
    reach: Reach,
) {
    context.touch_nothing();
    heads.into_iter().for_each(|head| context.touch(head, reach));
}

//! Notes datasets touched by a task, by name ([`cenote_engine::Touched`]).
//!
//! Only functions that run a whole task note: a channel program has steps of several tasks, and one may touch
//! more than another would say.

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
        true => touch(context, [], Reach::Own).await,
        false => touch(context, [name], Reach::Below).await,
    }
}

/// Notes a destroyed dataset.
pub(crate) fn touch_gone(context: &mut SyncContext, gone: &Dataset) {
    context.touch(gone, Reach::Own);
}

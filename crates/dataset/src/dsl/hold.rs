//! Holds: `zfs hold`, `zfs release`. A snapshot that is held can't be destroyed.
//!
//! Source: OpenZFS `dsl_userhold.c`.

use cenote_format::dnode::ObjectType;
use cenote_format::units::ObjectId;

use super::{Dataset, name};
use crate::engine::{Engine, SyncContext};
use crate::error::{DatasetError, Result};
use crate::zap::{NewZap, ZapEdit};

/// `MAXNAMELEN`, less the NUL.
const MAX_TAG_BYTES: usize = 255;

impl Engine {
    /// Holds a snapshot under a tag.
    ///
    /// # Errors
    /// There is no such snapshot, or it has a hold of that tag.
    pub async fn hold_snapshot(&self, snapshot: &str, tag: &str) -> Result<()> {
        let (snapshot, tag) = (snapshot.to_owned(), tag.to_owned());
        self.run(move |context| Box::pin(async move { context.hold_snapshot(&snapshot, &tag).await })).await
    }

    /// Removes a hold. A snapshot that was only waiting for that is destroyed.
    ///
    /// # Errors
    /// There is no such snapshot, or no hold of that tag.
    pub async fn release_snapshot(&self, snapshot: &str, tag: &str) -> Result<()> {
        let (snapshot, tag) = (snapshot.to_owned(), tag.to_owned());
        self.run(move |context| Box::pin(async move { context.release_snapshot(&snapshot, &tag).await }))
            .await
    }
}

impl SyncContext {
    async fn snapshot_to_hold(&self, full: &str) -> Result<Dataset> {
        name::split_at(full, '@')?;
        self.mos().await?.dataset(full).await
    }

    async fn hold_snapshot(&mut self, full: &str, tag: &str) -> Result<()> {
        let snapshot = self.snapshot_to_hold(full).await?;
        if tag.is_empty() || tag.len() > MAX_TAG_BYTES || tag.contains('\0') {
            return Err(DatasetError::BadName { name: tag.into(), why: "tags have 1 to 255 bytes".into() });
        }
        if snapshot.holds().await?.iter().any(|(other, _)| other == tag) {
            return Err(DatasetError::unsuitable(full, format!("is held under '{tag}' already")));
        }
        let (edit, id) = (self.edit(), ObjectId(snapshot.id().0));
        let mut phys = self.dataset_phys(id).await?;
        if phys.userrefs_zap.0 == 0 {
            phys.userrefs_zap = NewZap::of(ObjectType::USERREFS).create(&edit).await?;
            self.set_dataset_phys(id, &phys).await?;
        }
        ZapEdit::new(&edit, phys.userrefs_zap).add(tag, self.now_s()).await
    }

    async fn release_snapshot(&mut self, full: &str, tag: &str) -> Result<()> {
        let snapshot = self.snapshot_to_hold(full).await?;
        if !snapshot.holds().await?.iter().any(|(other, _)| other == tag) {
            let why = format!("is not held under '{tag}'; `zfs holds` shows its tags");
            return Err(DatasetError::unsuitable(full, why));
        }
        ZapEdit::new(&self.edit(), snapshot.phys().userrefs_zap).remove(tag).await?;
        self.remove_if_deferred(&snapshot).await
    }
}

//! Holds: `zfs hold`, `zfs release`. A snapshot that is held can't be destroyed.
//!
//! Source: OpenZFS `dsl_userhold.c`.

use cenote_format::dnode::ObjectType;
use cenote_format::features::Since;
use cenote_format::units::ObjectId;

use super::{Dataset, name};
use crate::engine::{Engine, SpaceCheck, SyncContext};
use crate::error::{DatasetError, Result};
use crate::zap::{NewZap, ZapEdit};

/// `MAXNAMELEN`, less the NUL.
const MAX_TAG_BYTES: usize = 255;

impl Engine {
    /// Holds snapshots under a tag, all or none.
    ///
    /// # Errors
    /// There is no such snapshot, or one has a hold of that tag.
    pub async fn hold_snapshots(&self, snapshots: &[String], tag: &str) -> Result<()> {
        let (snapshots, tag) = (snapshots.to_vec(), tag.to_owned());
        self.run_within(SpaceCheck::Reserved, move |context| {
            Box::pin(async move { context.hold_snapshots(&snapshots, &tag).await })
        })
        .await
    }

    /// Removes holds, all or none. A snapshot that was only waiting for that is destroyed.
    ///
    /// # Errors
    /// There is no such snapshot, or one has no hold of that tag.
    pub async fn release_snapshots(&self, snapshots: &[String], tag: &str) -> Result<()> {
        let (snapshots, tag) = (snapshots.to_vec(), tag.to_owned());
        self.run(move |context| Box::pin(async move { context.release_snapshots(&snapshots, &tag).await }))
            .await
    }
}

impl SyncContext {
    /// Snapshots by their names, and whether they are held under that tag must be as said.
    async fn snapshots_held(&self, names: &[String], tag: &str, held: bool) -> Result<Vec<Dataset>> {
        let mos = self.mos().await?;
        let mut found = Vec::new();
        for full in names {
            name::split_at(full, '@')?;
            let snapshot = mos.dataset(full).await?;
            if snapshot.holds().await?.iter().any(|(other, _)| other == tag) != held {
                let why =
                    if held { "no such tag on this dataset" } else { "tag already exists on this dataset" };
                return Err(DatasetError::unsuitable(full, why));
            }
            found.push(snapshot);
        }
        Ok(found)
    }

    async fn hold_snapshots(&mut self, names: &[String], tag: &str) -> Result<()> {
        if tag.is_empty() || tag.len() > MAX_TAG_BYTES || tag.contains('\0') {
            return Err(DatasetError::BadName { name: tag.into(), why: "tag too long, or empty".into() });
        }
        self.require(Since::Holds, tag)?;
        for snapshot in self.snapshots_held(names, tag, false).await? {
            let (edit, id) = (self.edit(), ObjectId(snapshot.id().0));
            let refs = snapshot.holds().await?.len() + 1;
            let mut phys = self.dataset_phys(id).await?;
            if phys.userrefs_zap.0 == 0 {
                phys.userrefs_zap = NewZap::of(ObjectType::USERREFS).create(&edit).await?;
                self.set_dataset_phys(id, &phys).await?;
            }
            ZapEdit::new(&edit, phys.userrefs_zap).add(tag, self.now_s()).await?;
            let details = format!("tag={tag} temp=0 refs={refs}");
            self.log_of_dataset((snapshot.name(), id), "hold", &details).await?;
        }
        Ok(())
    }

    async fn release_snapshots(&mut self, names: &[String], tag: &str) -> Result<()> {
        for snapshot in self.snapshots_held(names, tag, true).await? {
            let refs = snapshot.holds().await?.len() - 1;
            ZapEdit::new(&self.edit(), snapshot.phys().userrefs_zap).remove(tag).await?;
            let details = format!("tag={tag} refs={refs}");
            let id = ObjectId(snapshot.id().0);
            self.log_of_dataset((snapshot.name(), id), "release", &details).await?;
            self.remove_if_deferred(&snapshot).await?;
        }
        Ok(())
    }
}

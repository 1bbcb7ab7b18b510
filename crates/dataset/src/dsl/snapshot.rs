//! Snapshots taken: `zfs snapshot`, of several datasets at one moment.
//!
//! Idea: tasks run after the group's datasets were written. So a snapshot only has to keep the tree that is there; all that are taken
//! in one task show the same moment.
//!
//! Source: OpenZFS `dsl_dataset.c` (`dsl_dataset_snapshot_check`, `dsl_dataset_snapshot_sync`).

use cenote_format::dsl::names::{dataset_field, dir_field};
use cenote_format::features::Since;
use cenote_format::units::ObjectId;

use cenote_format::props::AppliesTo;

use super::create::Settings;
use super::set::{SetAt, check_setting};
use super::{Dataset, name};
use crate::engine::{Engine, NO_DETAILS, SpaceCheck, SyncContext};
use crate::error::{DatasetError, Result};
use crate::features::FeatureCounts;
use crate::zap::{ZapEdit, ZapValue};

impl Engine {
    /// Takes snapshots of several datasets at one moment, all or none: names like `pool/a@s`. All that was done before is in them.
    ///
    /// # Errors
    /// A name can't be or is taken, there is no such dataset, or no room for what is promised to it.
    pub async fn snapshot(&self, names: &[String]) -> Result<()> {
        self.snapshot_with(names, Settings::new()).await
    }

    /// The same, with properties of the administrator's own that all of them get.
    ///
    /// # Errors
    /// As [`Engine::snapshot`]; or snapshots can't have such properties.
    pub async fn snapshot_with(&self, names: &[String], settings: Settings) -> Result<()> {
        loop {
            let (names, settings) = (names.to_vec(), settings.clone());
            let taken = self
                .run_within(SpaceCheck::Normal, move |context| {
                    Box::pin(async move { context.snapshot(&names, &settings).await })
                })
                .await?;
            // Two snapshots of one group could not be told apart by births: the second has to wait for the next.
            if taken {
                return Ok(());
            }
        }
    }
}

impl SyncContext {
    /// Answers `false` if one of the datasets has a snapshot of this very group.
    async fn snapshot(&mut self, names: &[String], settings: &Settings) -> Result<bool> {
        let mos = self.mos().await?;
        let first = names.first().map_or("", |name| name);
        for (property, value) in settings {
            self.require(Since::SnapshotProperties, first)?;
            check_setting(first, property, value, AppliesTo::SNAP, SetAt::Creation)?;
        }
        let mut heads: Vec<(Dataset, String)> = Vec::new();
        for full in names {
            let (path, own) = name::split_at(full, '@')?;
            let head = mos.dataset(path).await?;
            if heads.iter().any(|(other, _)| other.id() == head.id()) {
                return Err(DatasetError::unsuitable(full, "multiple snapshots of same fs not allowed"));
            }
            if head.snapshot(own).await?.is_some() {
                return Err(DatasetError::DatasetExists { name: full.as_str().into() });
            }
            // What is shared with the snapshot does not count for the promise any more: there must be as much again.
            let needed_bytes = head.phys().unique_bytes.min(head.setting("refreservation").await?);
            let available_bytes = if needed_bytes == 0 { 0 } else { head.dir().available().await? };
            if needed_bytes > available_bytes {
                let name = full.as_str().into();
                return Err(DatasetError::NoSpace { name, needed_bytes, available_bytes });
            }
            heads.push((head, own.to_owned()));
        }
        if heads.iter().any(|(head, _)| head.phys().prev_snapshot_txg >= self.txg()) {
            return Ok(false);
        }
        for (head, own) in heads {
            let id = ObjectId(head.id().0);
            let snapshot = self.make_snapshot(id, &own, self.refreservation(id).await?).await?;
            self.note_ivset(&head, snapshot).await?;
            self.note_snapshots_changed(head.dir().id()).await?;
            let full = format!("{}@{own}", head.name());
            self.log_of_dataset((&full, snapshot), "snapshot", NO_DETAILS).await?;
            if !settings.is_empty() {
                let taken = self.mos().await?.dataset(&full).await?;
                for (property, value) in settings {
                    self.store_setting(&taken, property, value).await?;
                }
            }
        }
        Ok(true)
    }

    /// Snapshots of encrypted datasets say which set of IVs they belong to.
    async fn note_ivset(&mut self, head: &Dataset, snapshot: ObjectId) -> Result<()> {
        if head.dir().field(dir_field::CRYPTO_KEY_OBJ).await?.is_none()
            || FeatureCounts::of(&self.edit()).count("bookmark_v2").await?.is_none()
        {
            return Ok(());
        }
        self.zapify(snapshot).await?;
        let ivset = self.new_fsid();
        ZapEdit::new(&self.edit(), snapshot).add(dataset_field::IVSET_GUID, ivset.0).await
    }

    /// Property `snapshots_changed` (`dsl_dir_snap_cmtime_update`).
    pub(super) async fn note_snapshots_changed(&mut self, dir: ObjectId) -> Result<()> {
        if FeatureCounts::of(&self.edit()).count("extensible_dataset").await?.is_none() {
            return Ok(());
        }
        self.zapify(dir).await?;
        let now = ZapValue::from_words(&[self.now_s(), 0]);
        ZapEdit::new(&self.edit(), dir).update(dir_field::SNAPSHOTS_CHANGED, &now).await
    }
}

//! Clones: `zfs clone pool/a@s pool/b`, and whole trees of them.
//!
//! A clone's head begins with the snapshot's tree, and owes nothing for it. Several are made in one group: all, or none.
//!
//! Source: OpenZFS `dmu_objset.c` (`dmu_objset_clone_sync`).

use cenote_format::props::AppliesTo;
use cenote_format::units::{DatasetId, ObjectId};

use super::create::Settings;
use super::set::{SetAt, check_setting};
use super::{Dataset, name};
use crate::engine::{Engine, SpaceCheck, SyncContext};
use crate::error::Result;
use cenote_format::objset::ObjsetType;

impl Engine {
    /// Makes a file system or volume that begins as a snapshot is.
    ///
    /// # Errors
    /// There is no such snapshot, the name can't be or is taken, there is no parent, a setting can't be.
    pub async fn clone_snapshot(&self, snapshot: &str, name: &str, settings: Settings) -> Result<()> {
        self.clone_snapshots(vec![(snapshot.to_owned(), name.to_owned())], settings).await
    }

    /// Makes clones, as pairs of a snapshot and the clone's name, all of them or none. A clone may be the parent of one that comes after it.
    ///
    /// # Errors
    /// The same.
    pub async fn clone_snapshots(&self, clones: Vec<(String, String)>, settings: Settings) -> Result<()> {
        self.run_within(SpaceCheck::Normal, move |context| {
            Box::pin(async move { context.clone_snapshots(&clones, &settings).await })
        })
        .await
    }
}

impl SyncContext {
    async fn clone_snapshots(&mut self, clones: &[(String, String)], settings: &Settings) -> Result<()> {
        let mut made = Vec::new();
        for (snapshot, name) in clones {
            if let Err(error) = self.clone_snapshot(snapshot, name, settings, &mut made).await {
                for head in made.into_iter().rev() {
                    self.unmake_objset(DatasetId(head.0));
                    self.remove_head(head).await?;
                }
                return Err(error);
            }
        }
        for ((snapshot, name), head) in clones.iter().zip(made) {
            let origin = self.mos().await?.dataset(snapshot).await?.id();
            self.log_of_dataset((name, head), "clone", &format!("origin={snapshot} ({origin})")).await?;
        }
        Ok(())
    }

    /// Makes one clone, and adds it to those that were `made` as soon as there is something to take back.
    async fn clone_snapshot(
        &mut self,
        snapshot: &str,
        name: &str,
        settings: &Settings,
        made: &mut Vec<ObjectId>,
    ) -> Result<()> {
        name::split_at(snapshot, '@')?;
        let origin = self.mos().await?.dataset(snapshot).await?;
        // Its log is read on the way.
        origin.key().await?;
        let parent = self.parent_of_new(name).await?;
        self.check_clone_settings(&origin, name, settings).await?;
        let (_, own) = name::split_child(name)?;
        let dir = self.make_dir(Some(parent.dir().id()), own).await?;
        let head = self.make_head(dir, Some(ObjectId(origin.id().0)), 0).await?;
        made.push(head);
        self.share_key(origin.dir(), dir).await?;
        self.count_if_others_are(&self.mos().await?.dataset(name).await?).await?;
        self.make_livelist(dir).await?;
        self.without_log(DatasetId(head.0)).await?;
        for (property, value) in settings {
            let clone = self.mos().await?.dataset(name).await?;
            self.check_limit(&clone, property, value).await?;
            self.store_setting(&clone, property, value).await?;
        }
        Ok(())
    }

    async fn check_clone_settings(&self, origin: &Dataset, name: &str, settings: &Settings) -> Result<()> {
        let is_volume = origin.content_type().await? == ObjsetType::Zvol;
        let applies = if is_volume { AppliesTo::VOL } else { AppliesTo::FS };
        for (property, value) in settings {
            check_setting(name, property, value, applies, SetAt::Existing)?;
            self.require_feature(name, property, value).await?;
        }
        Ok(())
    }
}

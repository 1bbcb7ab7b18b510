//! Clones: `zfs clone pool/a@s pool/b`.
//!
//! A clone's head begins with the snapshot's tree, and owes nothing for it.
//!
//! Source: OpenZFS `dmu_objset.c` (`dmu_objset_clone_sync`).

use cenote_format::props::AppliesTo;
use cenote_format::units::{DatasetId, ObjectId};

use super::create::Settings;
use super::name;
use super::set::{SetAt, check_setting};
use crate::engine::{Engine, SyncContext};
use crate::error::Result;
use cenote_format::objset::ObjsetType;

impl Engine {
    /// Makes a file system or volume that begins as a snapshot is.
    ///
    /// # Errors
    /// There is no such snapshot, the name can't be or is taken, there is no parent, a setting can't be.
    pub async fn clone_snapshot(&self, snapshot: &str, name: &str, settings: Settings) -> Result<()> {
        let (snapshot, name) = (snapshot.to_owned(), name.to_owned());
        self.run(move |context| {
            Box::pin(async move { context.clone_snapshot(&snapshot, &name, settings).await })
        })
        .await
    }
}

impl SyncContext {
    async fn clone_snapshot(&mut self, snapshot: &str, name: &str, settings: Settings) -> Result<()> {
        name::split_at(snapshot, '@')?;
        let origin = self.mos().await?.dataset(snapshot).await?;
        self.refuse_encrypted(&origin, "cloned from it").await?;
        let parent = self.parent_of_new(name).await?;
        let is_volume = origin.content_type().await? == ObjsetType::Zvol;
        let applies = if is_volume { AppliesTo::VOL } else { AppliesTo::FS };
        for (property, value) in &settings {
            check_setting(name, property, value, applies, SetAt::Existing)?;
            self.require_feature(name, property, value).await?;
        }
        let (_, own) = name::split_child(name)?;
        let dir = self.make_dir(Some(parent.dir().id()), own).await?;
        let head = self.make_head(dir, Some(ObjectId(origin.id().0)), 0).await?;
        self.make_livelist(dir).await?;
        self.without_log(DatasetId(head.0)).await?;
        for (property, value) in settings {
            let clone = self.mos().await?.dataset(name).await?;
            if let Err(error) = self.check_limit(&clone, &property, &value).await {
                self.unmake_objset(DatasetId(head.0));
                self.remove_head(head).await?;
                return Err(error);
            }
            self.store_setting(&clone, &property, &value).await?;
        }
        Ok(())
    }
}

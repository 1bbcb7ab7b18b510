//! Steps: changes to datasets that a task of another crate makes in turn, in its own txg.
//!
//! Idea: a channel program (`zfs program`) is one task, in one txg. Its changes are the bodies of other
//! tasks, each with its own checks and share of the slop. A step sees those before it. A refused step leaves
//! no trace, and the task goes on.
//!
//! Source: OpenZFS `zcp_synctask.c` (`zcp_sync_task`, `zcp_synctask_wrapper`).

use cenote_boxed::boxed;
use cenote_dataset::Value;
use cenote_engine::{Reach, SpaceCheck, SyncContext, check_space};
use cenote_object::Result;

use crate::clone::{check_clone, clone_snapshots_sync};
use crate::destroy::{check_destruction, destroy_dataset_sync};
use crate::destroy_snapshot::{InUse, destroy_snapshots_sync, find_unused};
use crate::mark::{bookmark_sync, check_bookmark};
use crate::new_dataset::Settings;
use crate::promote::{check_promote, conflicts, promote_sync};
use crate::rename::{check_snapshot_rename, rename_snapshots_sync};
use crate::rollback::{check_rollback, rollback_sync};
use crate::set::{Instead, check_inherit, check_new_setting, inherit_sync, set_property_sync};
use crate::snapshot::{check_snapshots, snapshot_sync};
use crate::touch::{touch, touch_heads, touch_setting};

/// A change to a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Takes a snapshot, `pool/a@s`.
    Snapshot(String),
    /// Destroys a file system or volume.
    Destroy(String),
    /// Destroys a snapshot that exists.
    DestroySnapshot(String, InUse),
    /// Promotes a clone.
    Promote(String),
    /// Rolls back to a head's last snapshot, `pool/a@s`.
    Rollback(String),
    /// Clones a snapshot to a new dataset.
    Clone(String, String),
    /// Renames a snapshot; both names are full.
    RenameSnapshot(String, String),
    /// Bookmarks a snapshot or bookmark.
    Bookmark(String, String),
    /// Sets a property of a dataset.
    Set(String, String, Value),
    /// Ends a setting of a dataset.
    Inherit(String, String),
}

impl Step {
    /// Checks whether the step could be made now.
    ///
    /// # Errors
    /// Those of the task.
    #[boxed]
    pub async fn check(&self, context: &SyncContext) -> Result<()> {
        check_space(context, self.space()).await?;
        match self {
            Step::Snapshot(name) => {
                let names = std::slice::from_ref(name);
                check_snapshots(context, names, &Settings::new()).await.map(drop)
            }
            Step::Destroy(name) => check_destruction(context, name).await.map(drop),
            Step::DestroySnapshot(name, in_use) => {
                find_unused(context, std::slice::from_ref(name), *in_use).await.map(drop)
            }
            Step::Promote(clone) => check_promote(context, clone).await.map(drop),
            Step::Rollback(snapshot) => check_rollback(context, snapshot).await.map(drop),
            Step::Clone(snapshot, name) => {
                check_clone(context, snapshot, name, &Settings::new()).await.map(drop)
            }
            Step::RenameSnapshot(from, to) => check_snapshot_rename(context, from, to).await,
            Step::Bookmark(source, mark) => check_bookmark(context, source, mark).await.map(drop),
            Step::Set(name, property, value) => {
                check_new_setting(context, name, property, value).await.map(drop)
            }
            Step::Inherit(name, property) => {
                check_inherit(context, name, property, Instead::Inherited).await.map(drop)
            }
        }
    }

    /// Makes the step, and notes the datasets that it touches.
    ///
    /// # Errors
    /// Those of the task. Unless the error is a refusal, the step may be half done: the task has to fail with
    /// it.
    #[boxed]
    pub async fn make(&self, context: &mut SyncContext) -> Result<()> {
        check_space(context, self.space()).await?;
        match self {
            Step::Snapshot(name) => {
                let names = std::slice::from_ref(name);
                let heads = snapshot_sync(context, names, &Settings::new()).await?;
                touch_heads(context, &heads, Reach::Snapshots);
                Ok(())
            }
            Step::Destroy(name) => {
                let changed = destroy_dataset_sync(context, name).await?;
                touch_heads(context, &changed, Reach::Own);
                Ok(())
            }
            Step::DestroySnapshot(name, in_use) => {
                destroy_snapshots_sync(context, std::slice::from_ref(name), *in_use).await?;
                touch(context, [&**name], Reach::Snapshots).await
            }
            Step::Promote(clone) => {
                let changed = promote_sync(context, clone).await?;
                touch_heads(context, &changed, Reach::Snapshots);
                Ok(())
            }
            Step::Rollback(snapshot) => {
                rollback_sync(context, snapshot).await?;
                touch(context, [&**snapshot], Reach::Own).await
            }
            // A new dataset stays unmounted.
            Step::Clone(snapshot, name) => {
                let pair = [(snapshot.clone(), name.clone())];
                clone_snapshots_sync(context, &pair, &Settings::new()).await
            }
            Step::RenameSnapshot(from, to) => {
                rename_snapshots_sync(context, &[(from.clone(), to.clone())]).await?;
                touch(context, [&**from], Reach::Snapshots).await
            }
            Step::Bookmark(source, mark) => bookmark_sync(context, source, mark).await,
            Step::Set(name, property, value) => {
                set_property_sync(context, name, property, value).await?;
                touch_setting(context, name).await
            }
            Step::Inherit(name, property) => {
                inherit_sync(context, name, property, Instead::Inherited).await?;
                touch_setting(context, name).await
            }
        }
    }

    /// Names of snapshots (after the `@`) in the way of a promotion; none for other steps.
    ///
    /// # Errors
    /// The dataset is no clone; damage.
    #[boxed]
    pub async fn conflicts(&self, context: &SyncContext) -> Result<Vec<String>> {
        match self {
            Step::Promote(clone) => conflicts(context, clone).await,
            _ => Ok(Vec::new()),
        }
    }

    /// The task's share of the slop.
    fn space(&self) -> SpaceCheck {
        match self {
            Step::Snapshot(_) | Step::Clone(..) | Step::Bookmark(..) => SpaceCheck::Normal,
            Step::Promote(_)
            | Step::Rollback(_)
            | Step::RenameSnapshot(..)
            | Step::Set(..)
            | Step::Inherit(..) => SpaceCheck::Reserved,
            Step::Destroy(_) | Step::DestroySnapshot(..) => SpaceCheck::ExtraReserved,
        }
    }
}

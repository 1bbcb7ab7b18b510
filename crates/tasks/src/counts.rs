//! Counts of file systems and snapshots below a directory, for `filesystem_limit` and `snapshot_limit`.
//!
//! Idea: the tree below is counted when a limit is first set; from then on each creation and removal updates
//! the counts upwards, as far as directories have them. Limits bind users with delegated permissions, not
//! administrators, and at each directory only users not allowed to set its limit. Tasks that create or move
//! datasets call [`check_count`] before they change anything.
//!
//! Source: OpenZFS `dsl_dir.c` (`dsl_dir_init_fs_ss_count`, `dsl_dir_activate_fs_ss_limit`,
//! `dsl_fs_ss_count_adjust`, `dsl_fs_ss_limit_check`, `dsl_enforce_ds_ss_limits`).

use std::collections::BTreeMap;

use cenote_dataset::dir::ABOVE;
use cenote_dataset::{Dataset, Dir, Subject};
use cenote_engine::SyncContext;
use cenote_format::dsl::names::dir_field;
use cenote_format::props::ZPROP_RECVD_SUFFIX;
use cenote_format::units::ObjectId;
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::trail::Trail;
use cenote_object::{DatasetError, Result, ZapEdit};

/// Enabled with the first limit.
const FEATURE: &str = "filesystem_limits";

/// The kind of dataset a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limited {
    /// File systems and volumes below a directory.
    Filesystems,
    /// Snapshots of the directory's head and below.
    Snapshots,
}

impl Limited {
    pub(crate) fn field(self) -> &'static str {
        match self {
            Limited::Filesystems => dir_field::FILESYSTEM_COUNT,
            Limited::Snapshots => dir_field::SNAPSHOT_COUNT,
        }
    }

    /// The property of the limit; also the permission to set it.
    fn property(self) -> &'static str {
        match self {
            Limited::Filesystems => "filesystem_limit",
            Limited::Snapshots => "snapshot_limit",
        }
    }
}

/// Fails if adding datasets (a number per directory) exceeds a limit, there or above, that binds the task's
/// user. The walk stops at the ancestor `up_to`, whose count a move within it does not change.
pub(crate) async fn check_count(
    context: &SyncContext,
    what: Limited,
    added: &[(&Dir, u64)],
    up_to: Option<ObjectId>,
) -> Result<()> {
    let Some(who) = context.delegated() else { return Ok(()) };
    let mut more: BTreeMap<ObjectId, u64> = BTreeMap::new();
    for &(dir, added) in added.iter().filter(|(_, added)| *added > 0) {
        let upwards = std::iter::successors(Some(dir), |dir| dir.parent());
        for dir in upwards.take_while(|dir| Some(dir.id()) != up_to) {
            let Some(count) = counted(context, dir.id(), what.field()).await? else { break };
            let more = more.entry(dir.id()).or_default();
            *more = more.saturating_add(added);
            if count.saturating_add(*more) > limit_of(dir, what).await?
                && !dir.is_allowed(Subject::Head, what.property(), who).await?
            {
                return Err(DatasetError::OverLimit { name: dir.name().into(), limit: what.property() });
            }
        }
    }
    Ok(())
}

async fn limit_of(dir: &Dir, what: Limited) -> Result<u64> {
    let Some(settings) = dir.props().await? else { return Ok(u64::MAX) };
    let received = format!("{}{ZPROP_RECVD_SUFFIX}", what.property());
    match settings.get_u64(what.property()).await? {
        Some(limit) => Ok(limit),
        None => Ok(settings.get_u64(&received).await?.unwrap_or(u64::MAX)),
    }
}

/// The nearest directory above both, possibly one of them.
pub(crate) fn common_ancestor(one: &Dir, other: &Dir) -> Option<ObjectId> {
    fn upwards(dir: &Dir) -> impl Iterator<Item = ObjectId> {
        std::iter::successors(Some(dir), |dir| dir.parent()).map(Dir::id)
    }
    upwards(other).find(|id| upwards(one).any(|above| above == *id))
}

/// Adjusts the counts of `dir` and its ancestors, up to the first without counts.
pub(crate) async fn count(context: &mut SyncContext, dir: ObjectId, field: &str, delta: i64) -> Result<()> {
    let mut trail = Trail::new(&context.edit().view(), ABOVE);
    let mut at = dir;
    while at.0 != 0 {
        trail.enter(at)?;
        let Some(count) = counted(context, at, field).await? else { break };
        ZapEdit::new(&context.edit(), at).update(field, count.saturating_add_signed(delta)).await?;
        at = context.dir_phys(at).await?.parent;
    }
    Ok(())
}

/// A directory's count; `None` if counting has not begun.
pub(crate) async fn counted(context: &SyncContext, dir: ObjectId, field: &str) -> Result<Option<u64>> {
    let edit = context.edit();
    if !edit.view().dnode(dir).await?.object_type.is_zap() {
        return Ok(None);
    }
    Ok(ZapEdit::new(&edit, dir).get(field).await?.and_then(|count| count.as_u64()))
}

/// Starts counting below `top`, when a limit is set.
pub(crate) async fn begin_counting(context: &mut SyncContext, top: &Dataset) -> Result<()> {
    if FeatureCounts::of(&context.edit()).count(FEATURE).await? == Some(0) {
        context.use_feature(FEATURE, 1).await?;
    }
    count_tree(context, top).await
}

/// Counts a new or moved tree if any directory has counts.
pub(crate) async fn count_if_others_are(context: &mut SyncContext, top: &Dataset) -> Result<()> {
    match FeatureCounts::of(&context.edit()).count(FEATURE).await? {
        None | Some(0) => Ok(()),
        Some(_) => count_tree(context, top).await,
    }
}

async fn count_tree(context: &mut SyncContext, top: &Dataset) -> Result<()> {
    // Children before their parents.
    for dataset in top.descendants().await?.into_iter().rev() {
        let dir = dataset.dir().id();
        if counted(context, dir, dir_field::FILESYSTEM_COUNT).await?.is_some() {
            continue;
        }
        let (mut filesystems, mut snapshots) = (0, dataset.snapshot_names().await?.len() as u64);
        for child in dataset.children().await? {
            let below = child.dir().id();
            filesystems += 1 + counted(context, below, dir_field::FILESYSTEM_COUNT).await?.unwrap_or(0);
            snapshots += counted(context, below, dir_field::SNAPSHOT_COUNT).await?.unwrap_or(0);
        }
        context.zapify(dir).await?;
        let edit = context.edit();
        let fields = ZapEdit::new(&edit, dir);
        fields.add(dir_field::FILESYSTEM_COUNT, filesystems).await?;
        fields.add(dir_field::SNAPSHOT_COUNT, snapshots).await?;
    }
    Ok(())
}

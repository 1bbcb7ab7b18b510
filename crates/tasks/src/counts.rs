//! How many file systems and snapshots there are below a directory, for `filesystem_limit` and
//! `snapshot_limit`.
//!
//! Idea: nobody counts until somebody sets a limit. Then everything from there down is counted once; from
//! then on each that comes or goes is counted upwards, as far as there are counts. The limits themselves bind
//! users that were delegated to, not administrators, so nothing is refused here.
//!
//! Source: OpenZFS `dsl_dir.c` (`dsl_dir_init_fs_ss_count`, `dsl_dir_activate_fs_ss_limit`,
//! `dsl_fs_ss_count_adjust`).

use cenote_dataset::Dataset;
use cenote_dataset::dir::ABOVE;
use cenote_engine::SyncContext;
use cenote_format::dsl::names::dir_field;
use cenote_format::units::ObjectId;
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::trail::Trail;
use cenote_object::{Result, ZapEdit};

/// The feature that came with the counts.
const FEATURE: &str = "filesystem_limits";

/// Counts file systems or snapshots, upwards as far as they are counted.
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

/// What is counted below a directory; `None` if nobody counts there.
pub(crate) async fn counted(context: &SyncContext, dir: ObjectId, field: &str) -> Result<Option<u64>> {
    let edit = context.edit();
    if !edit.view().dnode(dir).await?.object_type.is_zap() {
        return Ok(None);
    }
    Ok(ZapEdit::new(&edit, dir).get(field).await?.and_then(|count| count.as_u64()))
}

/// A limit is set: from here down there are to be counts.
pub(crate) async fn begin_counting(context: &mut SyncContext, top: &Dataset) -> Result<()> {
    if FeatureCounts::of(&context.edit()).count(FEATURE).await? == Some(0) {
        context.use_feature(FEATURE, 1).await?;
    }
    count_tree(context, top).await
}

/// A new or a moved tree has counts if any has.
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

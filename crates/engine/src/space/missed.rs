//! Dirty time logs (DTLs): txgs that devices missed, stored for resilvers.
//!
//! Idea: the pool remembers which leaf, absent ones included, missed writes of which txg, and which was
//! resilvered. Each pass writes that to the leaves' DTLs, which are MOS objects: so a txg itself records that
//! a device missed it.
//!
//! Source: OpenZFS `vdev.c` (`vdev_dtl_dirty`, `vdev_dtl_sync`).

use cenote_format::space_map::MapType;
use cenote_format::units::{Guid, ObjectId, Txg};
use cenote_object::Result;

use crate::context::SyncContext;
use crate::space::map_edit::{SpaceMapChange, SpaceMapEdit};

/// `zfs_vdev_dtl_sm_blksz`.
const LOG_BLOCK_BYTES: u32 = 4 << 10;

pub(crate) fn has_missed(context: &SyncContext) -> bool {
    context.engine.carried.lock().missed != context.syncing.pool.lacking().all()
}

/// Updates DTLs.
pub(crate) async fn write_missed(context: &mut SyncContext) -> Result<()> {
    let missed = context.syncing.pool.lacking().all();
    let noted = std::mem::replace(&mut context.engine.carried.lock().missed, missed.clone());
    for (leaf, runs) in missed.iter().filter(|(leaf, runs)| noted.get(leaf) != Some(runs)) {
        write_log(context, *leaf, runs).await?;
    }
    for leaf in noted.keys().filter(|leaf| !missed.contains_key(leaf)) {
        write_log(context, *leaf, &[]).await?;
    }
    Ok(())
}

/// Rewrites a leaf's DTL, made on first use.
async fn write_log(context: &mut SyncContext, leaf: Guid, runs: &[(Txg, Txg)]) -> Result<()> {
    let edit = context.edit();
    let known = context.engine.config.lock().vdev_tree.leaf_mut(leaf).map(|config| config.dtl);
    // The leaf has left the configuration.
    let Some(known) = known else { return Ok(()) };
    let log = match known {
        ObjectId(0) if runs.is_empty() => return Ok(()),
        ObjectId(0) => {
            let log = SpaceMapEdit::create(&edit, LOG_BLOCK_BYTES, 0).await?;
            if let Some(config) = context.engine.config.lock().vdev_tree.leaf_mut(leaf) {
                config.dtl = log.object();
            }
            context.config_changed = true;
            log
        }
        known => SpaceMapEdit::new(&edit, known, 0),
    };
    log.truncate().await?;
    let changes: Vec<SpaceMapChange> = runs.iter().map(missed).collect();
    log.append(&changes, context.syncing.pass as u16).await
}

fn missed(&(first, last): &(Txg, Txg)) -> SpaceMapChange {
    SpaceMapChange {
        map_type: MapType::Alloc,
        vdev: None,
        offset_bytes: first.0,
        run_bytes: last.0 - first.0 + 1,
    }
}

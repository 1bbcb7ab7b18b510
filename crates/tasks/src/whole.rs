//! A task reads the tables of a dataset before it changes anything: an error is its caller's, and not the
//! txg's, which could not be written with half of a task in it.
//!
//! Source: our own; OpenZFS panics where a sync task meets such an error (`VERIFY0`).

use cenote_dataset::Dataset;
use cenote_format::units::ObjectId;
use cenote_object::Result;

/// Blocks of a table that are read together.
const BATCH: u64 = 64;

/// A dataset, once all blocks of the tables that belong to it and its directory have been read. Those of one
/// block were read when the dataset was opened, or are read by the task's own checks.
///
/// # Errors
/// The first block that can't be read.
pub(crate) async fn readable(dataset: Dataset) -> Result<Dataset> {
    let (dir, phys) = (dataset.dir(), dataset.phys());
    let tables = [
        dir.id(),
        dir.phys().props_zap,
        dir.phys().child_dirs_zap,
        ObjectId(dataset.id().0),
        phys.snapshot_names_zap,
        phys.deadlist,
    ];
    let mos = dataset.mos().objset();
    for table in tables.into_iter().filter(|table| table.0 != 0) {
        let object = mos.object(table).await?;
        let blocks = object.dnode().max_block_id.0 + 1;
        if blocks == 1 {
            continue;
        }
        for first in (0..blocks).step_by(BATCH as usize) {
            for block in object.read_blocks(first..blocks.min(first + BATCH)).await {
                block.data?;
            }
        }
    }
    Ok(dataset)
}

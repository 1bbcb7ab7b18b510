//! Reads a dataset's tables before a task changes anything. An I/O error then fails the task; later it would
//! fail the txg, which cannot be written with half a task in it.
//!
//! Source: our own; OpenZFS panics where a sync task meets such an error (`VERIFY0`).

use cenote_dataset::Dataset;
use cenote_format::units::ObjectId;
use cenote_object::Result;

/// Blocks of a table read together.
const BATCH: u64 = 64;

/// Returns a dataset after reading all blocks of its and its directory's tables. Single-block tables need no
/// extra read: opening the dataset or the task's own checks read them.
///
/// # Errors
/// The first unreadable block.
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

//! The bound on deduplication tables, pool property `dedup_table_quota`.
//!
//! Idea: at the bound, blocks that a table knows still get more owners, and new ones are stored outside. The
//! tables that the last txg left decide for a whole txg, so it is passed by a txg's entries at most.
//!
//! Source: OpenZFS `ddt.c` (`ddt_over_quota`, `ddt_special_over_quota`).

use cenote_dataset::Mos;
use cenote_object::Result;
use cenote_pool::alloc::{AllocClass, Allocator};

use crate::open::pool_number;

/// `ZPOOL_PROP_DEDUP_TABLE_QUOTA` by default: the class of the tables is the bound.
const AUTO: u64 = u64::MAX;
/// Room that a large class keeps free.
const MOST_KEPT_BYTES: u64 = 8 << 30;

/// Whether the tables have reached their bound.
pub(crate) async fn is_reached(mos: &Mos, allocator: &Allocator) -> Result<bool> {
    match pool_number(mos, "dedup_table_quota").await?.unwrap_or(AUTO) {
        0 => Ok(false),
        AUTO => Ok(own_class(allocator).is_some_and(|class| is_full(allocator, class))),
        bytes => Ok(mos.dedup_table_bytes().await? > bytes),
    }
}

/// The class of the tables, if its vdevs are not the pool's usual ones.
fn own_class(allocator: &Allocator) -> Option<AllocClass> {
    [AllocClass::Dedup, AllocClass::Special].into_iter().find(|class| allocator.has_class(*class))
}

fn is_full(allocator: &Allocator, class: AllocClass) -> bool {
    let space = allocator.class_space(class);
    let kept = (space.size_bytes / 100 * 15).min(MOST_KEPT_BYTES);
    space.allocated_bytes >= space.size_bytes - kept
}

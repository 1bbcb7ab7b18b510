//! Indirect mappings of removed vdevs.

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_cache::BlockCache;
use cenote_format::dsl::names::pool as names;
use cenote_format::indirect::{IndirectMapping, IndirectMappingEntry, IndirectMappingPhys};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{DatasetId, ObjectId, VdevId};
use cenote_format::words::{Phys, Words};
use cenote_object::{DatasetError, Objset, Result, Zap};
use cenote_pool::{Pool, PoolError, Trusted};

/// Entries per read: 4 MiB.
const WINDOW_ENTRIES: u64 = (4 << 20) / 24;

/// Last removed first.
pub(super) async fn load(
    pool: &Pool,
    cache: &Arc<BlockCache>,
    uberblock: &Uberblock,
    directory: &Zap,
    mut trusted: Trusted,
) -> Result<Trusted> {
    let mut next = last_removed(directory, &trusted).await?;
    while let Some(vdev) = next {
        let Some(config) = trusted.config.vdevs.iter().find(|v| v.id == vdev.0) else { break };
        let (object, previous) = (config.indirect_object, config.prev_indirect_vdev);
        // A repeated vdev means a cycle; a vdev without mapping was removed empty.
        if trusted.indirect.contains_key(&vdev) {
            return Err(DatasetError::Damaged {
                dataset: DatasetId(0),
                object,
                why: format!("the chain of removed vdevs leads back to vdev {vdev}").into(),
            });
        }
        let entries = if object.0 == 0 {
            Vec::new()
        } else {
            let pool = pool.with_trusted(trusted.clone()).await?;
            let mos = Objset::open(&pool, cache, DatasetId(0), uberblock.rootbp, None).await?;
            read_mapping(&mos, object).await?
        };
        let what = || format!("pool '{}': mapping of removed vdev {vdev}", pool.name()).into();
        let mapping =
            IndirectMapping::new(entries).map_err(|source| PoolError::Format { what: what(), source })?;
        trusted.indirect.insert(vdev, Arc::new(mapping));
        next = previous;
    }
    Ok(trusted)
}

/// Head of the chain: from `com.delphix:removing`, or the vdev that no other names.
async fn last_removed(directory: &Zap, trusted: &Trusted) -> Result<Option<VdevId>> {
    /// Word of `sr_prev_indirect_vdev` in `spa_removing_phys_t`.
    const PREV_INDIRECT_VDEV: usize = 2;
    let removing = directory.lookup(names::REMOVING.as_bytes()).await?;
    let from_words = removing.and_then(|v| v.words().nth(PREV_INDIRECT_VDEV)).filter(|&v| v != u64::MAX);
    if let Some(vdev) = from_words {
        return Ok(Some(VdevId(vdev)));
    }
    let removed = || trusted.config.vdevs.iter().filter(|v| v.indirect_object.0 != 0);
    let named: Vec<VdevId> = removed().filter_map(|v| v.prev_indirect_vdev).collect();
    Ok(removed().map(|v| VdevId(v.id)).find(|id| !named.contains(id)))
}

/// Reads a mapping's entries in stored order.
#[boxed]
pub async fn read_mapping(mos: &Objset, id: ObjectId) -> Result<Vec<IndirectMappingEntry>> {
    let object = mos.object(id).await?;
    let endian = object.dnode().endian();
    let phys = IndirectMappingPhys::decode(object.dnode().bonus(), endian).map_err(|e| mos.format(id, e))?;
    let words_per_entry = IndirectMappingEntry::COUNT as u64;
    let words = phys.num_entries.saturating_mul(words_per_entry);
    if words > object.capacity_bytes() / 8 {
        return Err(
            mos.damaged(id, format!("claims {} mappings, more than it has room for", phys.num_entries))
        );
    }
    let mut mappings = Vec::new();
    for at in (0..words).step_by((WINDOW_ENTRIES * words_per_entry) as usize) {
        let count = (WINDOW_ENTRIES * words_per_entry).min(words - at);
        let mut source = object.read_table(at, count).await?.into_iter();
        mappings.extend((0..count / words_per_entry).map(|_| IndirectMappingEntry::take(&mut source)));
    }
    Ok(mappings)
}

//! `arcstats` and `zfetchstats`.
//!
//! Idea: the names are a table; values come from the caches of all pools. The policy's own counters have the
//! names of `arcstats` if one of OpenZFS's.
//!
//! Source: OpenZFS `arc.c` (`arc_stats`), `dmu_zfetch.c` (`zfetch_stats`).

use std::collections::BTreeMap;

use cenote_cache::{CacheStats, PrefetchStats};
use cenote_engine::L2Stats;

use crate::pools::Pools;
use crate::tuning::{ARC_MAX, ARC_MIN, ARC_SYS_FREE};

#[rustfmt::skip]
const NAMES: [&str; 148] = [
    "hits", "iohits", "misses", "demand_data_hits", "demand_data_iohits", "demand_data_misses",
    "demand_metadata_hits", "demand_metadata_iohits", "demand_metadata_misses", "prefetch_data_hits",
    "prefetch_data_iohits", "prefetch_data_misses", "prefetch_metadata_hits", "prefetch_metadata_iohits",
    "prefetch_metadata_misses", "mru_hits", "mru_ghost_hits", "mfu_hits", "mfu_ghost_hits",
    "uncached_hits", "deleted", "mutex_miss", "access_skip", "evict_skip", "evict_not_enough",
    "evict_l2_cached", "evict_l2_eligible", "evict_l2_eligible_mfu", "evict_l2_eligible_mru",
    "evict_l2_ineligible", "evict_l2_skip", "hash_elements", "hash_elements_max", "hash_collisions",
    "hash_chains", "hash_chain_max", "meta", "pd", "pm", "c", "c_min", "c_max", "size", "compressed_size",
    "uncompressed_size", "overhead_size", "hdr_size", "data_size", "metadata_size", "dbuf_size",
    "dnode_size", "bonus_size", "anon_size", "anon_data", "anon_metadata",
    "anon_evictable_data", "anon_evictable_metadata", "mru_size", "mru_data", "mru_metadata",
    "mru_evictable_data", "mru_evictable_metadata", "mru_ghost_size", "mru_ghost_data",
    "mru_ghost_metadata", "mru_ghost_evictable_data", "mru_ghost_evictable_metadata", "mfu_size",
    "mfu_data", "mfu_metadata", "mfu_evictable_data", "mfu_evictable_metadata", "mfu_ghost_size",
    "mfu_ghost_data", "mfu_ghost_metadata", "mfu_ghost_evictable_data", "mfu_ghost_evictable_metadata",
    "uncached_size", "uncached_data", "uncached_metadata", "uncached_evictable_data",
    "uncached_evictable_metadata", "l2_ndev", "l2_hits", "l2_misses", "l2_prefetch_asize", "l2_mru_asize",
    "l2_mfu_asize", "l2_bufc_data_asize", "l2_bufc_metadata_asize", "l2_feeds", "l2_rw_clash",
    "l2_read_bytes", "l2_write_bytes", "l2_writes_sent", "l2_writes_done", "l2_writes_error",
    "l2_writes_lock_retry", "l2_evict_lock_retry", "l2_evict_reading", "l2_evict_l1cached",
    "l2_free_on_write", "l2_abort_lowmem", "l2_cksum_bad", "l2_io_error", "l2_size", "l2_asize",
    "l2_hdr_size", "l2_log_blk_writes", "l2_log_blk_avg_asize", "l2_log_blk_asize", "l2_log_blk_count",
    "l2_data_to_meta_ratio", "l2_rebuild_success", "l2_rebuild_unsupported", "l2_rebuild_io_errors",
    "l2_rebuild_dh_errors", "l2_rebuild_cksum_lb_errors", "l2_rebuild_lowmem", "l2_rebuild_size",
    "l2_rebuild_asize", "l2_rebuild_bufs", "l2_rebuild_bufs_precached", "l2_rebuild_log_blks",
    "memory_throttle_count", "memory_direct_count", "memory_indirect_count", "memory_all_bytes",
    "memory_free_bytes", "memory_available_bytes", "arc_no_grow", "arc_tempreserve", "arc_loaned_bytes",
    "arc_prune", "arc_meta_used", "arc_dnode_limit", "async_upgrade_sync", "predictive_prefetch",
    "demand_hit_predictive_prefetch", "demand_iohit_predictive_prefetch", "prescient_prefetch",
    "demand_hit_prescient_prefetch", "demand_iohit_prescient_prefetch", "arc_need_free", "arc_sys_free",
    "arc_raw_size", "cached_only_in_progress", "abd_chunk_waste_size",
];

pub(super) fn of(pools: &Pools) -> Vec<(&'static str, u64)> {
    let (mut stats, mut second) = (CacheStats::default(), L2Stats::default());
    let mut adapted: BTreeMap<String, u64> = BTreeMap::new();
    for pool in pools.all() {
        let own = pool.engine.cache().stats();
        stats.add(&own);
        second = second.zip(&pool.engine.l2arc().devices().stats(), |sum, own| sum + own);
        for (name, value) in own.gauges {
            *adapted.entry(name).or_default() += value;
        }
    }
    let mut known: BTreeMap<&str, u64> = second.all().into_iter().collect();
    let PrefetchStats { io_issued, found, used, iohits, .. } = stats.prefetch;
    let (data, metadata) = (stats.data, stats.metadata);
    let content_bytes = data.content_bytes + metadata.content_bytes;
    let tuned = |name: &str| {
        let found = pools.tuning.list().into_iter().find(|tunable| tunable.name == name);
        found.and_then(|tunable| tunable.value.parse().ok()).unwrap_or(0)
    };
    known.extend([
        ("hits", stats.hits()),
        ("iohits", iohits),
        // Waiting for a prefetch is no miss.
        ("misses", stats.misses().saturating_sub(iohits)),
        ("demand_data_hits", data.hits),
        ("demand_data_iohits", iohits),
        ("demand_data_misses", data.misses.saturating_sub(iohits)),
        ("demand_metadata_hits", metadata.hits),
        ("demand_metadata_misses", metadata.misses),
        ("prefetch_data_hits", found),
        ("prefetch_data_misses", io_issued),
        ("deleted", stats.evictions),
        ("evict_l2_eligible", stats.evicted_l2_eligible_bytes),
        ("evict_l2_ineligible", stats.evicted_l2_ineligible_bytes),
        ("hash_elements", stats.blocks),
        ("c", stats.budget_bytes),
        ("c_min", tuned(ARC_MIN).min(tuned(ARC_MAX))),
        ("c_max", tuned(ARC_MAX)),
        ("arc_sys_free", tuned(ARC_SYS_FREE)),
        ("size", stats.bytes),
        ("uncompressed_size", content_bytes),
        ("overhead_size", stats.bytes.saturating_sub(content_bytes)),
        ("hdr_size", stats.bytes.saturating_sub(content_bytes)),
        ("data_size", data.content_bytes),
        ("metadata_size", metadata.content_bytes),
        ("arc_meta_used", metadata.content_bytes),
        ("predictive_prefetch", io_issued),
        ("demand_hit_predictive_prefetch", used),
        ("demand_iohit_predictive_prefetch", iohits),
        ("l2_ndev", second.devices),
        ("l2_feeds", second.writes_sent),
        ("l2_size", second.asize),
    ]);
    let count = |name| known.get(name).or_else(|| adapted.get(name)).copied().unwrap_or(0);
    NAMES.into_iter().map(|name| (name, count(name))).collect()
}

pub(super) fn zfetch(pools: &Pools) -> Vec<(&'static str, u64)> {
    let all = pools.all();
    let stats = all.iter().map(|pool| pool.engine.cache().stats().prefetch);
    let sum = stats.fold(PrefetchStats::default(), |sum, stats| sum.zip(&stats, |a, b| a + b));
    vec![
        ("hits", sum.hits),
        ("future", sum.future),
        ("stride", sum.stride),
        ("past", sum.past),
        ("misses", sum.misses),
        ("max_streams", sum.max_streams),
        ("io_issued", sum.io_issued),
        ("io_active", sum.active_bytes),
    ]
}

//! Long-running work recorded in a pool: scans, rebuilds, a removal, a checkpoint, an expansion.
//!
//! The disk records only how far work in progress has come. While the daemon does the work, its speed is
//! known, too.
//!
//! Source: OpenZFS `spa_misc.c` (`spa_scan_get_stats`), `vdev_removal.c` (`spa_removal_get_stats`),
//! `vdev_raidz.c` (`spa_raidz_expand_get_stats`).

use cenote_dataset::Mos;
use cenote_dataset::usage::{PoolUsage, VdevUsage};
use cenote_format::Phys;
use cenote_format::dsl::names::{pool as names, vdev_zap};
use cenote_format::indirect::{IndirectMappingPhys, VDEV_INDIRECT_MAPPING_SIZE_V0};
use cenote_format::scan::{ErrorScrubPhys, RebuildPhys, RemovingPhys, ScanPhys, ScanState, VdevWorkState};
use cenote_format::units::{ObjectId, VdevId};
use cenote_host::pools::OpenPool;
use cenote_pool::VdevKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::Session;

/// All finished and unfinished work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolProgress {
    /// Time in seconds since 1970, if the daemon does the work.
    pub now_s: Option<u64>,
    /// The last scrub or resilver.
    pub scan: Option<ScanPhys>,
    /// Daemon's scan speed.
    pub pace: Option<Pace>,
    /// The last scrub of the blocks in the error log.
    pub error_scrub: Option<ErrorScrubPhys>,
    /// The last sequential rebuild per top-level vdev.
    pub rebuilds: Vec<Rebuild>,
    /// The newest removal of a vdev.
    pub removal: Option<Removal>,
    /// Checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The current or last expansion.
    pub expansion: Option<Expansion>,
}

/// The daemon's scan speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pace {
    /// Bytes since its start or resumption.
    pub done_bytes: u64,
    /// Seconds since then.
    pub seconds: u64,
    /// Start or resumption, in seconds since 1970.
    pub since_s: u64,
}

/// A sequential rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rebuild {
    /// Top-level vdev.
    pub vdev: VdevId,
    /// Record.
    pub recorded: RebuildPhys,
}

/// The removal of a vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Removal {
    /// Pool's record.
    pub recorded: RemovingPhys,
    /// Memory for mappings of all removed vdevs.
    pub mapping_bytes: u64,
}

/// The checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// Creation, in seconds since 1970.
    pub timestamp_s: u64,
    /// Space kept only by it.
    pub space_bytes: u64,
}

/// The expansion of a RAID-Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Expansion {
    /// Vdev.
    pub vdev: VdevId,
    /// In progress or ended.
    pub state: ScanState,
    /// Start, in seconds since 1970.
    pub start_s: u64,
    /// End; 0: not ended.
    pub end_s: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Bytes allocated on the vdev.
    pub allocated_bytes: u64,
    /// A device is missing or lacks data.
    pub waits: bool,
}

impl PoolProgress {
    /// Collects a pool's work. `held`: open in the daemon.
    pub(super) async fn gather(
        session: &Session,
        mos: &Mos,
        held: Option<&OpenPool>,
        usage: &[VdevUsage],
    ) -> Result<PoolProgress, ControlError> {
        let now_s = session.runtime().unix_time_ns() / 1_000_000_000;
        let pace = held.and_then(|pool| pool.engine.background().scan_pass()).map(|pass| {
            let seconds = session.runtime().now().since(pass.since).as_secs();
            Pace { done_bytes: pass.done_bytes, seconds, since_s: now_s - seconds }
        });
        let checkpoint = mos.checkpoint().await?.map(|checkpoint| Checkpoint {
            timestamp_s: checkpoint.timestamp_s,
            space_bytes: PoolUsage::sum(usage).checkpoint_bytes,
        });
        Ok(PoolProgress {
            now_s: held.map(|_| now_s),
            scan: mos.scan_status().await?,
            pace,
            error_scrub: mos.error_scrub_status().await?,
            rebuilds: rebuilds(mos).await?,
            removal: removal(mos).await?,
            checkpoint,
            expansion: expansion(mos, usage).await?,
        })
    }
}

async fn rebuilds(mos: &Mos) -> Result<Vec<Rebuild>, ControlError> {
    let mut found = Vec::new();
    for top in &mos.pool_config().vdevs {
        let Some(zap) = mos.vdev_zap(top).await? else { continue };
        let Some(value) = zap.lookup(vdev_zap::VDEV_REBUILD_PHYS.as_bytes()).await? else { continue };
        let words: Vec<u64> = value.words().collect();
        if let Ok(recorded) = RebuildPhys::from_words(&words)
            && VdevWorkState::of_rebuild(recorded.state) != VdevWorkState::None
        {
            found.push(Rebuild { vdev: VdevId(top.id), recorded });
        }
    }
    Ok(found)
}

async fn removal(mos: &Mos) -> Result<Option<Removal>, ControlError> {
    let Some(value) = mos.directory()?.lookup(names::REMOVING.as_bytes()).await? else { return Ok(None) };
    let words: Vec<u64> = value.words().collect();
    let recorded = RemovingPhys::from_words(&words).ok().filter(|removing| removing.state != 0);
    let Some(recorded) = recorded else { return Ok(None) };
    Ok(Some(Removal { recorded, mapping_bytes: mapping_bytes(mos).await? }))
}

async fn mapping_bytes(mos: &Mos) -> Result<u64, ControlError> {
    let mut entries = 0u64;
    for vdev in &mos.pool_config().vdevs {
        if vdev.kind == VdevKind::Indirect && vdev.indirect_object != ObjectId(0) {
            let dnode = mos.objset().dnode(vdev.indirect_object).await?;
            let phys = IndirectMappingPhys::decode(dnode.bonus(), dnode.endian());
            entries = entries.saturating_add(phys.map_or(0, |phys| phys.num_entries));
        }
    }
    Ok(entries.saturating_mul(VDEV_INDIRECT_MAPPING_SIZE_V0 as u64))
}

async fn expansion(mos: &Mos, usage: &[VdevUsage]) -> Result<Option<Expansion>, ControlError> {
    let mut found: Option<Expansion> = None;
    for top in mos.pool_config().vdevs.iter().filter(|top| top.kind == VdevKind::Raidz) {
        let Some(zap) = mos.vdev_zap(top).await? else { continue };
        let Some(state) = zap.get_u64(vdev_zap::RAIDZ_EXPAND_STATE).await? else { continue };
        let vdev = VdevId(top.id);
        let used = usage.iter().find(|usage| usage.vdev == vdev);
        let expansion = Expansion {
            vdev,
            state: ScanState::from(state),
            start_s: zap.get_u64(vdev_zap::RAIDZ_EXPAND_START_TIME).await?.unwrap_or(0),
            end_s: zap.get_u64(vdev_zap::RAIDZ_EXPAND_END_TIME).await?.unwrap_or(0),
            copied_bytes: zap.get_u64(vdev_zap::RAIDZ_EXPAND_BYTES_COPIED).await?.unwrap_or(0),
            allocated_bytes: used.map_or(0, |usage| usage.allocated_bytes),
            waits: top.raidz_expanding && mos.pool().expansion().waits_for(vdev).is_some(),
        };
        let rank = |one: &Expansion| (one.state == ScanState::Scanning, one.end_s);
        if found.as_ref().is_none_or(|before| rank(before) < rank(&expansion)) {
            found = Some(expansion);
        }
    }
    Ok(found)
}

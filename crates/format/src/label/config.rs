//! What a label, or the configuration object in the MOS, says about its pool.
//!
//! Idea: labels and the MOS use the same format from different points of view: a label's `vdev_tree` is the
//! top-level vdev of its disk, the MOS's is the root vdev. The label of an unused spare or a cache device
//! belongs to no single pool and has a type of its own.
//!
//! Source: OpenZFS `spa_config.c` (`spa_config_generate`), `vdev_label.c` (`vdev_aux_label_generate`).

use std::fmt;

use super::fields::{Fields, required};
use super::vdev_config::{MAX_TOP_LEVEL_VDEVS, VdevConfig};
use super::vdev_kind::VdevClass;
use crate::error::Result;
use crate::nvlist::Nvlist;
use crate::units::{Guid, Txg, VdevId};

/// The largest ashift, `ASHIFT_MAX`.
const ASHIFT_MAX: u64 = 16;

/// `pool_state_t`, as far as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum PoolState {
    /// `POOL_STATE_ACTIVE`: imported, or its machine died.
    Active,
    /// `POOL_STATE_EXPORTED`.
    Exported,
    /// `POOL_STATE_DESTROYED`.
    Destroyed,
    /// `POOL_STATE_SPARE`: an unused hot spare.
    Spare,
    /// `POOL_STATE_L2CACHE`: a cache device.
    L2cache,
    /// Any other number.
    Other(u64),
}

impl From<u64> for PoolState {
    fn from(value: u64) -> Self {
        match value {
            0 => PoolState::Active,
            1 => PoolState::Exported,
            2 => PoolState::Destroyed,
            3 => PoolState::Spare,
            4 => PoolState::L2cache,
            other => PoolState::Other(other),
        }
    }
}

impl From<PoolState> for u64 {
    fn from(state: PoolState) -> u64 {
        match state {
            PoolState::Active => 0,
            PoolState::Exported => 1,
            PoolState::Destroyed => 2,
            PoolState::Spare => 3,
            PoolState::L2cache => 4,
            PoolState::Other(other) => other,
        }
    }
}

impl fmt::Display for PoolState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolState::Active => f.write_str("ACTIVE"),
            PoolState::Exported => f.write_str("EXPORTED"),
            PoolState::Destroyed => f.write_str("DESTROYED"),
            PoolState::Spare => f.write_str("SPARE"),
            PoolState::L2cache => f.write_str("L2CACHE"),
            PoolState::Other(n) => write!(f, "UNKNOWN({n})"),
        }
    }
}

/// What the label of one disk says.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // a handful exist at a time
pub enum LabelConfig {
    /// The disk is part of a pool.
    Member(PoolConfig),
    /// The disk is an unused hot spare.
    Spare(AuxConfig),
    /// The disk is a cache device.
    L2cache(AuxConfig),
}

impl LabelConfig {
    /// Reads a label's list.
    ///
    /// # Errors
    /// A pair of the wrong type or range, or a required pair that is missing.
    pub fn decode(list: &Nvlist) -> Result<LabelConfig> {
        match required("state", Fields::new(list).u64("state")?)?.into() {
            PoolState::Spare => Ok(LabelConfig::Spare(AuxConfig::decode(list)?)),
            PoolState::L2cache => Ok(LabelConfig::L2cache(AuxConfig::decode(list)?)),
            _ => Ok(LabelConfig::Member(PoolConfig::decode(list)?)),
        }
    }
}

/// A pool's configuration, from a label or from the MOS. Fields are `ZPOOL_CONFIG_*`.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// Pool version; 5000 with feature flags.
    pub version: u64,
    /// The pool's name.
    pub name: String,
    /// In use, exported, destroyed.
    pub state: PoolState,
    /// When this was written; 0 in the label of a disk that did not finish joining.
    pub txg: Txg,
    /// The pool's guid.
    pub pool_guid: Guid,
    /// Number of a bug in old software that affected the pool, `zpool_errata_t`.
    pub errata: Option<u64>,
    /// The machine that last imported it; `None` if that machine had no hostid.
    pub hostid: Option<u64>,
    /// That machine's name.
    pub hostname: Option<String>,
    /// The administrator's note.
    pub comment: Option<String>,
    /// Names of the feature sets that the pool is restricted to.
    pub compatibility: Option<String>,
    /// Label: guid of the top-level vdev of this disk.
    pub top_guid: Option<Guid>,
    /// Label: guid of this disk.
    pub guid: Option<Guid>,
    /// Label: this disk is a spare in use.
    pub is_spare: bool,
    /// Label: this disk is for the intent log.
    pub is_log: bool,
    /// Label: when this disk was to join, if no txg has been written to it yet.
    pub create_txg: Option<Txg>,
    /// Top-level vdevs of the pool, holes included.
    pub vdev_children: Option<u64>,
    /// Top-level vdevs that are holes.
    pub hole_array: Vec<VdevId>,
    /// Label: the top-level vdev of this disk. MOS: the root vdev.
    pub vdev_tree: VdevConfig,
    /// Guids of features that a reader must know, sorted as stored.
    pub features_for_read: Vec<String>,
    /// MOS: vdevs have ZAPs.
    pub has_per_vdev_zaps: bool,
    /// Split off: guid of the pool it came from.
    pub split_guid: Option<Guid>,
    /// MOS of a pool just split off.
    pub split: Option<Nvlist>,
    /// All other pairs.
    pub other: Nvlist,
}

impl PoolConfig {
    /// Reads the list of a label or of the MOS.
    ///
    /// # Errors
    /// A pair of the wrong type or range; a missing version, name, state, txg, guid or vdev tree.
    pub fn decode(list: &Nvlist) -> Result<PoolConfig> {
        let mut f = Fields::new(list);
        let features = f.nvlist("features_for_read")?.unwrap_or_default();
        Ok(PoolConfig {
            version: required("version", f.u64("version")?)?,
            name: required("name", f.string("name")?)?,
            state: required("state", f.u64("state")?)?.into(),
            txg: Txg(required("txg", f.u64("txg")?)?),
            pool_guid: required("pool_guid", f.guid("pool_guid")?)?,
            errata: f.u64("errata")?,
            hostid: f.u64("hostid")?.filter(|&id| id != 0),
            hostname: f.string("hostname")?,
            comment: f.string("comment")?,
            compatibility: f.string("compatibility")?,
            top_guid: f.guid("top_guid")?,
            guid: f.guid("guid")?,
            is_spare: f.flag("is_spare")?,
            is_log: f.flag("is_log")?,
            create_txg: f.u64("create_txg")?.map(Txg),
            vdev_children: f.small("vdev_children", MAX_TOP_LEVEL_VDEVS)?,
            hole_array: f.u64s("hole_array")?.into_iter().map(VdevId).collect(),
            vdev_tree: VdevConfig::decode(&required("vdev_tree", f.nvlist("vdev_tree")?)?)?,
            features_for_read: features.iter().map(|(name, _)| name.to_owned()).collect(),
            has_per_vdev_zaps: f.flag("com.delphix:has_per_vdev_zaps")?,
            split_guid: f.guid("split_guid")?,
            split: f.nvlist("splitcfg")?,
            other: f.into_rest(),
        })
    }
}

impl PoolConfig {
    /// The label of a leaf, made from the configuration in the MOS (whose tree is the root vdev's).
    #[must_use]
    pub fn for_leaf(&self, top: &VdevConfig, leaf: &VdevConfig) -> PoolConfig {
        PoolConfig {
            top_guid: Some(top.guid),
            guid: Some(leaf.guid),
            is_spare: leaf.is_spare,
            is_log: top.class == VdevClass::Log,
            vdev_tree: top.for_label(),
            has_per_vdev_zaps: false,
            split: None,
            other: Nvlist::new(),
            ..self.clone()
        }
    }
}

/// The label of a device outside the pool's tree: an unused spare or a cache device.
#[derive(Debug, Clone, PartialEq)]
pub struct AuxConfig {
    /// Version of the pool that labelled it.
    pub version: u64,
    /// The device's guid.
    pub guid: Guid,
    /// Cache: log2 of its smallest block.
    pub ashift: Option<u32>,
    /// Path at which it was last seen.
    pub path: Option<String>,
    /// The hardware's own name for it.
    pub devid: Option<String>,
    /// Where it is plugged in.
    pub phys_path: Option<String>,
    /// All other pairs.
    pub other: Nvlist,
}

impl AuxConfig {
    fn decode(list: &Nvlist) -> Result<AuxConfig> {
        let mut f = Fields::new(list);
        Ok(AuxConfig {
            version: required("version", f.u64("version")?)?,
            guid: required("guid", f.guid("guid")?)?,
            ashift: f.small("ashift", ASHIFT_MAX)?,
            path: f.string("path")?,
            devid: f.string("devid")?,
            phys_path: f.string("phys_path")?,
            other: f.into_rest(),
        })
    }
}

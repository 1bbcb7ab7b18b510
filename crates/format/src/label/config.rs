//! A pool's configuration, from a label or the MOS's configuration object.
//!
//! Idea: labels and the MOS share a format. A label's `vdev_tree` is the disk's top-level vdev, the MOS's is
//! the root vdev. An unused spare or a cache device belongs to no single pool, so its label has its own type.
//!
//! Source: OpenZFS `spa_config.c` (`spa_config_generate`), `vdev_label.c` (`vdev_aux_label_generate`).

use std::fmt;

use super::fields::{Fields, required};
use super::vdev_config::{MAX_TOP_LEVEL_VDEVS, VdevConfig};
use super::vdev_kind::VdevClass;
use crate::error::Result;
use crate::nvlist::Nvlist;
use crate::units::{Guid, Txg, VdevId};

/// `ASHIFT_MAX`.
const ASHIFT_MAX: u64 = 16;

/// Stored values of `pool_state_t`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub enum PoolState {
    /// `POOL_STATE_ACTIVE`: imported, or the host crashed.
    Active,
    /// `POOL_STATE_EXPORTED`.
    Exported,
    /// `POOL_STATE_DESTROYED`.
    Destroyed,
    /// `POOL_STATE_SPARE`: unused hot spare.
    Spare,
    /// `POOL_STATE_L2CACHE`: cache device.
    L2cache,
    /// Unknown.
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

/// Content of a disk's label.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // a handful exist at a time
pub enum LabelConfig {
    /// Pool member.
    Member(PoolConfig),
    /// Unused hot spare.
    Spare(AuxConfig),
    /// Cache device.
    L2cache(AuxConfig),
}

impl LabelConfig {
    /// Decodes a label.
    ///
    /// # Errors
    /// A pair of the wrong type or range, or a missing required pair.
    pub fn decode(list: &Nvlist) -> Result<LabelConfig> {
        match required("state", Fields::new(list).u64("state")?)?.into() {
            PoolState::Spare => Ok(LabelConfig::Spare(AuxConfig::decode(list)?)),
            PoolState::L2cache => Ok(LabelConfig::L2cache(AuxConfig::decode(list)?)),
            _ => Ok(LabelConfig::Member(PoolConfig::decode(list)?)),
        }
    }
}

/// A pool's configuration. Fields are `ZPOOL_CONFIG_*`.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// Pool version; 5000 with feature flags.
    pub version: u64,
    /// Pool name.
    pub name: String,
    /// Active, exported or destroyed.
    pub state: PoolState,
    /// Txg of the write; 0 if the disk did not finish joining.
    pub txg: Txg,
    /// Pool guid.
    pub pool_guid: Guid,
    /// `zpool_errata_t`.
    pub errata: Option<u64>,
    /// Hostid of the last importing host, if it had one.
    pub hostid: Option<u64>,
    /// Name of that host.
    pub hostname: Option<String>,
    /// Administrator's note.
    pub comment: Option<String>,
    /// Feature sets that restrict the pool.
    pub compatibility: Option<String>,
    /// Label: guid of the disk's top-level vdev.
    pub top_guid: Option<Guid>,
    /// Label: guid of the disk.
    pub guid: Option<Guid>,
    /// Label: active spare.
    pub is_spare: bool,
    /// Label: log device.
    pub is_log: bool,
    /// Label: txg in which the disk will join, until one is written to it.
    pub create_txg: Option<Txg>,
    /// Top-level vdevs, holes included.
    pub vdev_children: Option<u64>,
    /// Top-level holes.
    pub hole_array: Vec<VdevId>,
    /// Label: top-level vdev of the disk. MOS: root vdev.
    pub vdev_tree: VdevConfig,
    /// Guids of features needed to read, in stored order.
    pub features_for_read: Vec<String>,
    /// MOS: vdevs have ZAPs.
    pub has_per_vdev_zaps: bool,
    /// Split off: guid of the original pool.
    pub split_guid: Option<Guid>,
    /// MOS of a freshly split pool.
    pub split: Option<Nvlist>,
    /// All other pairs.
    pub other: Nvlist,
}

impl PoolConfig {
    /// Decodes a label or the MOS's configuration.
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
    /// Builds a leaf's label from the MOS's configuration.
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

/// Label of an unused spare or a cache device.
#[derive(Debug, Clone, PartialEq)]
pub struct AuxConfig {
    /// Version of the labelling pool.
    pub version: u64,
    /// Device guid.
    pub guid: Guid,
    /// Cache: log2 of the smallest block.
    pub ashift: Option<u32>,
    /// Last known path.
    pub path: Option<String>,
    /// Hardware identity.
    pub devid: Option<String>,
    /// Physical location.
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

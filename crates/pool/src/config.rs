//! The pool's configuration, from labels or the MOS.
//!
//! Idea: the same nvlist has two sources. A label describes the pool and *one* top-level vdev, as of the txg
//! in which that vdev last changed. The MOS describes all of them as of the uberblock's txg, and is trusted.
//! [`cenote_format::label`] decodes either. A [`PoolConfig`] merges the labels of all devices, or holds the
//! MOS's configuration.
//!
//! Source: OpenZFS `spa_config_generate`, `vdev_label.c` (theory comment).

pub use cenote_format::label::{DraidConfig, PoolState, VdevClass, VdevConfig, VdevKind};

use cenote_format::Result;
use cenote_format::label;
use cenote_format::nvlist::Nvlist;
use cenote_format::units::{Guid, ObjectId, Txg};

/// The pool as configured.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// Pool name.
    pub name: String,
    /// Pool guid.
    pub guid: Guid,
    /// SPA version; 5000 with feature flags.
    pub version: u64,
    /// State left by the last writer.
    pub state: PoolState,
    /// The txg that wrote this.
    pub txg: Txg,
    /// The machine that last imported it; 0 or `None` if not recorded.
    pub hostid: Option<u64>,
    /// That machine's name.
    pub hostname: Option<String>,
    /// Property `comment`.
    pub comment: Option<String>,
    /// Property `compatibility`.
    pub compatibility: Option<String>,
    /// `features_for_read`.
    pub features_for_read: Vec<String>,
    /// The root vdev's ZAP, from the MOS; 0 if none.
    pub root_zap: ObjectId,
    /// Top-level vdevs by id; [`VdevKind::Missing`] where a label does not know them.
    pub vdevs: Vec<VdevConfig>,
    /// Hot spares.
    pub spares: Vec<VdevConfig>,
    /// Cache devices.
    pub l2cache: Vec<VdevConfig>,
}

impl PoolConfig {
    /// The complete configuration from the MOS (`DMU_POOL_CONFIG`) or a cache file. Add spares and cache
    /// devices with [`VdevConfig::decode_array`].
    ///
    /// # Errors
    /// As [`label::PoolConfig::decode`].
    pub fn from_mos(list: &Nvlist) -> Result<PoolConfig> {
        let mut root = label::PoolConfig::decode(list)?;
        let vdevs = std::mem::take(&mut root.vdev_tree.children);
        Ok(PoolConfig::new(&root, vdevs))
    }

    pub(crate) fn new(list: &label::PoolConfig, vdevs: Vec<VdevConfig>) -> PoolConfig {
        PoolConfig {
            name: list.name.clone(),
            guid: list.pool_guid,
            version: list.version,
            state: list.state,
            txg: list.txg,
            hostid: list.hostid,
            hostname: list.hostname.clone(),
            comment: list.comment.clone(),
            compatibility: list.compatibility.clone(),
            features_for_read: list.features_for_read.clone(),
            root_zap: list.vdev_tree.root_zap,
            vdevs,
            spares: Vec::new(),
            l2cache: Vec::new(),
        }
    }
}

/// Whole metaslabs, without labels.
pub(crate) fn least_bytes(top: &VdevConfig) -> u64 {
    top.asize_bytes >> top.metaslab_shift << top.metaslab_shift
}

/// `vdev_get_min_asize`.
pub(crate) fn least_child_bytes(parent: &VdevConfig, bytes: u64) -> u64 {
    match parent.kind {
        VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => bytes,
        VdevKind::Raidz | VdevKind::Draid => bytes.div_ceil(parent.children.len().max(1) as u64),
        _ => 0,
    }
}

/// The smallest size of a leaf, at any depth; 0 without such a leaf.
pub fn least_leaf_bytes(top: &VdevConfig, leaf: Guid) -> u64 {
    fn below(vdev: &VdevConfig, bytes: u64, leaf: Guid) -> Option<u64> {
        match vdev.guid == leaf {
            true => Some(bytes),
            false => {
                let bytes = least_child_bytes(vdev, bytes);
                vdev.children.iter().find_map(|child| below(child, bytes, leaf))
            }
        }
    }
    below(top, least_bytes(top), leaf).unwrap_or(0)
}

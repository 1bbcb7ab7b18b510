//! The pool's configuration: what labels, or the MOS, say about the pool and all its vdevs.
//!
//! Idea: the same nvlist comes from two sources. A label describes the pool and *one* top-level vdev, as of
//! the txg in which that vdev last changed; the MOS describes all of them, as of the uberblock's txg, and
//! is trusted. [`cenote_format::label`] decodes either; a [`PoolConfig`] is what the labels of all devices
//! say together, or what the MOS says.
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
    /// Its name.
    pub name: String,
    /// Its guid, which never changes.
    pub guid: Guid,
    /// SPA version; 5000 with feature flags.
    pub version: u64,
    /// The state in which its last writer left it.
    pub state: PoolState,
    /// The txg in which this was written.
    pub txg: Txg,
    /// The machine that last imported it; 0 or `None` if not recorded.
    pub hostid: Option<u64>,
    /// That machine's name.
    pub hostname: Option<String>,
    /// The property `comment`.
    pub comment: Option<String>,
    /// The feature sets that the pool is restricted to: property `compatibility`.
    pub compatibility: Option<String>,
    /// Features that a reader must know, `features_for_read`.
    pub features_for_read: Vec<String>,
    /// The root vdev's ZAP; 0 if it has none. Only the MOS says so.
    pub root_zap: ObjectId,
    /// Top-level vdevs by id. A label knows only its own; all others are then [`VdevKind::Missing`].
    pub vdevs: Vec<VdevConfig>,
    /// Hot spares.
    pub spares: Vec<VdevConfig>,
    /// Cache devices.
    pub l2cache: Vec<VdevConfig>,
}

impl PoolConfig {
    /// The whole configuration, with all top-level vdevs, from the MOS (`DMU_POOL_CONFIG`) or a cache file.
    /// The MOS keeps spares and cache devices elsewhere; add them with [`VdevConfig::decode_array`].
    ///
    /// # Errors
    /// As [`label::PoolConfig::decode`].
    pub fn from_mos(list: &Nvlist) -> Result<PoolConfig> {
        let mut root = label::PoolConfig::decode(list)?;
        let vdevs = std::mem::take(&mut root.vdev_tree.children);
        Ok(PoolConfig::new(&root, vdevs))
    }

    /// The pool described by a list, with these top-level vdevs.
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

/// The smallest size of a top-level vdev, without labels: whole metaslabs are in use.
pub(crate) fn least_bytes(top: &VdevConfig) -> u64 {
    top.asize_bytes >> top.metaslab_shift << top.metaslab_shift
}

/// The smallest size of a child of such a vdev, `vdev_get_min_asize`.
pub(crate) fn least_child_bytes(parent: &VdevConfig, bytes: u64) -> u64 {
    match parent.kind {
        VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => bytes,
        VdevKind::Raidz | VdevKind::Draid => bytes.div_ceil(parent.children.len().max(1) as u64),
        _ => 0,
    }
}

/// The same for a leaf at any depth; 0 if the vdev has no such leaf.
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

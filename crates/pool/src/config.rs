//! The pool's configuration: what labels, or the MOS, say of the pool and all its vdevs.
//!
//! Idea: the same nvlist comes from two places. A label describes the pool and *one* top-level vdev, as of
//! the txg when that vdev last changed; the MOS describes all of them, as of the uberblock's txg, and is
//! trusted. [`cenote_format::label`] decodes either; a [`PoolConfig`] is what the labels of all devices say
//! together, or what the MOS says.
//!
//! Source: OpenZFS `spa_config_generate`, `vdev_label.c` (theory comment).

pub use cenote_format::label::{DraidConfig, PoolState, VdevClass, VdevConfig, VdevKind};

use cenote_format::Result;
use cenote_format::label;
use cenote_format::nvlist::Nvlist;
use cenote_format::units::{Guid, Txg};

/// The pool as configured.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// Its name.
    pub name: String,
    /// Its name for life.
    pub guid: Guid,
    /// SPA version; 5000 with feature flags.
    pub version: u64,
    /// What its last writer left it as.
    pub state: PoolState,
    /// The group in which this was written.
    pub txg: Txg,
    /// The machine that had it last; 0 or `None` if not recorded.
    pub hostid: Option<u64>,
    /// That machine's name.
    pub hostname: Option<String>,
    /// Set by `zpool reguid` and such; comment property.
    pub comment: Option<String>,
    /// The feature sets that the administrator keeps to: property `compatibility`.
    pub compatibility: Option<String>,
    /// Features without which the pool can't be read, `features_for_read`.
    pub features_for_read: Vec<String>,
    /// Top-level vdevs by id. A label knows its own only; the others are then [`VdevKind::Missing`].
    pub vdevs: Vec<VdevConfig>,
    /// Hot spares.
    pub spares: Vec<VdevConfig>,
    /// Cache devices.
    pub l2cache: Vec<VdevConfig>,
}

impl PoolConfig {
    /// The whole configuration, from the MOS (`DMU_POOL_CONFIG`) or a cache file: all top-level vdevs.
    /// Spares and cache devices are kept elsewhere in the MOS; add them with [`VdevConfig::decode_array`].
    ///
    /// # Errors
    /// As [`label::PoolConfig::decode`].
    pub fn from_mos(list: &Nvlist) -> Result<PoolConfig> {
        let mut root = label::PoolConfig::decode(list)?;
        let vdevs = std::mem::take(&mut root.vdev_tree.children);
        Ok(PoolConfig::new(&root, vdevs))
    }

    /// The pool that a list describes, with these top-level vdevs.
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
            vdevs,
            spares: Vec::new(),
            l2cache: Vec::new(),
        }
    }
}

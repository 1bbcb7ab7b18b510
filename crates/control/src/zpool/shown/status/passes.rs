//! Initialize and trim progress of leaves.
//!
//! Progress of interrupted passes is computed from the offset reached; OpenZFS weighs it by the free space at
//! the time.
//!
//! Source: OpenZFS `vdev_initialize.c`, `vdev_trim.c`.

use std::collections::BTreeMap;

use cenote_dataset::Mos;
use cenote_format::dsl::names::vdev_zap;
use cenote_format::scan::VdevWorkState;
use cenote_format::units::{Guid, ObjectId};
use cenote_object::Zap;
use cenote_pool::{VdevConfig, VdevKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;

/// The passes over a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeafPasses {
    /// Writes its free space once.
    pub initialize: LeafPass,
    /// Discards its free space.
    pub trim: LeafPass,
}

/// A pass over a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeafPass {
    /// In progress, ended, or never begun.
    pub state: VdevWorkState,
    /// Time of that state, in seconds since 1970.
    pub time_s: u64,
    /// Progress.
    pub percent: u64,
}

/// Keys that record a pass in a leaf's ZAP.
struct Keys {
    state: &'static str,
    time: &'static str,
    offset: &'static str,
}

const INITIALIZE: Keys = Keys {
    state: vdev_zap::INITIALIZE_STATE,
    time: vdev_zap::INITIALIZE_ACTION_TIME,
    offset: vdev_zap::INITIALIZE_LAST_OFFSET,
};

const TRIM: Keys = Keys {
    state: vdev_zap::TRIM_STATE,
    time: vdev_zap::TRIM_ACTION_TIME,
    offset: vdev_zap::TRIM_LAST_OFFSET,
};

/// The passes of all leaves.
///
/// # Errors
/// A leaf's ZAP can't be read.
pub async fn of_leaves(mos: &Mos) -> Result<BTreeMap<Guid, LeafPasses>, ControlError> {
    let mut passes = BTreeMap::new();
    for top in &mos.pool_config().vdevs {
        let leaf_bytes =
            top.asize_bytes / if top.kind == VdevKind::Raidz { top.children.len().max(1) as u64 } else { 1 };
        for leaf in top.leaves() {
            let zap = leaf_zap(mos, leaf).await?;
            let of = async |keys: Keys| keys.read(zap.as_ref(), leaf_bytes).await;
            let of_leaf = LeafPasses { initialize: of(INITIALIZE).await?, trim: of(TRIM).await? };
            passes.insert(leaf.guid, of_leaf);
        }
    }
    Ok(passes)
}

async fn leaf_zap(mos: &Mos, leaf: &VdevConfig) -> Result<Option<Zap>, ControlError> {
    match leaf.leaf_zap {
        ObjectId(0) => Ok(None),
        id => Ok(Some(Zap::open_id(mos.objset(), id).await?)),
    }
}

impl Keys {
    async fn read(&self, zap: Option<&Zap>, leaf_bytes: u64) -> Result<LeafPass, ControlError> {
        let (mut state, mut time_s, mut offset) = (0, 0, 0);
        if let Some(zap) = zap {
            for (value, name) in
                [(&mut state, self.state), (&mut time_s, self.time), (&mut offset, self.offset)]
            {
                *value = zap.get_u64(name).await?.unwrap_or(0);
            }
        }
        let percent = (u128::from(offset) * 100 / u128::from(leaf_bytes.max(1))).min(100) as u64;
        Ok(LeafPass { state: VdevWorkState::of_leaf(state), time_s, percent })
    }
}

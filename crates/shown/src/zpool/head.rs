//! Identity of pools in JSON.
//!
//! Source: OpenZFS `fill_pool_info`.

use cenote_control::zpool::shown::list::Head;
use cenote_format::features::{SPA_VERSION_FEATURES, ZPL_VERSION};
use cenote_format::units::Guid;
use serde_json::{Map, Value, json};

use crate::numbers::Numbers;

/// The key of each pool in JSON.
#[derive(Debug, Clone, Copy, Default)]
pub enum Keys {
    /// Its name.
    #[default]
    ByName,
    /// Its guid.
    ByGuid,
}

impl Keys {
    pub(crate) fn key(self, name: &str, guid: Guid) -> String {
        match self {
            Keys::ByName => name.into(),
            Keys::ByGuid => guid.to_string(),
        }
    }
}

/// The JSON fields of every pool, in any command.
pub fn head(pool: &Head, numbers: Numbers) -> Map<String, Value> {
    let mut head = Map::new();
    head.insert("name".into(), json!(pool.name));
    head.insert("type".into(), json!("POOL"));
    head.insert("state".into(), json!(pool.state));
    head.insert("pool_guid".into(), numbers.whole(pool.guid.0));
    head.insert("txg".into(), numbers.whole(pool.txg.0));
    // Fixed version numbers of the software, equal to OpenZFS's.
    head.insert("spa_version".into(), numbers.whole(SPA_VERSION_FEATURES));
    head.insert("zpl_version".into(), numbers.whole(ZPL_VERSION));
    head
}

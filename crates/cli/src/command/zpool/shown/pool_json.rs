//! Pools in `zpool list -j` and similar commands.
//!
//! Source: OpenZFS `fill_pool_info`.

use cenote_control::zpool::shown::list::Head;
use cenote_format::features::{SPA_VERSION_FEATURES, ZPL_VERSION};
use cenote_format::units::Guid;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::command::json::number_or_text;

/// How pools are keyed in JSON: by name unless set otherwise.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct PoolKeys {
    /// Key pools by guid in JSON
    #[arg(long = "json-pool-key-guid")]
    pub by_guid: bool,
}

impl PoolKeys {
    /// The key of this pool.
    pub fn key(self, name: &str, guid: Guid) -> String {
        if self.by_guid { guid.to_string() } else { name.into() }
    }
}

/// The JSON fields of every pool, in any command.
pub fn head(pool: &Head, numbers: bool) -> Map<String, Value> {
    let number = |number: u64| number_or_text(&number.to_string(), numbers);
    let mut head = Map::new();
    head.insert("name".into(), json!(pool.name));
    head.insert("type".into(), json!("POOL"));
    head.insert("state".into(), json!(pool.state));
    head.insert("pool_guid".into(), number(pool.guid.0));
    head.insert("txg".into(), number(pool.txg.0));
    // Fixed version numbers of the software, equal to OpenZFS's.
    head.insert("spa_version".into(), number(SPA_VERSION_FEATURES));
    head.insert("zpl_version".into(), number(ZPL_VERSION));
    head
}

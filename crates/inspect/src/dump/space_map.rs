//! Space maps: changes of allocated space, or of other sets of ranges.
//!
//! Idea: a map does not record its unit; that follows from its owner, looked up in the configuration of the
//! state that contains the map ([`Mos::pool_config`]); the pool may have other vdevs by now.
//!
//! ```text
//!   owner                                 unit
//!   metaslab, or checkpoint of a vdev     1 << ashift of the vdev
//!   log of a txg                          512 bytes
//!   obsolete ranges of a removed vdev     a byte
//!   DTL of a leaf                         a txg
//! ```
//!
//! Source: OpenZFS `space_map_open` and its callers.

use cenote_dataset::Mos;
use cenote_dataset::spacemaps::{LOG_SHIFT, read_space_map};
use cenote_format::dsl::deadlist::parse_deadlist_key;
use cenote_format::dsl::names::{pool as names, vdev_zap};
use cenote_format::space_map::{MapType, SpaceMapEntry};
use cenote_format::units::ObjectId;
use cenote_object::{DatasetError, Object};
use cenote_pool::VdevConfig;

use super::{Sink, Value, failure};

/// The owner of a map, in words, and its consequences.
struct Owner {
    what: String,
    vdev: Option<u64>,
    shift: u32,
    counts_txgs: bool,
}

impl Owner {
    fn of_vdev(what: &str, vdev: &VdevConfig, shift: u32) -> Owner {
        Owner { what: what.to_owned(), vdev: Some(vdev.id), shift, counts_txgs: false }
    }

    fn nobody() -> Owner {
        Owner { what: "unknown".to_owned(), vdev: None, shift: LOG_SHIFT, counts_txgs: false }
    }
}

pub(super) async fn show(sink: &mut dyn Sink, mos: &Mos, object: &Object) -> Result<(), DatasetError> {
    let owner = match owner(mos, object.id()).await {
        Ok(owner) => owner,
        Err(error) => {
            failure(sink, &error);
            None
        }
    };
    let owner = owner.unwrap_or_else(Owner::nobody);
    sink.field("of", owner.what.as_str().into());
    if let Some(vdev) = owner.vdev {
        sink.field("vdev", vdev.into());
    }
    if owner.counts_txgs {
        sink.table("changes", &["type", "txg", "txgs"]);
        let row = |entry: SpaceMapEntry| {
            vec![kind(&entry).into(), entry.offset_bytes.into(), entry.run_bytes.into()]
        };
        let read = read_space_map(object, owner.shift, |entry| sink.row(row(entry))).await;
        sink.close();
        return read;
    }
    sink.table("changes", &["type", "offset", "run", "vdev", "txg", "pass"]);
    let read = read_space_map(object, owner.shift, |entry| sink.row(row(&entry))).await;
    sink.close();
    read
}

fn kind(entry: &SpaceMapEntry) -> &'static str {
    if entry.map_type == MapType::Alloc { "alloc" } else { "free" }
}

pub(super) fn row(entry: &SpaceMapEntry) -> Vec<Value> {
    vec![
        kind(entry).into(),
        Value::Hex(entry.offset_bytes),
        Value::Hex(entry.run_bytes),
        entry.vdev.map(|v| v.0).into(),
        entry.txg.0.into(),
        entry.sync_pass.into(),
    ]
}

/// Looks for a map's owner. `None`: nothing refers to the map.
async fn owner(mos: &Mos, map: ObjectId) -> Result<Option<Owner>, DatasetError> {
    if let Some(log) = mos.directory_zap(names::LOG_SPACEMAP_ZAP).await? {
        for entry in log.to_vec().await? {
            if entry.value.as_u64() == Some(map.0) {
                let txg = parse_deadlist_key(&entry.name).map_err(|e| log.object().format(e))?;
                return Ok(Some(Owner { what: format!("log of txg {txg}"), ..Owner::nobody() }));
            }
        }
    }
    let config = mos.pool_config();
    if let Some(leaf) = config.vdevs.iter().flat_map(VdevConfig::leaves).find(|leaf| leaf.dtl == map) {
        let what = format!("txgs that leaf {} lacks", leaf.guid);
        return Ok(Some(Owner { what, vdev: None, shift: 0, counts_txgs: true }));
    }
    for vdev in &config.vdevs {
        if let Some(owner) = owner_on(mos, vdev, map).await? {
            return Ok(Some(owner));
        }
    }
    Ok(None)
}

async fn owner_on(mos: &Mos, vdev: &VdevConfig, map: ObjectId) -> Result<Option<Owner>, DatasetError> {
    let places = mos.metaslab_places(vdev).await?;
    if let Some(place) = places.iter().find(|place| place.map == Some(map)) {
        return Ok(Some(Owner::of_vdev(&format!("metaslab {}", place.index), vdev, vdev.ashift)));
    }
    let Some(zap) = mos.vdev_zap(vdev).await? else { return Ok(None) };
    if zap.get_u64(vdev_zap::POOL_CHECKPOINT_SM).await? == Some(map.0) {
        return Ok(Some(Owner::of_vdev("freed, but kept by the checkpoint", vdev, vdev.ashift)));
    }
    if zap.get_u64(vdev_zap::INDIRECT_OBSOLETE_SM).await? == Some(map.0) {
        return Ok(Some(Owner::of_vdev("obsolete ranges of the mapping", vdev, 0)));
    }
    Ok(None)
}

//! Metaslabs: how each vdev is divided, how much of each metaslab is free, and how fragmented the free space
//! is.
//!
//! A metaslab's own space map may be out of date: with feature `log_spacemap` the newest changes are in log
//! space maps. This shows the metaslab's own map and the txg since which changes are in the log
//! (`unflushed_txg`).
//!
//! Source: OpenZFS `metaslab.c`, `zdb.c` (`dump_metaslab`).

use cenote_dataset::Mos;
use cenote_dataset::spacemaps::{MetaslabPlace, SpaceMapHead, read_space_map};
use cenote_format::units::ObjectId;
use cenote_pool::VdevConfig;

use super::{Sink, Value, failure, space_map};
use crate::error::Result;

/// Shows the metaslabs of all top-level vdevs; with `segments`, every entry of their maps.
///
/// # Errors
/// A metaslab array can't be read.
pub async fn metaslabs(sink: &mut dyn Sink, mos: &Mos, segments: bool) -> Result<()> {
    let config = mos.pool_config();
    sink.list("vdevs");
    for top in
        config.vdevs.iter().filter(|top| top.metaslab_array.0 != 0 && (9..64).contains(&top.metaslab_shift))
    {
        sink.open(&format!("vdev {}", top.id));
        sink.field("vdev", top.id.into());
        sink.field("type", top.kind.name().into());
        sink.field("class", top.class.name().into());
        sink.field("asize", Value::Size(top.asize_bytes));
        sink.field("metaslab", Value::Size(1 << top.metaslab_shift));
        if let Err(error) = vdev(sink, mos, top, segments).await {
            failure(sink, &error);
        }
        sink.close();
    }
    sink.close();
    Ok(())
}

async fn vdev(sink: &mut dyn Sink, mos: &Mos, top: &VdevConfig, segments: bool) -> Result<()> {
    let places = mos.metaslab_places(top).await?;
    let columns = ["metaslab", "offset", "spacemap", "allocated", "free", "fragmentation", "unflushed_txg"];
    sink.table("metaslabs", &columns);
    for place in &places {
        let [allocated, free, fragmentation] = figures(mos, top, place).await;
        sink.row(vec![
            place.index.into(),
            Value::Hex(place.start_bytes),
            place.map.map_or(0, |map| map.0).into(),
            allocated,
            free,
            fragmentation,
            place.unflushed.map(|txg| txg.0).into(),
        ]);
    }
    sink.close();
    if segments {
        for place in &places {
            if let Some(map) = place.map {
                changes(sink, mos, top, place.index, map).await?;
            }
        }
    }
    Ok(())
}

/// Allocated, free and fragmentation according to the metaslab's own map.
async fn figures(mos: &Mos, top: &VdevConfig, place: &MetaslabPlace) -> [Value; 3] {
    let Some(map) = place.map else { return [Value::Size(0), Value::Size(place.size_bytes), Value::None] };
    let head = mos.objset().object(map).await.and_then(|object| SpaceMapHead::of(&object, top.ashift));
    match head {
        Ok(head) => {
            let percent = head.free_ranges.filter(|r| !r.is_empty()).map(|r| r.fragmentation_percent());
            let free = place.size_bytes.saturating_sub(head.allocated_bytes());
            let percent = percent.map_or(Value::None, |percent| format!("{percent}%").into());
            [Value::Size(head.allocated_bytes()), Value::Size(free), percent]
        }
        Err(error) => [Value::Text(error.to_string()), Value::None, Value::None],
    }
}

async fn changes(sink: &mut dyn Sink, mos: &Mos, top: &VdevConfig, index: u64, map: ObjectId) -> Result<()> {
    let object = mos.objset().object(map).await?;
    sink.table(&format!("metaslab_{index}"), &["type", "offset", "run", "vdev", "txg", "pass"]);
    let read = read_space_map(&object, top.ashift, |entry| sink.row(space_map::row(&entry))).await;
    sink.close();
    if let Err(error) = read {
        failure(sink, &error);
    }
    Ok(())
}

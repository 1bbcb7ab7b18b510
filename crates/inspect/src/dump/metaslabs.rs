//! Metaslabs: how each vdev is cut, what is free in each, and how the free space is broken up.
//!
//! A metaslab's own map may lag behind: with feature `log_spacemap` the newest changes are in the maps of groups. What is shown
//! here is the metaslab's own map, with the group from which on changes are in the log (`unflushed_txg`).
//!
//! Source: OpenZFS `metaslab.c`, `zdb.c` (`dump_metaslab`).

use cenote_dataset::{Mos, ObjectId};
use cenote_format::Phys;
use cenote_format::dsl::names::vdev_zap;
use cenote_format::space_map::{SPACE_MAP_SIZE_V0, SpaceMapPhys};
use cenote_pool::{VdevClass, VdevConfig};

use super::{Sink, Value, content, failure};
use crate::error::Result;

/// Metaslabs that a vdev may have; OpenZFS makes at most 2^17.
const MAX_METASLABS: u64 = 1 << 20;

/// Shows the metaslabs of all top-level vdevs; with `segments` every change in their maps.
///
/// # Errors
/// An array of metaslabs can't be read.
pub async fn metaslabs(sink: &mut dyn Sink, mos: &Mos, segments: bool) -> Result<()> {
    let tops: Vec<VdevConfig> = mos.pool().vdevs().tops().cloned().collect();
    sink.list("vdevs");
    for top in tops.iter().filter(|top| top.metaslab_array.0 != 0 && (9..64).contains(&top.metaslab_shift)) {
        sink.open(&format!("vdev {}", top.id));
        sink.field("vdev", top.id.into());
        sink.field("type", top.kind.name().into());
        sink.field("class", class_name(top.class).into());
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

fn class_name(class: VdevClass) -> &'static str {
    match class {
        VdevClass::Normal => "normal",
        VdevClass::Log => "log",
        VdevClass::Special => "special",
        VdevClass::Dedup => "dedup",
    }
}

async fn vdev(sink: &mut dyn Sink, mos: &Mos, top: &VdevConfig, segments: bool) -> Result<()> {
    let array = mos.objset().object(top.metaslab_array).await?;
    let count = (top.asize_bytes >> top.metaslab_shift).min(MAX_METASLABS);
    let mut maps = array.read_words(0, count.min(array.capacity_bytes() / 8) as usize).await?;
    maps.resize(count as usize, 0);
    let unflushed = unflushed(mos, top, count).await?;
    let columns = ["metaslab", "offset", "spacemap", "allocated", "free", "fragmentation", "unflushed_txg"];
    sink.table("metaslabs", &columns);
    let size = 1 << top.metaslab_shift;
    for (index, &map) in maps.iter().enumerate() {
        let head = match map {
            0 => None,
            id => Some(head(mos, ObjectId(id)).await),
        };
        let (allocated, fragmentation) = match &head {
            None => (Value::Size(0), Value::None),
            Some(Ok(phys)) => (
                Value::Size(phys.alloc_bytes.max(0).cast_unsigned()),
                fragmentation(phys, top.ashift).map_or(Value::None, |percent| format!("{percent}%").into()),
            ),
            Some(Err(error)) => (Value::Text(error.to_string()), Value::None),
        };
        let free = match &head {
            None => Value::Size(size),
            Some(Ok(phys)) => Value::Size(size.saturating_sub(phys.alloc_bytes.max(0).cast_unsigned())),
            Some(Err(_)) => Value::None,
        };
        let offset = Value::Hex((index as u64) << top.metaslab_shift);
        let unflushed = unflushed.get(index).copied().filter(|&txg| txg != 0);
        sink.row(vec![index.into(), offset, map.into(), allocated, free, fragmentation, unflushed.into()]);
    }
    sink.close();
    if segments {
        for (index, &map) in maps.iter().enumerate().filter(|(_, map)| **map != 0) {
            let object = mos.objset().object(ObjectId(map)).await?;
            sink.table(&format!("metaslab_{index}"), &["type", "offset", "run", "vdev", "txg", "pass"]);
            let read = content::read_space_map(&object, top.ashift, |entry| {
                sink.row(content::space_map_row(&entry));
            });
            let read = read.await;
            sink.close();
            if let Err(error) = read {
                failure(sink, &error);
            }
        }
    }
    Ok(())
}

async fn head(mos: &Mos, id: ObjectId) -> Result<SpaceMapPhys> {
    let object = mos.objset().object(id).await?;
    let phys = SpaceMapPhys::decode(object.dnode().bonus(), object.dnode().endian());
    let mut phys = phys.map_err(|e| object.format(e))?;
    if object.dnode().bonus().len() <= SPACE_MAP_SIZE_V0 {
        phys.histogram = [0; 32];
    }
    Ok(phys)
}

/// For each metaslab the first group whose changes are not in its own map; 0: all are.
async fn unflushed(mos: &Mos, top: &VdevConfig, count: u64) -> Result<Vec<u64>> {
    if top.top_zap.0 == 0 {
        return Ok(Vec::new());
    }
    let zap = cenote_dataset::Zap::open_id(mos.objset(), top.top_zap).await?;
    let Some(id) = zap.get_u64(vdev_zap::MS_UNFLUSHED_PHYS_TXGS).await? else { return Ok(Vec::new()) };
    let object = mos.objset().object(ObjectId(id)).await?;
    Ok(object.read_words(0, count.min(object.capacity_bytes() / 8) as usize).await?)
}

/// How broken up free space is, in percent: each power of two of segment sizes has a weight, and the average is by
/// bytes. `None` if the map has no histogram.
fn fragmentation(phys: &SpaceMapPhys, ashift: u32) -> Option<u64> {
    /// Weights of segments of 512 B, 1 KiB ... 512 MiB (`zfs_frag_table`); larger ones weigh nothing.
    const WEIGHTS: [u64; 21] =
        [100, 99, 97, 93, 88, 83, 77, 71, 64, 57, 50, 43, 36, 29, 23, 17, 12, 7, 3, 1, 0];
    let (mut total, mut weighted) = (0u128, 0u128);
    for (i, &count) in phys.histogram.iter().enumerate() {
        let shift = i as u32 + ashift;
        let bytes = u128::from(count) << shift.min(64);
        let weight = WEIGHTS.get((shift.saturating_sub(9)) as usize).copied().unwrap_or(0);
        total += bytes;
        weighted += bytes * u128::from(weight);
    }
    (total > 0).then(|| (weighted / total) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_large_segment_is_not_fragmented_and_sectors_are() {
        let mut phys = SpaceMapPhys::from_words(&[0; 40]).unwrap();
        assert_eq!(fragmentation(&phys, 9), None);
        phys.histogram[20] = 1;
        assert_eq!(fragmentation(&phys, 9), Some(0));
        phys.histogram = [0; 32];
        phys.histogram[0] = 7;
        assert_eq!(fragmentation(&phys, 9), Some(100));
    }
}

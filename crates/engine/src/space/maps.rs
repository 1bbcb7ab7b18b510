//! Objects of the metaslabs' space maps.

use std::collections::BTreeMap;

use cenote_dataset::Mos;
use cenote_dataset::spacemaps::{LogSpacemaps, LostMap, MetaslabPlace};
use cenote_format::space_map::MapType;
use cenote_format::units::{ObjectId, VdevId};
use cenote_object::Result;
use cenote_pool::ranges::Ranges;

use crate::space::log::SpaceLog;
use crate::space::map_edit::SpaceMapChange;

#[derive(Debug, Default)]
pub(crate) struct SpaceMaps {
    /// By vdev: the object that lists its maps.
    pub(crate) arrays: BTreeMap<VdevId, ObjectId>,
    pub(crate) maps: BTreeMap<(VdevId, u64), ObjectId>,
    /// Metaslabs with unreadable maps, which the next txg replaces.
    pub(crate) lost: Vec<(VdevId, MetaslabPlace)>,
    /// Changes not flushed yet.
    pub(crate) log: SpaceLog,
}

impl SpaceMaps {
    pub(crate) async fn of(mos: &Mos, log: &LogSpacemaps, lost: Vec<LostMap>) -> Result<SpaceMaps> {
        let mut all = SpaceMaps { log: SpaceLog::of(log), ..SpaceMaps::default() };
        for vdev in mos.pool_config().vdevs.iter().filter(|vdev| vdev.metaslab_array.0 != 0) {
            let id = VdevId(vdev.id);
            all.add_vdev(id, vdev.metaslab_array);
            let places = mos.metaslab_places(vdev).await?;
            all.maps.extend(places.iter().filter_map(|place| Some(((id, place.index), place.map?))));
            all.log.add_vdev(vdev, &places, log);
        }
        all.lost.extend(lost.into_iter().map(|lost| (lost.vdev, lost.place)));
        Ok(all)
    }

    pub(crate) fn remove_vdev(&mut self, vdev: VdevId) -> (Option<ObjectId>, Vec<ObjectId>) {
        let is_of_vdev = |id: &(VdevId, u64)| id.0 == vdev;
        self.log.metaslabs.retain(|id, _| !is_of_vdev(id));
        self.lost.retain(|(of, _)| *of != vdev);
        let maps = self.maps.iter().filter(|(id, _)| is_of_vdev(id)).map(|(_, map)| *map).collect();
        self.maps.retain(|id, _| !is_of_vdev(id));
        (self.arrays.remove(&vdev), maps)
    }

    pub(crate) fn add_vdev(&mut self, vdev: VdevId, array: ObjectId) {
        self.arrays.insert(vdev, array);
    }
}

/// Changes of the map that begins at `start_bytes`.
pub(crate) fn changes(map_type: MapType, ranges: &Ranges, start_bytes: u64) -> Vec<SpaceMapChange> {
    let change = |(start, end)| SpaceMapChange {
        map_type,
        vdev: None,
        offset_bytes: start - start_bytes,
        run_bytes: end - start,
    };
    ranges.iter().map(change).collect()
}

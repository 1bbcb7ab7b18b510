//! Changed space maps, compared with ranges in memory.

use cenote_dataset::spacemaps::{Ranges, SpaceMapHead, read_space_map};
use cenote_dataset::{ImportOptions, import};
use cenote_engine::space::map_edit::{SpaceMapChange, SpaceMapEdit};
use cenote_format::space_map::MapType;
use cenote_format::units::{ObjectId, Txg};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{Edit, LiveObjset};
use cenote_pool::discover;
use cenote_runtime::{Rng, Runtime};
use cenote_testkit::golden;

#[test]
fn space_maps_replay_to_what_was_appended() {
    let rt = Runtime::real(Some(2));
    let pool = golden("single");
    let seed = rt.random_u64();
    eprintln!("seed {seed:#x}");
    rt.block_on(async {
        let found = discover(&rt, &[pool.images()]).await;
        let mos = import(&rt, &found.pools[0], &ImportOptions::default()).await.unwrap();
        let live = LiveObjset::new(mos.objset().clone(), Txg(1 << 40));
        let edit = live.edit();
        let mut rng = Rng::new(seed);
        let histograms = FeatureCounts::of(&edit).count("spacemap_histogram").await.unwrap();
        let map = SpaceMapEdit::create(&edit, 4096, 12).await.unwrap();
        let mut model = Ranges::default();
        for pass in 0..200 {
            let map_type = if pass % 3 == 2 { MapType::Free } else { MapType::Alloc };
            let mut changes = Vec::new();
            for _ in 0..rng.below(40) {
                let (mut offset_bytes, run_bytes) =
                    (rng.below(1 << 32) << 12, (1 + rng.below(1 << 17)) << 12);
                let run_bytes = if rng.chance(0.9) { 4096 } else { run_bytes };
                if map_type == MapType::Free {
                    let Some((start, _)) = model.iter().nth(rng.below(model.len() as u64 + 1) as usize)
                    else {
                        break;
                    };
                    offset_bytes = start;
                    if !model.contains(offset_bytes, run_bytes) {
                        continue;
                    }
                    model.remove(offset_bytes, run_bytes);
                } else if model.clone().insert(offset_bytes, run_bytes).is_some() {
                    continue;
                } else {
                    model.insert(offset_bytes, run_bytes);
                }
                changes.push(SpaceMapChange { map_type, vdev: None, offset_bytes, run_bytes });
            }
            map.append(&changes, 1).await.unwrap();
        }
        assert_eq!(replay(&edit, map.object()).await, model);
        let object = edit.view().object(map.object()).await.unwrap();
        assert!(object.dnode().max_block_id.0 > 0, "several blocks");
        assert_eq!(SpaceMapHead::of(&object, 12).unwrap().allocated_bytes(), model.total_bytes());
        map.truncate().await.unwrap();
        assert_eq!(replay(&edit, map.object()).await, Ranges::default());
        map.free().await.unwrap();
        assert_eq!(FeatureCounts::of(&edit).count("spacemap_histogram").await.unwrap(), histograms);
    });
}

async fn replay(edit: &Edit, map: ObjectId) -> Ranges {
    let mut ranges = Ranges::default();
    let object = edit.view().object(map).await.unwrap();
    read_space_map(&object, 12, |change| {
        let contradiction = match change.map_type {
            MapType::Alloc => ranges.insert(change.offset_bytes, change.run_bytes),
            MapType::Free => ranges.remove(change.offset_bytes, change.run_bytes),
        };
        assert_eq!(contradiction, None);
    })
    .await
    .unwrap();
    ranges
}

//! Rewinding to an older state: never to one in which the next write would destroy data.

use cenote_dataset::ImportOptions;
use cenote_dataset::traverse::{Met, Tree};
use cenote_format::dnode::ObjectType;
use cenote_inspect::rewind::{Reach, newest_whole};
use cenote_pool::VdevClass::Normal;
use cenote_pool::VdevKind::Disk;
use cenote_pool::discover_devices;

use crate::cuts::{number, simulate};
use crate::pools::{Disks, Layout};
use crate::work::Worker;

const STEPS: usize = 60;

#[test]
fn a_state_in_which_blocks_in_use_are_free_is_passed_over() {
    let layout = Layout { vdevs: vec![(Disk, 0, 1, Normal)], sector_bytes: 512, spares: 0 };
    simulate(number("CENOTE_SEED").unwrap_or(3), |rt| async move {
        let (disks, engine, mut worker) = Worker::on_new_pool(&rt, &layout, 0, STEPS).await;
        worker.sync().await;
        engine.force_sync().await.unwrap();
        let mos = engine.mos().await.unwrap();
        let (good, mut met) = (mos.uberblock().txg, Vec::new());
        let mut tree = Tree::new(mos.pool(), mos.uberblock().rootbp, &mut met);
        while tree.step(&mut met).await {}
        let is_file = |met: &Met| match met {
            Met::Block { bp, .. } if bp.object_type() == ObjectType::PLAIN_FILE_CONTENTS => {
                (bp.level() == 0 && !bp.is_embedded()).then_some(*bp)
            }
            _ => None,
        };
        let bp = met.iter().find_map(is_file).expect("there is a file");
        drop(mos);
        // A bad txg: it frees a block that a file has.
        let free = engine.run(move |context| Box::pin(async move { context.free_all(&[bp]).await }));
        free.await.unwrap();
        engine.force_sync().await.unwrap();
        drop((worker, engine));

        let copy = Disks::new(&rt, layout.shape(), disks.images());
        let found = discover_devices(copy.devices()).await.pools.remove(0);
        let found = found.open_for_writing(&rt).await.unwrap();
        let newest = found.uberblocks[0].txg;
        let state = newest_whole(&rt, &found, &ImportOptions::default(), Reach::Whole, |_| {}).await.unwrap();
        let chosen = state.uberblock().txg;
        assert!(chosen == good, "{chosen} of {newest}; {good} is the last that is whole");
    });
}

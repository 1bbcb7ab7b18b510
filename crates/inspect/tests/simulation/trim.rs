//! Power cuts while freed space is trimmed (`autotrim=on`): no block of the txg that the pool opens at was
//! trimmed.

use std::time::Duration;

use cenote_engine::Engine;
use cenote_pool::VdevClass::Normal;
use cenote_pool::VdevKind::{Disk, Draid, Mirror, Raidz};
use cenote_runtime::Runtime;
use cenote_tasks::{PoolSetting, keep_autotrimming, set_pool};

use crate::cuts::{self, Cut, simulate, survives_cuts};
use crate::pools::{Layout, Vdev};
use crate::work::Worker;

const STEPS: usize = 60;
/// Power cuts of a run.
const CUTS: usize = 8;
/// Rounds of autotrim in a run, and operations between them.
const ROUNDS: usize = 12;
const STEPS_PER_ROUND: usize = 6;
/// Longer than a round.
const PAUSE: Duration = Duration::from_secs(6);

fn on_pools(test: &str, run: impl Fn(u64, &Layout)) {
    let pools: [&[Vdev]; 4] = [
        &[(Disk, 0, 1, Normal)],
        &[(Mirror, 0, 2, Normal)],
        &[(Raidz, 1, 3, Normal), (Disk, 0, 1, Normal)],
        // Rows of three sectors.
        &[(Draid, 2, 4, Normal)],
    ];
    cuts::on_pools(test, &pools, run);
}

/// All freed space is trimmed in the next round.
async fn switch_on(rt: &Runtime, engine: &Engine) {
    for (name, value) in [("zfs_trim_txg_batch", 1), ("zfs_trim_extent_bytes_min", 512)] {
        engine.background().settings().set(name, value).unwrap();
    }
    set_pool(engine, PoolSetting::Number("autotrim".into(), 1)).await.unwrap();
    rt.spawn(keep_autotrimming(engine.weak())).detach();
}

async fn survive(cut: Cut<'_>) -> Result<(), String> {
    let left = cut.open().await?;
    // Work continues, and all data is still present.
    switch_on(left.rt, left.engine()).await;
    left.rt.sleep(3 * PAUSE).await;
    left.end(&[], &[]).await
}

#[test]
fn power_cuts_while_what_is_freed_is_trimmed() {
    on_pools("power_cuts_while_what_is_freed_is_trimmed", |seed, layout| {
        let run = simulate(seed, |rt| async move {
            let (disks, engine, worker) = Worker::on_new_pool(&rt, layout, 0, STEPS).await;
            switch_on(&rt, &engine).await;
            let (mut worker, before) = worker.cut_from_here().await;
            for _ in 0..ROUNDS {
                worker.run(STEPS_PER_ROUND).await;
                rt.sleep(PAUSE).await;
            }
            assert!(disks.journal.lock().discarded_bytes > 0, "nothing was trimmed");
            worker.into_run(before)
        });
        survives_cuts(seed, layout, &run, CUTS, survive);
    });
}

//! The log of space changes: metaslabs whose own space maps lag, and how they catch up.

use std::collections::BTreeSet;
use std::path::Path;

use cenote_dataset::spacemaps::Metaslab;
use cenote_engine::Host;
use cenote_format::features::{FEATURES_OF_2_3, Feature, SPA_FEATURES};
use cenote_format::label::PoolState;
use cenote_format::units::Txg;
use cenote_pool::VdevKind;
use cenote_runtime::{Rng, Runtime};

use crate::common::{
    Layout, Load, Model, POOL, assert_equal, assert_zdb_is_content, create_with, reopen, reopen_to_write,
    seed, vdev, work,
};

const DISK: Layout = (VdevKind::Disk, 0, 1);
const VDEVS: usize = 5;
const LOAD: Load = Load { steps: 30, max_offset: 3 << 20, max_len: 300_000 };

/// All metaslabs ever used, as on disk, and the txgs whose changes are in the log.
async fn metaslabs(rt: &Runtime, folder: &Path) -> (Vec<Metaslab>, Vec<Txg>) {
    let mos = reopen(rt, folder).await;
    let log = mos.log_spacemaps().await.unwrap();
    let mut all = Vec::new();
    for vdev in mos.pool().tree().vdevs().tops() {
        all.extend(mos.metaslabs(vdev, &log).await.unwrap());
    }
    assert!(all.iter().all(|metaslab| metaslab.overlaps.is_empty()), "a change is in two maps, or in none");
    all.retain(|metaslab| metaslab.place.map.is_some());
    (all, log.txgs().collect())
}

fn behind(metaslabs: &[Metaslab]) -> usize {
    metaslabs.iter().filter(|metaslab| metaslab.own_map_bytes != metaslab.allocated_bytes()).count()
}

fn unflushed(metaslabs: &[Metaslab]) -> BTreeSet<Txg> {
    metaslabs.iter().map(|metaslab| metaslab.place.unflushed.expect("each has been in the log")).collect()
}

#[test]
fn metaslabs_take_turns_and_logs_go_that_serve_none() {
    let rt = Runtime::real(Some(2));
    let mut rng = Rng::new(seed(&rt, "turns"));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    rt.block_on(async {
        let engine = create_with(&rt, folder, &DISK, SPA_FEATURES[..FEATURES_OF_2_3].iter().collect()).await;
        let mut others = Vec::new();
        for first in 1..VDEVS {
            others.push(vdev(&rt, folder, first, &DISK).await);
        }
        cenote_tasks::add_vdevs(&engine, others, None).await.unwrap();
        let mut model = Model::new();
        for _ in 0..40 {
            work(&engine, POOL, &mut model, &mut rng, LOAD).await;
            engine.sync_all().await.unwrap();
        }
        drop(engine);
        let (all, txgs) = metaslabs(&rt, folder).await;
        assert!(behind(&all) >= VDEVS, "changes are in the log first: {all:?}");
        assert!(txgs.len() <= all.len() + 1, "one metaslab a txg catches up at least: {txgs:?}");
        assert_eq!(unflushed(&all).first(), txgs.first(), "older ones have been given up");
        assert_zdb_is_content(folder, "behind");

        // The next import continues the same log.
        let engine = reopen_to_write(&rt, folder).await;
        work(&engine, POOL, &mut model, &mut rng, LOAD).await;
        engine.sync_all().await.unwrap();
        work(&engine, POOL, &mut model, &mut rng, LOAD).await;
        engine.ownership().set_state(PoolState::Exported, Host { id: 1, name: "here".into() }).await.unwrap();
        drop(engine);
        let (all, txgs) = metaslabs(&rt, folder).await;
        assert_eq!(txgs.len(), 1, "only the last txg's changes are still in the log");
        assert_eq!(unflushed(&all), txgs.iter().copied().collect());
        assert_equal(&reopen(&rt, folder).await, POOL, &model, "exported").await;
        assert_zdb_is_content(folder, "exported");
    });
}

#[test]
fn a_log_is_condensed_in_one_txg_on_request() {
    let rt = Runtime::real(Some(2));
    let mut rng = Rng::new(seed(&rt, "condensed"));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    rt.block_on(async {
        let engine = create_with(&rt, folder, &DISK, SPA_FEATURES[..FEATURES_OF_2_3].iter().collect()).await;
        let mut model = Model::new();
        for _ in 0..10 {
            work(&engine, POOL, &mut model, &mut rng, LOAD).await;
            engine.sync_all().await.unwrap();
        }
        assert!(metaslabs(&rt, folder).await.1.len() > 1);
        let before = engine.pool().uberblock().txg;
        assert!(engine.condense_space_log().await.unwrap());
        assert_eq!(engine.pool().uberblock().txg, Txg(before.0 + 1));
        let (all, txgs) = metaslabs(&rt, folder).await;
        assert_eq!(txgs, [Txg(before.0 + 1)], "only its own changes are in the log");
        assert_eq!(unflushed(&all), txgs.iter().copied().collect());
        work(&engine, POOL, &mut model, &mut rng, LOAD).await;
        engine.sync_all().await.unwrap();
        drop(engine);
        assert_equal(&reopen(&rt, folder).await, POOL, &model, "condensed").await;
        assert_zdb_is_content(folder, "condensed");
    });
}

#[test]
fn a_pool_without_the_feature_keeps_every_map_up_to_date() {
    let rt = Runtime::real(Some(2));
    let mut rng = Rng::new(seed(&rt, "no log"));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    rt.block_on(async {
        let features: Vec<&Feature> =
            SPA_FEATURES[..FEATURES_OF_2_3].iter().filter(|f| f.name != "log_spacemap").collect();
        let engine = create_with(&rt, folder, &DISK, features).await;
        let mut model = Model::new();
        for _ in 0..4 {
            work(&engine, POOL, &mut model, &mut rng, LOAD).await;
            engine.sync_all().await.unwrap();
        }
        assert!(!engine.condense_space_log().await.unwrap(), "there is none");
        drop(engine);
        let (all, txgs) = metaslabs(&rt, folder).await;
        assert_eq!((behind(&all), txgs.len()), (0, 0));
        assert_zdb_is_content(folder, "no log");
    });
}

//! Removes data vdevs under load, and resumes interrupted removals.

use std::path::Path;

use bytes::Bytes;
use cenote_engine::Engine;
use cenote_format::dnode::ObjectType;
use cenote_format::units::{ObjectId, VdevId};
use cenote_object::NewObject;
use cenote_pool::VdevKind;
use cenote_runtime::{Rng, Runtime};
use cenote_tasks::{Removed, add_vdevs, cancel_removal, removing_vdev, run_removal, snapshot, start_removal};

use crate::common::{
    Load, Model, POOL, assert_equal, assert_is_sound, create, destroy, reopen, reopen_to_write, seed, vdev,
    work,
};

const LOAD: Load = Load { steps: 40, max_offset: 2_000_000, max_len: 120_000 };

/// A pool of three vdevs of the minimum size for a removal.
async fn three(rt: &Runtime, folder: &Path, kind: &VdevKind) -> Engine {
    let each = if *kind == VdevKind::Mirror { 2 } else { 1 };
    let engine = create(rt, folder, &(kind.clone(), 0, each)).await;
    let mut others = Vec::new();
    for at in [1, 2] {
        others.push(vdev(rt, folder, at * each, &(kind.clone(), 0, each)).await);
    }
    add_vdevs(&engine, others, None).await.unwrap();
    engine
}

/// Copies at least one range and stops.
async fn copy_some(engine: &Engine) {
    engine.background().settings().set("zfs_remove_max_segment", 64 << 10).unwrap();
    let stop_when_begun = |now: cenote_tasks::RemovalProgress| {
        if now.done_bytes > 0 {
            engine.background().settings().set("zfs_removal_suspend_progress", 1).unwrap();
        }
    };
    assert_eq!(run_removal(engine, &stop_when_begun).await.unwrap(), Removed::Suspended);
    engine.background().settings().set("zfs_removal_suspend_progress", 0).unwrap();
}

/// An object of 8 MiB spread over all vdevs.
async fn bulk(engine: &Engine, rng: &mut Rng) -> ObjectId {
    let dataset = engine.dataset(POOL).await.unwrap();
    let hold = engine.hold().await.unwrap();
    let edit = dataset.edit(&hold);
    let new = NewObject::of(ObjectType::UINT64_OTHER).block_bytes(131_072);
    let object = edit.create(&new).await.unwrap();
    let data: Vec<u8> = (0..8 << 20).map(|_| rng.below(256) as u8).collect();
    edit.write(object, 0, Bytes::from(data)).await.unwrap();
    object
}

fn remove_while_others_work(kind: &VdevKind) {
    let rt = Runtime::real(Some(2));
    let seed = seed(&rt, "removal");
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let (mut rng, mut model) = (Rng::new(seed), Model::new());
        let mut engine = three(&rt, folder.path(), kind).await;
        work(&engine, POOL, &mut model, &mut rng, LOAD).await;
        snapshot(&engine, &[format!("{POOL}@before")]).await.unwrap();
        let before = model.clone();
        for vdev in [VdevId(0), VdevId(2)] {
            let name = format!("{} {vdev}", kind);
            start_removal(&engine, vdev).await.unwrap();
            copy_some(&engine).await;
            // Frees ranges both copied and not yet copied.
            work(&engine, POOL, &mut model, &mut rng, LOAD).await;
            engine.sync_all().await.unwrap();
            drop(engine);
            assert_is_sound(&rt, folder.path(), &model, &name).await;
            engine = reopen_to_write(&rt, folder.path()).await;
            let (runner, runtime) = (engine.clone(), rt.clone());
            let running = runtime.spawn(async move { run_removal(&runner, &|_| {}).await });
            for _ in 0..4 {
                work(&engine, POOL, &mut model, &mut rng, LOAD).await;
                engine.sync_all().await.unwrap();
            }
            assert_eq!(running.await.unwrap().unwrap(), Removed::Done);
            assert_eq!(engine.pool().tree().vdevs().top(vdev).unwrap().kind, VdevKind::Indirect);
            work(&engine, POOL, &mut model, &mut rng, LOAD).await;
            engine.sync_all().await.unwrap();
            if vdev == VdevId(0) {
                // Room for the next vdev's data.
                let at = if *kind == VdevKind::Mirror { 6 } else { 3 };
                let (count, kind) = (at / 3, kind.clone());
                let more = crate::common::vdev(&rt, folder.path(), at, &(kind, 0, count)).await;
                add_vdevs(&engine, vec![more], None).await.unwrap();
            }
            assert_is_sound(&rt, folder.path(), &model, &name).await;
        }
        let mos = reopen(&rt, folder.path()).await;
        assert_equal(&mos, &format!("{POOL}@before"), &before, "the snapshot").await;
    });
}

#[test]
fn disks_leave_while_others_work_and_their_blocks_are_found_elsewhere() {
    remove_while_others_work(&VdevKind::File);
}

#[test]
fn mirrors_leave_while_others_work_and_their_blocks_are_found_elsewhere() {
    remove_while_others_work(&VdevKind::Mirror);
}

#[test]
fn a_removal_that_is_canceled_leaves_the_vdev_as_it_was() {
    let rt = Runtime::real(Some(2));
    let seed = seed(&rt, "canceled removal");
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let (mut rng, mut model) = (Rng::new(seed), Model::new());
        let engine = three(&rt, folder.path(), &VdevKind::File).await;
        work(&engine, POOL, &mut model, &mut rng, LOAD).await;
        assert!(cancel_removal(&engine).await.unwrap_err().is_refusal(), "there is none");
        start_removal(&engine, VdevId(1)).await.unwrap();
        assert!(
            start_removal(&engine, VdevId(1)).await.unwrap_err().to_string().contains("already in progress")
        );
        assert!(start_removal(&engine, VdevId(2)).await.unwrap_err().is_refusal(), "one at a time");
        copy_some(&engine).await;
        work(&engine, POOL, &mut model, &mut rng, LOAD).await;
        cancel_removal(&engine).await.unwrap();
        assert_eq!(removing_vdev(&engine.mos().await.unwrap()).await.unwrap(), None);
        let before = engine.allocator().vdev_space(VdevId(1)).unwrap().allocated_bytes;
        for _ in 0..6 {
            work(&engine, POOL, &mut model, &mut rng, LOAD).await;
            engine.sync_all().await.unwrap();
        }
        assert!(engine.allocator().vdev_space(VdevId(1)).unwrap().allocated_bytes != before, "it is in use");
        drop(engine);
        assert_is_sound(&rt, folder.path(), &model, "canceled").await;
    });
}

#[test]
fn what_is_freed_leaves_the_mapping_of_a_removed_vdev() {
    let rt = Runtime::real(Some(2));
    let seed = seed(&rt, "condensing");
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let (mut rng, mut model) = (Rng::new(seed), Model::new());
        let engine = three(&rt, folder.path(), &VdevKind::File).await;
        engine.background().settings().set("zfs_remove_max_segment", 64 << 10).unwrap();
        work(&engine, POOL, &mut model, &mut rng, LOAD).await;
        let bulk = bulk(&engine, &mut rng).await;
        start_removal(&engine, VdevId(0)).await.unwrap();
        assert_eq!(run_removal(&engine, &|_| {}).await.unwrap(), Removed::Done);
        let ranges = || engine.allocator().mapping(VdevId(0)).unwrap().entries().len();
        let before = ranges();
        for _ in 0..3 {
            work(&engine, POOL, &mut model, &mut rng, LOAD).await;
            engine.sync_all().await.unwrap();
        }
        run_removal(&engine, &|_| {}).await.unwrap();
        assert_eq!(ranges(), before, "a short mapping is left alone");
        // A range goes only when all of it is unused, which the load alone may not achieve.
        destroy(&engine, bulk).await;
        engine.background().settings().set("zfs_condense_min_mapping_bytes", 0).unwrap();
        engine.background().settings().set("zfs_condense_indirect_obsolete_pct", 1).unwrap();
        run_removal(&engine, &|_| {}).await.unwrap();
        assert!(ranges() < before, "{} ranges of {before} are left", ranges());
        let left = ranges();
        work(&engine, POOL, &mut model, &mut rng, LOAD).await;
        engine.sync_all().await.unwrap();
        drop(engine);
        // Including the obsolete counts of the rest.
        assert_is_sound(&rt, folder.path(), &model, "condensed").await;
        let engine = reopen_to_write(&rt, folder.path()).await;
        assert_eq!(engine.allocator().mapping(VdevId(0)).unwrap().entries().len(), left);
    });
}

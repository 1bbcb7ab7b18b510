//! Expands RAID-Zs by a disk under load, and resumes interrupted expansions.

use cenote_engine::Engine;
use cenote_format::units::{Txg, VdevId};
use cenote_pool::VdevKind;
use cenote_runtime::{Rng, Runtime};
use cenote_tasks::{
    Expanded, ExpansionProgress, attach_to_raidz, expansion, run_expansion, run_scan, snapshot, start_scrub,
};

use crate::common::{
    Load, Model, POOL, assert_equal, assert_is_sound, create, device, reopen, reopen_to_write, seed, spoil,
    work,
};

const LOAD: Load = Load { steps: 40, max_offset: 2_000_000, max_len: 120_000 };
const RAIDZ: VdevId = VdevId(0);

async fn expand(engine: &Engine) -> Expanded {
    run_expansion(engine, &|_| {}).await.unwrap()
}

/// Copies that many bytes and stops.
async fn expand_some(engine: &Engine, bytes: u64) -> ExpansionProgress {
    engine.background().settings().set("raidz_expand_max_reflow_bytes", bytes).unwrap();
    assert_eq!(expand(engine).await, Expanded::Suspended);
    engine.background().settings().set("raidz_expand_max_reflow_bytes", 0).unwrap();
    expansion(engine, &engine.mos().await.unwrap()).await.unwrap().expect("it is not done")
}

/// Expands a RAID-Z `times` times.
fn expand_while_others_work(parity: usize, width: usize, times: usize) {
    let rt = Runtime::real(Some(2));
    let seed = seed(&rt, "expansion");
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let (mut rng, mut model) = (Rng::new(seed), Model::new());
        let mut engine = create(&rt, folder.path(), &(VdevKind::Raidz, parity, width)).await;
        for _ in 0..4 {
            work(&engine, POOL, &mut model, &mut rng, LOAD).await;
        }
        snapshot(&engine, &[format!("{POOL}@before")]).await.unwrap();
        let before = model.clone();
        for more in 0..times {
            let name = format!("raidz{parity} of {width} and {more}");
            let size = engine.allocator().vdev_space(RAIDZ).unwrap().size_bytes;
            attach_to_raidz(&engine, RAIDZ, device(&rt, folder.path(), width + more).await).await.unwrap();
            work(&engine, POOL, &mut model, &mut rng, LOAD).await;
            engine.sync_all().await.unwrap();
            let some = expand_some(&engine, 1 << 20).await;
            assert!(some.done_bytes >= 1 << 20, "{name}: {some:?}");
            work(&engine, POOL, &mut model, &mut rng, LOAD).await;
            engine.sync_all().await.unwrap();
            drop(engine);
            assert_is_sound(&rt, folder.path(), &model, &format!("{name}, half-way")).await;
            engine = reopen_to_write(&rt, folder.path()).await;
            let (runner, runtime) = (engine.clone(), rt.clone());
            let running = runtime.spawn(async move { run_expansion(&runner, &|_| {}).await });
            for _ in 0..6 {
                work(&engine, POOL, &mut model, &mut rng, LOAD).await;
                engine.sync_all().await.unwrap();
            }
            assert_eq!(running.await.unwrap().unwrap(), Expanded::Done, "{name}");
            let top = engine.pool().tree().vdevs().top(RAIDZ).unwrap().clone();
            assert_eq!((top.raidz_expanding, top.raidz_expand_txgs.len()), (false, more + 1), "{name}");
            let grown = engine.allocator().vdev_space(RAIDZ).unwrap().size_bytes;
            assert!(grown > size, "{name}: {grown} bytes after {size}");
            let scanned = run_scan(&engine, &|_| {}).await.unwrap();
            assert_eq!(scanned.errors, 0, "{name}: the scrub that follows");
            for _ in 0..4 {
                work(&engine, POOL, &mut model, &mut rng, LOAD).await;
                engine.sync_all().await.unwrap();
            }
            drop(engine);
            assert_is_sound(&rt, folder.path(), &model, &name).await;
            for lost in 0..width + more + 1 {
                let aside = tempfile::tempdir().unwrap();
                let path = folder.path().join(format!("disk{lost}.img"));
                std::fs::rename(&path, aside.path().join("lost")).unwrap();
                let mos = reopen(&rt, folder.path()).await;
                assert_equal(&mos, POOL, &model, &format!("{name} without {lost}")).await;
                std::fs::rename(aside.path().join("lost"), &path).unwrap();
            }
            engine = reopen_to_write(&rt, folder.path()).await;
        }
        drop(engine);
        let mos = reopen(&rt, folder.path()).await;
        assert_equal(&mos, &format!("{POOL}@before"), &before, "the snapshot").await;
    });
}

#[test]
fn a_raidz_gets_disks_while_others_work_and_all_is_found_with_any_disk_missing() {
    expand_while_others_work(1, 3, 2);
}

#[test]
fn a_raidz2_gets_a_disk_while_others_work_and_all_is_found_with_any_disk_missing() {
    expand_while_others_work(2, 4, 1);
}

#[test]
fn a_raidz_of_two_disks_gets_one_while_others_work_and_all_is_found_with_any_disk_missing() {
    expand_while_others_work(1, 2, 1);
}

#[test]
fn what_a_disk_had_spoilt_before_its_vdev_became_wider_is_read_and_repaired() {
    let rt = Runtime::real(Some(2));
    let seed = seed(&rt, "expansion of what is spoilt");
    for (parity, width, times) in [(1, 3, 2), (2, 4, 1)] {
        let folder = tempfile::tempdir().unwrap();
        rt.block_on(async {
            let (mut rng, mut model) = (Rng::new(seed), Model::new());
            let engine = create(&rt, folder.path(), &(VdevKind::Raidz, parity, width)).await;
            for _ in 0..4 {
                work(&engine, POOL, &mut model, &mut rng, LOAD).await;
            }
            engine.sync_all().await.unwrap();
            drop(engine);
            spoil(&folder.path().join("disk1.img"));
            let engine = reopen_to_write(&rt, folder.path()).await;
            for more in 0..times {
                attach_to_raidz(&engine, RAIDZ, device(&rt, folder.path(), width + more).await)
                    .await
                    .unwrap();
                engine.background().settings().set("zfs_scrub_after_expand", 0).unwrap();
                assert_eq!(expand(&engine).await, Expanded::Done);
            }
            drop(engine);
            if parity == 2 {
                // Another disk fails afterwards.
                spoil(&folder.path().join("disk0.img"));
            }
            let name = format!("raidz{parity} of {width}, spoilt");
            let mos = reopen(&rt, folder.path()).await;
            assert_equal(&mos, POOL, &model, &name).await;
            drop(mos);
            let engine = reopen_to_write(&rt, folder.path()).await;
            start_scrub(&engine, Txg(0)).await.unwrap();
            let scrubbed = run_scan(&engine, &|_| {}).await.unwrap();
            assert!(scrubbed.errors == 0 && scrubbed.written_bytes > 0, "{name}: {scrubbed:?}");
            engine.sync_all().await.unwrap();
            drop(engine);
            assert_is_sound(&rt, folder.path(), &model, &name).await;
        });
    }
}

//! Volumes: committed writes and discards, in records and in separate blocks, are present after a replay.

use bytes::Bytes;
use cenote_dataset::Value;
use cenote_engine::Engine;
use cenote_fs::{Volume, VolumeWriter, replay_logs};
use cenote_object::LiveObjset;
use cenote_runtime::Runtime;

use super::{DISK, NOW, create, export, reopen, reopen_to_write};
use crate::against_model::seed;
use crate::on_disk::{POOL, assert_zdb_is_content};
use crate::random::Random;
use crate::scratch::pattern;

const SIZE: u64 = 8 << 20;

pub async fn create_volume(engine: &Engine, name: &str, block_bytes: u32, throughput: bool) {
    let fill = move |live: LiveObjset| async move {
        VolumeWriter::create(live.clone(), &live.edit(), SIZE, block_bytes).await.unwrap();
        Ok(())
    };
    let settings = vec![
        ("volsize".to_owned(), Value::Number(SIZE)),
        ("volblocksize".to_owned(), Value::Number(block_bytes.into())),
        ("logbias".to_owned(), Value::Number(throughput.into())),
    ];
    cenote_tasks::create_volume(engine, name, settings, Box::new(move |live| Box::pin(fill(live))))
        .await
        .unwrap();
    let dataset = engine.dataset(name).await.unwrap();
    let volume = VolumeWriter::open(dataset.clone()).await.unwrap();
    let hold = engine.hold().await.unwrap();
    volume.write(&dataset.edit(&hold), 0, Bytes::from(vec![0; 512])).await.unwrap();
    drop(hold);
    // This starts its log, with a txg that covers all other changes so far.
    volume.commit().await.unwrap();
}

/// Writes, discards and clears at random, commits, and returns the expected content of the volume.
pub async fn work(engine: &Engine, name: &str, random: &mut Random) -> Vec<u8> {
    let dataset = engine.dataset(name).await.unwrap();
    let volume = VolumeWriter::open(dataset.clone()).await.unwrap();
    let mut model = vec![0; SIZE as usize];
    let block = volume.block_bytes() as usize;
    for _ in 0..5 {
        for step in 0..20 {
            let hold = engine.hold().await.unwrap();
            let edit = dataset.edit(&hold);
            let len = 1 + random.below([100, 5000, 300_000][step % 3]) as usize;
            let mut start = random.below(SIZE - 1) as usize;
            if step % 4 == 0 {
                start = start / block * block;
            }
            let range = start..(start + len).min(model.len());
            match random.below(6) {
                0 => {
                    volume.discard(&edit, range.start as u64..range.end as u64).await.unwrap();
                    let whole = range.start.next_multiple_of(block)..range.end / block * block;
                    if whole.start < whole.end {
                        model[whole].fill(0);
                    }
                }
                1 => {
                    volume.write_zeros(&edit, range.start as u64..range.end as u64).await.unwrap();
                    model[range].fill(0);
                }
                _ => {
                    let data = pattern(random.next(), range.len());
                    volume.write(&edit, range.start as u64, data.clone()).await.unwrap();
                    model[range].copy_from_slice(&data);
                }
            }
        }
        volume.commit().await.unwrap();
    }
    model
}

#[test]
fn volumes_are_replayed() {
    let rt = Runtime::real(Some(2));
    let mut random = Random(seed());
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &[DISK], 256 << 20).await;
        let volumes = [(4096, false), (8192, true), (128 << 10, false), (64 << 10, true)];
        for (block_bytes, throughput) in volumes {
            create_volume(&engine, &format!("{POOL}/{block_bytes}"), block_bytes, throughput).await;
        }
        let mut models = Vec::new();
        for (block_bytes, _) in volumes {
            let name = format!("{POOL}/{block_bytes}");
            models.push((name.clone(), work(&engine, &name, &mut random).await));
        }
        drop(engine);
        let mos = reopen(&rt, folder.path()).await;
        let mut replayed = 0;
        for (name, model) in &models {
            let objset = mos.dataset(name).await.unwrap().objset().await.unwrap();
            let log = objset.intent_log().await;
            let (volume, report) = Volume::open(objset).await.unwrap().replay(&log.records);
            replayed += report.applied;
            assert!(
                report.set_aside == 0,
                "{name}: {report:?}, {} synced, {} blocks",
                log.synced,
                log.blocks
            );
            assert!(volume.read(0, SIZE).await.unwrap() == *model, "{name} seen through its log");
        }
        assert!(replayed > 0);
        drop(mos);
        let engine = reopen_to_write(&rt, folder.path()).await;
        let reports = replay_logs(&engine, NOW).await.unwrap();
        assert!(reports.iter().all(|(_, report)| report.set_aside == 0), "{reports:?}");
        export(&engine).await;
        drop(engine);
        let mos = reopen(&rt, folder.path()).await;
        for (name, model) in &models {
            let volume =
                Volume::open(mos.dataset(name).await.unwrap().objset().await.unwrap()).await.unwrap();
            assert!(volume.read(0, SIZE).await.unwrap() == *model, "{name} after a replay");
        }
        assert_zdb_is_content(folder.path());
    });
}

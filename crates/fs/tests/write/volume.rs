//! Volumes compared with a model: an array of bytes.

use std::sync::Arc;
use std::time::Duration;

use cenote_device::{Delayed, Device, Latency, MemoryDevice};
use cenote_fs::{Refusal, VolumeWriter};
use cenote_runtime::{Runtime, SimConfig};
use cenote_testkit::golden;

use crate::intent_log::{DISK, create_on};
use crate::on_disk::POOL;
use crate::scratch::{ZVOL, empty, pattern};

#[test]
fn a_volume_is_an_array_of_bytes() {
    let pool = golden("single");
    let rt = Runtime::real(Some(2));
    let seed = rt.random_u64();
    println!("seed {seed}");
    for block_bytes in [4096_u32, 16 << 10, 128 << 10] {
        rt.block_on(async {
            let mos = crate::common::open_golden(&rt, &pool).await;
            let live = empty(&mos, ZVOL);
            let edit = live.edit();
            let size = 64 * u64::from(block_bytes);
            let volume = VolumeWriter::create(live.clone(), &edit, size, block_bytes).await.unwrap();
            let mut model = vec![0; size as usize];
            let mut random = crate::random::Random(seed ^ u64::from(block_bytes));
            for step in 0..300 {
                let len = 1 + random.below([100, 5000, 300_000][step % 3]) as usize;
                let start = random.below(model.len() as u64 - 1) as usize;
                let range = start..(start + len).min(model.len());
                let bytes = range.start as u64..range.end as u64;
                match random.below(6) {
                    0 => {
                        volume.discard(&edit, bytes).await.unwrap();
                        let block = block_bytes as usize;
                        let whole = range.start.next_multiple_of(block)..range.end / block * block;
                        if whole.start < whole.end {
                            model[whole].fill(0);
                        }
                    }
                    1 => {
                        volume.write_zeros(&edit, bytes).await.unwrap();
                        model[range].fill(0);
                    }
                    2 => {
                        let blocks = 1 + random.below(100);
                        volume.resize(&edit, blocks * u64::from(block_bytes)).await.unwrap();
                        model.resize((blocks * u64::from(block_bytes)) as usize, 0);
                    }
                    _ => {
                        let data = pattern(random.next(), range.len());
                        volume.write(&edit, bytes.start, data.clone()).await.unwrap();
                        model[range].copy_from_slice(&data);
                    }
                }
                if step % 20 == 19 {
                    let view = volume.view().await.unwrap();
                    assert_eq!(
                        (view.size_bytes(), view.block_bytes()),
                        (model.len() as u64, block_bytes.into())
                    );
                    assert!(view.read(0, model.len() as u64).await.unwrap() == model, "step {step}");
                }
            }
            let beyond = volume.write(&edit, volume.size_bytes(), pattern(1, 1)).await;
            assert_eq!(beyond.unwrap_err().refusal(), Some(Refusal::NoSpace));
        });
    }
}

#[test]
fn a_write_that_waits_behind_a_shrink_is_refused() {
    const SIZE: u64 = 1 << 20;
    Runtime::simulate(SimConfig::default(), |rt| async move {
        let latency = Latency { fixed: Duration::from_millis(1), ..Latency::default() };
        let slow: Arc<dyn Device> =
            Arc::new(Delayed::new(Arc::new(MemoryDevice::new("disk", 128 << 20)), latency, &rt));
        let engine = create_on(&rt, &[DISK], |_, _| slow.clone()).await;
        let fill: cenote_tasks::Fill = Box::new(|live| {
            Box::pin(async move {
                let edit = live.edit();
                VolumeWriter::create(live.clone(), &edit, SIZE, 8192).await.unwrap();
                Ok(())
            })
        });
        let settings = vec![("volsize".into(), cenote_dataset::Value::Number(SIZE))];
        let name = format!("{POOL}/v");
        cenote_tasks::create_volume(&engine, &name, settings, fill).await.unwrap();
        let volume = VolumeWriter::shared(&engine, &name).await.unwrap();
        let all = || pattern(3, SIZE as usize);
        {
            let _hold = engine.hold().await.unwrap();
            volume.write(&volume.live().edit(), 0, all()).await.unwrap();
        }
        engine.sync_all().await.unwrap();
        let _hold = engine.hold().await.unwrap();
        let edit = volume.live().edit();
        // The first has to read its block; the others wait for it, the shrink first.
        let part = volume.write(&edit, 100, pattern(1, 1));
        let shrink = volume.resize(&edit, SIZE / 2);
        let (part, shrink, late) = futures::join!(part, shrink, volume.write(&edit, 0, all()));
        part.unwrap();
        shrink.unwrap();
        assert_eq!(late.map_err(|e| e.refusal()), Err(Some(Refusal::NoSpace)));
        volume.resize(&edit, SIZE).await.unwrap();
        let beyond = volume.view().await.unwrap().read(SIZE / 2, SIZE / 2).await.unwrap();
        assert!(beyond.iter().all(|byte| *byte == 0), "nothing was written beyond the new end");
    });
}

//! Volumes compared with a model: an array of bytes.

use cenote_fs::{Refusal, VolumeWriter};
use cenote_runtime::Runtime;
use cenote_testkit::golden;

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

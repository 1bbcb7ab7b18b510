//! Metadata with an address before it is on disk.

use crate::lab::{FIRST_TXG, Lab, Layout, noise, props, simulate};
use crate::round_trip::LAYOUTS;
use bytes::Bytes;
use cenote_device::{Fault, Op};
use cenote_format::blkptr::Blkptr;
use cenote_format::units::VdevId;
use cenote_pool::write::Prepared;
use cenote_pool::{Pool, ReadContext, WriteProps, Written};
use cenote_runtime::Rng;

async fn later(lab: &Lab, data: &Bytes, props: &WriteProps) -> Written {
    later_through(&lab.pool, lab, data, props).await
}

async fn later_through(pool: &Pool, lab: &Lab, data: &Bytes, props: &WriteProps) -> Written {
    pool.txg_writes().later(&lab.space, data.clone(), props, FIRST_TXG).await.unwrap()
}

async fn assert_reads(pool: &Pool, blocks: &[(Blkptr, Bytes)], when: &str) {
    let context = ReadContext::default();
    for (bp, data) in blocks {
        assert_eq!(&pool.read(bp, &context).await.unwrap(), data, "{when}");
    }
    let many = pool.read_many(blocks.iter().map(|(bp, _)| (*bp, context.clone())).collect()).await;
    for (read, (_, data)) in many.into_iter().zip(blocks) {
        assert_eq!(&read.unwrap(), data, "{when}, with others");
    }
}

fn written_bytes(lab: &Lab) -> u64 {
    lab.pool.counters().moved()[1].bytes
}

#[test]
fn blocks_are_read_before_they_are_written_and_the_newest_version_is_written_once() {
    for (seed, layout) in (700..).zip(LAYOUTS) {
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let lab = Lab::of(&rt, layout, 12).await;
            let before = written_bytes(&lab);
            let mut blocks = Vec::new();
            for sectors in [1, 2, 8, 9, 33, 256] {
                let data = noise(&mut rng, sectors * 512);
                blocks.push((later(&lab, &data, &props()).await.bp, data));
            }
            assert_eq!(written_bytes(&lab), before, "nothing is written yet");
            assert_reads(&lab.pool, &blocks, "before it is written").await;
            for pass in 2..5 {
                for (bp, data) in &mut blocks {
                    let new = noise(&mut rng, data.len());
                    let again = WriteProps { previous: *bp, sync_pass: pass, ..props() };
                    let written = later(&lab, &new, &again).await;
                    assert!(written.keeps_place, "{written:?}");
                    (*bp, *data) = (written.bp, new);
                }
            }
            assert_eq!(written_bytes(&lab), before, "nor in later passes");
            assert_reads(&lab.pool, &blocks, "in a later pass").await;
            lab.pool.txg_writes().finish(FIRST_TXG).await.unwrap();
            let written = written_bytes(&lab) - before;
            for (_, data) in &blocks {
                lab.write(data, &props(), FIRST_TXG).await;
            }
            assert_eq!(written_bytes(&lab) - before, 2 * written, "{layout:?}: as much as one version takes");
            assert_reads(&lab.pool, &blocks, "after it is written").await;
            assert_reads(&lab.without(&[]).await, &blocks, "by another").await;
            lab.pool.txg_writes().finish(FIRST_TXG).await.unwrap();
            assert_eq!(written_bytes(&lab) - before, 2 * written, "it is written again");
        });
    }
}

#[test]
fn a_block_that_is_kept_takes_no_more_memory_than_counts() {
    simulate(719, async |rt| {
        let lab = Lab::of(&rt, Layout::Mirror(2), 12).await;
        // As an indirect block with few pointers.
        let data = Bytes::from([vec![7; 300], vec![0; (128 << 10) - 300]].concat());
        let prepared = lab.pool.txg_writes().prepare(data, &props(), FIRST_TXG).await.unwrap();
        let Prepared::Block { stored, .. } = prepared else { panic!("{prepared:?}") };
        let len = stored.len();
        let room = stored.try_into_mut().unwrap().capacity();
        assert!(len == 4096 && room < 2 * len, "{room} bytes for {len}");
    });
}

#[test]
fn much_metadata_is_written_on_its_way() {
    simulate(720, async |rt| {
        let lab = Lab::of(&rt, Layout::Mirror(2), 12).await;
        let (mut rng, mut blocks) = (Rng::new(720), Vec::new());
        for _ in 0..35 {
            let data = noise(&mut rng, 1 << 20);
            blocks.push((later(&lab, &data, &props()).await.bp, data));
        }
        let written = written_bytes(&lab);
        assert!(written > 2 * (32 << 20), "{written} bytes are written, the rest is kept");
        assert_reads(&lab.pool, &blocks, "written or not").await;
        lab.pool.txg_writes().finish(FIRST_TXG).await.unwrap();
        assert_reads(&lab.without(&[]).await, &blocks, "by another").await;
    });
}

#[test]
fn a_copy_that_cannot_be_written_is_left_behind_and_new_ones_go_elsewhere() {
    simulate(730, async |rt| {
        let lab = Lab::new(&rt, &[Layout::Disk, Layout::Disk, Layout::Disk], 12).await;
        let (mut rng, two) = (Rng::new(730), WriteProps { copies: 2, ..props() });
        let mut blocks = Vec::new();
        for _ in 0..30 {
            let data = noise(&mut rng, 8 << 10);
            blocks.push((later(&lab, &data, &two).await.bp, data));
        }
        let lost = *lab.disks.keys().next().unwrap();
        lab.disks[&lost].faulty.add(Fault::error(Op::Write));
        lab.pool.txg_writes().finish(FIRST_TXG).await.unwrap();
        assert!(lab.pool.lacking().all().contains_key(&lost), "{:?}", lab.pool.lacking().all());
        assert_reads(&lab.without(&[lost]).await, &blocks, "from the other copy").await;

        let pool = lab.without(&[lost]).await;
        for _ in 0..30 {
            let bp = later_through(&pool, &lab, &noise(&mut rng, 8 << 10), &two).await.bp;
            assert!(bp.dvas().all(|dva| dva.vdev != VdevId(0)), "{bp:?}");
        }
        pool.txg_writes().finish(FIRST_TXG).await.unwrap();
    });
}

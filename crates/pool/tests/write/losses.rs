//! Devices missing, or failing during writes.

use crate::lab::{Disk, FIRST_TXG, Lab, Layout, noise, props, simulate};
use crate::round_trip::{LAYOUTS, check_all};
use bytes::Bytes;
use cenote_device::{Fault, Op};
use cenote_format::blkptr::Blkptr;
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_pool::{Pool, PoolError, ReadContext, WriteProps};
use cenote_runtime::Rng;
use std::collections::BTreeMap;

async fn write_some(lab: &Lab, seed: u64, txg: Txg) -> Vec<(Blkptr, Bytes)> {
    let mut rng = Rng::new(seed);
    let mut written = Vec::new();
    for sectors in [1, 2, 3, 5, 8, 13, 64, 255, 256] {
        let data = noise(&mut rng, sectors * 512);
        written.push((lab.write(&data, &props(), txg).await.bp, data));
    }
    written
}

fn some_leaves(lab: &Lab, rng: &mut Rng, count: usize) -> Vec<Guid> {
    some_of(lab.disks.keys().copied().collect(), rng, count)
}

fn some_of(mut leaves: Vec<Guid>, rng: &mut Rng, count: usize) -> Vec<Guid> {
    (0..count).map(|_| leaves.swap_remove(rng.below(leaves.len() as u64) as usize)).collect()
}

/// Bytes requested from devices by a read.
async fn asked_for(lab: &Lab, read: impl AsyncFnOnce(&Pool)) -> u64 {
    let before = lab.pool.counters().moved()[0].bytes;
    read(&lab.pool).await;
    lab.pool.counters().moved()[0].bytes - before
}

#[test]
fn what_a_device_cannot_read_costs_no_second_read_of_the_rest() {
    const BLOCK_BYTES: u64 = 96 << 10;
    // The layout, and the bytes of one column of the block.
    let layouts = [
        (Layout::Mirror(3), BLOCK_BYTES),
        (Layout::Raidz(1, 4), BLOCK_BYTES / 3),
        (Layout::Raidz(2, 4), BLOCK_BYTES / 2),
        (Layout::Raidz(3, 6), BLOCK_BYTES / 3),
    ];
    for (seed, (layout, column)) in (300..).zip(layouts) {
        simulate(seed, async |rt| {
            let lab = Lab::of(&rt, layout, 9).await;
            let data = noise(&mut Rng::new(seed), BLOCK_BYTES as usize);
            let bp = lab.write(&data, &props(), FIRST_TXG).await.bp;
            for disk in lab.disks.values() {
                disk.faulty.add(Fault::error(Op::Read));
                let context = ReadContext::default();
                let alone = asked_for(&lab, async |pool| {
                    assert_eq!(pool.read(&bp, &context).await.unwrap(), data);
                })
                .await;
                assert!(alone <= BLOCK_BYTES + column, "{layout:?}: {alone}");
                let many = asked_for(&lab, async |pool| {
                    let read = pool.read_many(vec![(bp, context.clone())]).await.remove(0);
                    assert_eq!(read.unwrap(), data);
                })
                .await;
                // A failed extent may be a neighbour's fault: the range is read once more.
                assert!(many <= BLOCK_BYTES + 2 * column, "{layout:?}, with others: {many}");
                disk.faulty.heal();
            }
        });
    }
}

#[test]
fn what_was_written_survives_the_loss_of_as_many_disks_as_there_is_parity() {
    for (seed, layout) in (200..).zip(LAYOUTS) {
        simulate(seed, async |rt| {
            let lab = Lab::of(&rt, layout, 9).await;
            let written = write_some(&lab, seed, FIRST_TXG).await;
            let mut rng = Rng::new(seed);
            for _ in 0..5 {
                let lost = some_leaves(&lab, &mut rng, layout.tolerance());
                let pool = lab.without(&lost).await;
                for (bp, data) in &written {
                    assert_eq!(
                        pool.read(bp, &ReadContext::default()).await.unwrap(),
                        data,
                        "{layout:?} {lost:?}"
                    );
                }
            }
        });
    }
}

/// Neighbouring blocks of a dRAID are all in one redundancy group, which does not include all disks.
fn check_missed(layout: Layout, missed: &BTreeMap<Guid, Vec<(Txg, Txg)>>, lost: &[Guid]) {
    assert!(missed.keys().all(|guid| lost.contains(guid)));
    assert!(
        missed.len() == lost.len() || matches!(layout, Layout::Draid(..)),
        "{layout:?} {missed:?} {lost:?}"
    );
}

#[test]
fn disks_that_fail_are_blamed_and_what_they_missed_is_remembered() {
    for (seed, layout) in (220..).zip(LAYOUTS) {
        simulate(seed, async |rt| {
            let lab = Lab::of(&rt, layout, 9).await;
            let bad = some_leaves(&lab, &mut Rng::new(seed), layout.tolerance());
            for guid in &bad {
                lab.disks[guid].faulty.add(Fault::error(Op::Write));
            }
            let mut written = Vec::new();
            for txg in [Txg(4), Txg(5), Txg(7)] {
                written.extend(write_some(&lab, seed + txg.0, txg).await);
            }
            for (bp, data) in &written {
                assert_eq!(lab.pool.read(bp, &ReadContext::default()).await.unwrap(), data, "{layout:?}");
            }
            let missed = lab.pool.lacking().all();
            check_missed(layout, &missed, &bad);
            let runs = [(Txg(4), Txg(5)), (Txg(7), Txg(7))];
            assert!(missed.values().all(|missed| missed[..] == runs), "{missed:?}");
            for (guid, errors) in lab.pool.counters().errors() {
                assert_eq!(errors.write > 0, missed.contains_key(&guid));
            }
        });
    }
}

#[test]
fn absent_disks_miss_what_is_written_without_them() {
    for (seed, layout) in (240..).zip(LAYOUTS) {
        simulate(seed, async |rt| {
            let mut lab = Lab::of(&rt, layout, 12).await;
            let lost = some_leaves(&lab, &mut Rng::new(seed), layout.tolerance());
            lab.pool = lab.without(&lost).await;
            let written = write_some(&lab, seed, Txg(6)).await;
            check_all(&lab, &written, &ReadContext::default()).await;
            let missed = lab.pool.lacking().all();
            check_missed(layout, &missed, &lost);
            assert!(missed.values().all(|runs| runs[..] == [(Txg(6), Txg(6))]), "{missed:?}");
        });
    }
}

#[test]
fn a_block_goes_elsewhere_if_a_vdev_fails() {
    simulate(260, async |rt| {
        let layouts = [Layout::Disk, Layout::Raidz(1, 3), Layout::Disk];
        let lab = Lab::new(&rt, &layouts, 9).await;
        // The first vdev fails completely, the second beyond its parity.
        for guid in [1000, 1100, 1101] {
            lab.disks[&Guid(guid)].faulty.add(Fault::error(Op::Write));
        }
        let mut written = Vec::new();
        let mut rng = Rng::new(260);
        for copies in [1, 2, 3] {
            let data = noise(&mut rng, 64 << 10);
            let bp = lab.write(&data, &WriteProps { copies, ..props() }, FIRST_TXG).await.bp;
            assert!(bp.dvas().count() == usize::from(copies) && bp.dvas().all(|dva| dva.vdev == VdevId(2)));
            written.push((bp, data));
        }
        check_all(&lab, &written, &ReadContext::default()).await;
        // Addresses of failed attempts are free again.
        assert_eq!(lab.allocated_bytes(), written.iter().map(|(bp, _)| bp.asize().0).sum::<u64>());

        lab.disks[&Guid(1200)].faulty.add(Fault::error(Op::Write));
        let result = lab.pool.write(&lab.space, noise(&mut rng, 4096), &props(), FIRST_TXG).await;
        assert!(matches!(result, Err(PoolError::NotWritten { .. })), "{result:?}");
        assert_eq!(lab.allocated_bytes(), written.iter().map(|(bp, _)| bp.asize().0).sum::<u64>());
    });
}

#[test]
fn a_flush_fails_only_if_a_vdev_may_lack_blocks() {
    for (seed, layout) in (280..).zip(LAYOUTS) {
        simulate(seed, async |rt| {
            let lab = Lab::of(&rt, layout, 9).await;
            let mut rng = Rng::new(seed);
            let data = noise(&mut rng, 128 << 10);
            let write = async || lab.write(&data, &props(), FIRST_TXG).await;
            write().await;
            // Only leaves with unflushed writes are flushed.
            let has_written = |disk: &Disk| disk.memory.live_image() != disk.memory.durable_image();
            let written = lab.disks.iter().filter(|(_, disk)| has_written(disk)).map(|(guid, _)| *guid);
            let bad = some_of(written.collect(), &mut rng, layout.tolerance() + 1);
            for (failed, guid) in bad.iter().enumerate() {
                assert!(lab.pool.flush(Txg(4)).await.is_ok(), "{failed} of {layout:?}");
                lab.disks[guid].faulty.add(Fault::error(Op::Flush));
                write().await;
            }
            for asked in ["first", "again"] {
                // The second time, devices have nothing left to flush.
                let flushed = lab.pool.flush(FIRST_TXG).await;
                assert!(matches!(flushed, Err(PoolError::Unavailable { .. })), "{layout:?}, {asked}");
                lab.disks.values().for_each(|disk| disk.faulty.heal());
            }
            let missed = lab.pool.lacking().all();
            assert_eq!(missed.len(), bad.len());
            assert!(missed.values().all(|runs| runs[..] == [(FIRST_TXG, FIRST_TXG)]), "{missed:?}");
            assert!(lab.pool.flush(Txg(FIRST_TXG.0 + 1)).await.is_ok(), "it has lost nothing");
        });
    }
}

//! Mismatches: damage blames a disk; the end of a log and possible reuse do not.

use crate::lab::{FIRST_TXG, Lab, Layout, noise, props, simulate};
use bytes::Bytes;
use cenote_device::Device;
use cenote_format::blkptr::Blkptr;
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::Txg;
use cenote_pool::{PoolError, ReadContext, VerifyItem, Zbookmark};
use cenote_runtime::Rng;

const BLOCK_BYTES: usize = 64 << 10;
const LAYOUTS: [Layout; 3] = [Layout::Disk, Layout::Mirror(2), Layout::Raidz(1, 4)];

/// A block overwritten with other data, on all disks but the last `but`.
async fn overwritten(lab: &Lab, but: usize) -> Blkptr {
    let bp = lab.write(&noise(&mut Rng::new(1), BLOCK_BYTES), &props(), FIRST_TXG).await.bp;
    for disk in lab.disks.values().take(lab.disks.len() - but) {
        let end = disk.memory.size_bytes() - VDEV_LABEL_START_SIZE;
        for at in (VDEV_LABEL_START_SIZE..end).step_by(BLOCK_BYTES) {
            let other = Bytes::from(vec![0xb5; BLOCK_BYTES]);
            disk.memory.write_at(at, other).await.unwrap();
        }
    }
    bp
}

/// Advances the pool's last synced txg.
fn sync_up_to(lab: &Lab, txg: u64) {
    for txg in FIRST_TXG.0 + 1..=txg {
        lab.space.take_changes(Txg(txg));
        lab.space.finish(Txg(txg));
    }
}

#[test]
fn a_block_that_may_have_been_reused_is_no_damage() {
    for (seed, layout) in (400..).zip(LAYOUTS) {
        simulate(seed, async |rt| {
            let lab = Lab::of(&rt, layout, 12).await;
            let bp = overwritten(&lab, 0).await;
            let pool = &lab.pool;
            pool.begin_to_change(&lab.space);
            let (view, ctx) = (pool.keeping(lab.space.keep_freed(false)), ReadContext::default());
            lab.space.take_changes(FIRST_TXG);
            sync_up_to(&lab, FIRST_TXG.0 + 4);
            lab.space.give_up_kept();
            for old in [pool, &view] {
                assert!(!old.has_whole_tree());
                assert!(matches!(old.read(&bp, &ctx).await, Err(PoolError::Reused { .. })), "{layout:?}");
                let many = old.read_many(vec![(bp, ctx.clone())]).await.remove(0);
                assert!(matches!(many, Err(PoolError::Reused { .. })), "{layout:?}");
                let item = VerifyItem { bp, place: Zbookmark::default() };
                assert!(old.verify_many(vec![item]).await.is_empty(), "{layout:?}");
            }
            assert_eq!(lab.checksum_errors(), 0, "{layout:?}: a disk was blamed");

            // Its tree is whole, so the mismatch is damage.
            let whole = pool.keeping(lab.space.keep_freed(false));
            assert!(matches!(whole.read(&bp, &ctx).await, Err(PoolError::Checksum { .. })), "{layout:?}");
            assert!(lab.checksum_errors() > 0, "{layout:?}");
        });
    }
}

#[test]
fn a_view_of_the_last_two_txgs_tells_damage_without_keeping_anything() {
    simulate(410, async |rt| {
        let lab = Lab::of(&rt, Layout::Mirror(2), 12).await;
        let bp = overwritten(&lab, 1).await;
        let (pool, ctx) = (&lab.pool, ReadContext::default());
        pool.begin_to_change(&lab.space);
        lab.space.take_changes(FIRST_TXG);
        sync_up_to(&lab, FIRST_TXG.0 + 4);
        assert!(!pool.has_whole_tree());
        pool.for_class(cenote_pool::IoClass::Scrub).read(&bp, &ctx).await.unwrap();
        assert_eq!(lab.checksum_errors(), 0, "the old view blames nobody");
        let recent =
            pool.at(&cenote_format::uberblock::Uberblock { txg: Txg(FIRST_TXG.0 + 2), ..*pool.uberblock() });
        while lab.checksum_errors() == 0 {
            recent.verify_many(vec![VerifyItem { bp, place: Zbookmark::default() }]).await;
        }
    });
}

#[test]
fn a_log_that_was_claimed_with_a_block_has_it_or_is_damaged() {
    simulate(420, async |rt| {
        let lab = Lab::of(&rt, Layout::Mirror(2), 12).await;
        let bp = overwritten(&lab, 0).await;
        let content = |is_claimed| ReadContext::of_log(Zbookmark::default(), is_claimed);
        assert!(lab.pool.as_stored().read(&bp, &content(false)).await.is_err());
        assert_eq!(lab.checksum_errors(), 0, "what a torn log names was promised to nobody");
        assert!(lab.pool.as_stored().read(&bp, &content(true)).await.is_err());
        assert_eq!(lab.checksum_errors(), 2);
    });
    simulate(421, async |rt| {
        let lab = Lab::of(&rt, Layout::Mirror(2), 12).await;
        let bp = overwritten(&lab, 1).await;
        for is_claimed in [false, true] {
            lab.pool
                .as_stored()
                .read(&bp, &ReadContext::of_log(Zbookmark::default(), is_claimed))
                .await
                .unwrap();
        }
        assert_eq!(lab.checksum_errors(), 0, "it may not have come to one of the disks");
    });
}

#[test]
fn a_wrong_filler_behind_a_small_block_blames_the_disk_that_has_it() {
    for (seed, layout) in (430..).zip([Layout::Raidz(1, 4), Layout::Raidz(2, 5), Layout::Raidz(3, 6)]) {
        simulate(seed, async |rt| {
            // A sector has 4096 bytes; the checksum covers 512 of them.
            let lab = Lab::of(&rt, layout, 12).await;
            let data = noise(&mut Rng::new(seed), 512);
            let bp = lab.write(&data, &props(), FIRST_TXG).await.bp;
            let mut tried = 0;
            for (guid, disk) in &lab.disks {
                let places = (0..disk.memory.size_bytes()).step_by(4096);
                let image = disk.memory.live_image();
                let Some(at) = places.into_iter().find(|at| image[*at as usize..][..512] == data[..]) else {
                    continue;
                };
                tried += 1;
                disk.memory.write_at(at + 3000, Bytes::from_static(b"wrong")).await.unwrap();
                let findings =
                    lab.pool.verify_many(vec![VerifyItem { bp, place: Zbookmark::default() }]).await;
                let accused: Vec<_> = findings.iter().map(|finding| finding.leaf).collect();
                assert_eq!(accused, [Some(*guid)], "{layout:?}");
                let errors = lab.pool.counters().errors();
                let blamed = errors.iter().filter(|(_, errors)| errors.checksum > 0).map(|(leaf, _)| leaf);
                assert_eq!(blamed.collect::<Vec<_>>(), [guid], "{layout:?}");
                lab.pool.counters().clear(None);
                disk.memory.write_at(at + 3000, Bytes::from_static(&[0; 5])).await.unwrap();
            }
            assert!(tried > 1, "data and parity of one sector are equal");
        });
    }
}

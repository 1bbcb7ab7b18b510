//! Gang blocks, where no free range is long enough.

use crate::lab::{FIRST_TXG, Lab, Layout, noise, props, simulate};
use crate::round_trip::check_all;
use bytes::Bytes;
use cenote_codec::crypto::{Cipher, MasterKey};
use cenote_device::{Fault, Op};
use cenote_format::blkptr::{Blkptr, Dva};
use cenote_format::units::{Guid, Psize, Txg, VdevId};
use cenote_pool::alloc::{AllocClass, AllocRequest};
use cenote_pool::{DatasetKey, PoolError, ReadContext, WriteProps};
use cenote_runtime::Rng;
use std::sync::Arc;

/// Fills the pool and frees every `every`-th range of at most `len` bytes.
fn fragment(lab: &Lab, len: u64, every: usize) {
    let request = AllocRequest::new(AllocClass::Normal, Psize(len), 1, FIRST_TXG);
    let mut taken: Vec<Dva> = Vec::new();
    while let Ok(dvas) = lab.space.allocate(&request) {
        taken.extend(dvas);
    }
    taken.iter().step_by(every).for_each(|dva| lab.space.unallocate(dva, FIRST_TXG).unwrap());
}

/// Levels of gangs below a pointer.
async fn depth(lab: &Lab, bp: &Blkptr) -> u32 {
    if !bp.is_gang() {
        return 0;
    }
    let header = lab.pool.as_stored().gang_header(bp, &ReadContext::default()).await.unwrap();
    let mut deepest = 0;
    for piece in header.pieces() {
        deepest = deepest.max(Box::pin(depth(lab, piece)).await);
    }
    deepest + 1
}

#[test]
fn a_block_that_fits_nowhere_is_written_in_pieces_and_again_in_place() {
    let layouts = [Layout::Disk, Layout::Mirror(2), Layout::Raidz(1, 4), Layout::Draid(1, 2, 7, 1)];
    let both = layouts.into_iter().flat_map(|layout| [(layout, false), (layout, true)]);
    for (seed, (layout, large_gang_headers)) in (160..).zip(both) {
        simulate(seed, async |rt| {
            let props = || WriteProps { large_gang_headers, ..props() };
            let lab = Lab::of(&rt, layout, 12).await;
            fragment(&lab, 32 << 10, 4);
            let mut rng = Rng::new(seed);
            let data = noise(&mut rng, 256 << 10);
            let before = lab.allocated_bytes();
            let bp = lab.write(&data, &props(), FIRST_TXG).await.bp;
            assert!(bp.is_gang() && bp.dvas().count() == 2, "{bp:?}");
            let header = lab.pool.as_stored().gang_header(&bp, &ReadContext::default()).await.unwrap();
            let sector = if matches!(layout, Layout::Draid(..)) { 8192 } else { 4096 };
            if large_gang_headers {
                // All pieces are in one header, which fills its allocated space.
                assert_eq!((header.header_bytes(), depth(&lab, &bp).await), (sector, 1));
            } else {
                assert!(header.header_bytes() == 512 && depth(&lab, &bp).await >= 2);
            }
            assert_eq!(lab.pool.txg_writes().take_cramped(), !large_gang_headers, "{layout:?}");
            check_all(&lab, &[(bp, data)], &ReadContext::default()).await;

            // The first address counts all headers and pieces, the second only the headers' second copies.
            let [first, second] = bp.dvas().collect::<Vec<_>>()[..] else { panic!("{bp:?}") };
            assert!(first.asize.0 >= 256 << 10 && second.asize.0 < first.asize.0 / 4);
            assert!(lab.allocated_bytes() - before >= first.asize.0 + second.asize.0);

            let taken = lab.allocated_bytes();
            let data: Bytes = noise(&mut rng, 256 << 10);
            let again = WriteProps { previous: bp, sync_pass: 3, ..props() };
            let written = lab.write(&data, &again, FIRST_TXG).await;
            assert!(written.keeps_place && lab.allocated_bytes() == taken);
            check_all(&lab, &[(written.bp, data)], &ReadContext::default()).await;
        });
    }
}

#[test]
fn encrypted_gangs_with_copies() {
    simulate(71, async |rt| {
        let lab = Lab::new(&rt, &[Layout::Disk, Layout::Mirror(2)], 9).await;
        fragment(&lab, 8 << 10, 3);
        let master = MasterKey::new(Cipher::Aes256Gcm, 7, &[3; 32], &[4; 64]);
        let key = Some(Arc::new(DatasetKey::new(master)));
        let ctx = ReadContext::default().with_key(key.clone());
        let mut rng = Rng::new(71);
        for (copies, key, expected) in [(1, key.clone(), 2), (3, key, 2), (2, None, 2), (3, None, 3)] {
            let data = noise(&mut rng, 64 << 10);
            let bp = lab.write(&data, &WriteProps { copies, key, ..props() }, FIRST_TXG).await.bp;
            assert!(bp.is_gang() && bp.dvas().count() == expected, "{bp:?}");
            check_all(&lab, &[(bp, data)], &ctx).await;
        }
    });
}

#[test]
fn pieces_go_elsewhere_if_a_vdev_fails() {
    simulate(72, async |rt| {
        let lab = Lab::new(&rt, &[Layout::Disk, Layout::Disk], 9).await;
        fragment(&lab, 8 << 10, 3);
        let before = lab.allocated_bytes();
        lab.disks[&Guid(1000)].faulty.add(Fault::error(Op::Write));
        let data = noise(&mut Rng::new(72), 64 << 10);
        let bp = lab.write(&data, &props(), FIRST_TXG).await.bp;
        assert!(bp.is_gang() && bp.dvas().all(|dva| dva.vdev == VdevId(1)));
        check_all(&lab, &[(bp, data.clone())], &ReadContext::default()).await;
        assert_eq!(lab.allocated_bytes() - before, bp.asize().0);

        lab.disks[&Guid(1100)].faulty.add(Fault::error(Op::Write));
        let result = lab.pool.write(&lab.space, data, &props(), FIRST_TXG).await;
        assert!(matches!(result, Err(PoolError::NotWritten { .. })), "{result:?}");
        assert_eq!(lab.allocated_bytes() - before, bp.asize().0);
    });
}

#[test]
fn a_full_pool_says_so_and_loses_nothing() {
    simulate(70, async |rt| {
        let lab = Lab::of(&rt, Layout::Mirror(2), 9).await;
        fragment(&lab, 512, 100_000);
        let taken = lab.allocated_bytes();
        let data = noise(&mut Rng::new(70), 128 << 10);
        let result = lab.pool.write(&lab.space, data, &props(), Txg(4)).await;
        assert!(matches!(result, Err(PoolError::NoSpace { .. })), "{result:?}");
        assert_eq!(lab.allocated_bytes(), taken);
    });
}

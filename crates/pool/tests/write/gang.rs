//! Blocks in pieces: where no free range is long enough.

use crate::lab::{FIRST_TXG, Lab, Layout, noise, props, simulate};
use crate::round_trip::check_all;
use bytes::Bytes;
use cenote_format::blkptr::{Blkptr, Dva};
use cenote_format::units::{Psize, Txg};
use cenote_pool::alloc::{AllocClass, AllocRequest};
use cenote_pool::{PoolError, ReadContext, WriteProps};
use cenote_runtime::Rng;

/// Fills the pool up and frees ranges of at most `len` bytes here and there.
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
    let header = lab.pool.read_gang_header(bp, &ReadContext::default()).await.unwrap();
    let mut deepest = 0;
    for piece in header.pieces.iter().filter(|piece| !piece.is_hole()) {
        deepest = deepest.max(Box::pin(depth(lab, piece)).await);
    }
    deepest + 1
}

#[test]
fn a_block_that_fits_nowhere_is_written_in_pieces_and_again_in_place() {
    let layouts = [Layout::Disk, Layout::Mirror(2), Layout::Raidz(1, 4), Layout::Draid(1, 2, 7, 1)];
    for (seed, layout) in (60..).zip(layouts) {
        simulate(seed, async |rt| {
            let lab = Lab::of(&rt, layout, 12).await;
            fragment(&lab, 32 << 10, 4);
            let mut rng = Rng::new(seed);
            let data = noise(&mut rng, 256 << 10);
            let before = lab.allocated_bytes();
            let bp = lab.write(&data, &props(), FIRST_TXG).await.bp;
            assert!(bp.is_gang() && bp.dvas().count() == 2, "{bp:?}");
            assert!(depth(&lab, &bp).await >= 2);
            check_all(&lab, &[(bp, data)], &ReadContext::default()).await;

            // The first address counts all headers and pieces, the second but the headers' second copies.
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

//! Claims, borrows and frees are in whole units on every layout.

use super::*;
use cenote_runtime::Rng;

/// Vdevs with 16 metaslabs that need not begin or end at a unit.
fn layouts() -> Vec<VdevConfig> {
    let shape = |data, groups, spares| Some(DraidConfig { data, groups, spares, failure_groups: 1 });
    let of_draid = |parity, children, draid| VdevConfig {
        kind: VdevKind::Draid,
        draid,
        ..raidz(0, parity, children, 16)
    };
    let layouts = [
        disk(0, VdevClass::Normal, 16),
        raidz(0, 1, 3, 16),
        raidz(0, 3, 7, 16),
        of_draid(1, 5, shape(2, 5, 0)),
        of_draid(1, 9, shape(2, 8, 1)),
        of_draid(2, 11, shape(5, 10, 1)),
        of_draid(3, 14, shape(8, 13, 1)),
    ];
    let with_ashift = |layout: &VdevConfig| {
        let layout = layout.clone();
        [9, 12, 13, 16].map(move |ashift| {
            // A block of 128 KiB fits several times in a metaslab.
            let metaslab_shift = 22;
            VdevConfig { ashift, metaslab_shift, asize_bytes: 16 << metaslab_shift, ..layout.clone() }
        })
    };
    layouts.iter().flat_map(with_ashift).collect()
}

#[test]
fn space_is_borrowed_and_given_back_in_whole_units() {
    for (seed, config) in (0..).zip(layouts()) {
        let (allocator, unit, id) =
            (Arc::new(pool(std::slice::from_ref(&config))), unit_bytes(&config), VdevId(0));
        let before = allocator.vdev_space(id).unwrap();
        let (mut rng, mut txg) = (Rng::new(seed), 1);
        let (mut new, mut old, mut borrowed) = (Vec::<Dva>::new(), Vec::<Dva>::new(), Vec::new());
        allocator.set_trims(true);
        for step in 0..600 {
            let place = format!("seed {seed} {:?} ashift {} step {step}", config.kind, config.ashift);
            // Sizes and offsets as initialize and trim use them: any metaslab, powers of two.
            let (metaslab, most_bytes) = (rng.below(16), 512 << rng.below(13));
            match rng.below(10) {
                0..4 => {
                    let psize = Psize((1 + rng.below(256)) << 9);
                    let ask = AllocRequest { txg: Txg(txg), ..request(AllocClass::Normal, psize.0, 1) };
                    new.extend(allocator.allocate(&ask).into_iter().flatten());
                }
                4 if !old.is_empty() => {
                    let dva = old.swap_remove(rng.below(old.len() as u64) as usize);
                    allocator.free(&dva, PhysicalBirth(1), Txg(txg)).expect(&place);
                }
                5 if !new.is_empty() => {
                    let dva = new.swap_remove(rng.below(new.len() as u64) as usize);
                    let behind = allocator.claim_behind(&dva, Psize(most_bytes), Txg(txg));
                    [Some(dva), behind].into_iter().flatten().for_each(|dva| {
                        allocator.unallocate(&dva, Txg(txg)).expect(&place);
                    });
                }
                6 => {
                    let from = (metaslab << 22) + rng.below(1 << 22);
                    borrowed.push(allocator.borrow_free(id, metaslab, from, most_bytes));
                }
                7 => borrowed.push(allocator.borrow_untrimmed(id, metaslab, most_bytes)),
                8 if !borrowed.is_empty() => {
                    borrowed.swap_remove(rng.below(borrowed.len() as u64) as usize);
                }
                _ => {
                    sync(&allocator, txg);
                    txg += 1;
                    old.append(&mut new);
                }
            }
            let lent: Vec<(u64, u64)> = borrowed.iter().flat_map(|one| one.ranges().to_vec()).collect();
            for &(start, end) in &lent {
                assert!(start < end && start % unit == 0 && end % unit == 0, "{place}: {start} to {end}");
            }
            let taken = new.iter().chain(&old).map(|dva| (dva.offset_bytes, dva.offset_bytes + dva.asize.0));
            let mut all = Ranges::default();
            for (start, end) in taken.chain(lent) {
                assert_eq!(all.insert(start, end - start), None, "{place}: taken twice");
                assert!(start % unit == 0, "{place}: {start} is askew");
            }
        }
        drop(borrowed);
        sync(&allocator, txg);
        let all = old.into_iter().chain(new);
        all.for_each(|dva| allocator.free(&dva, PhysicalBirth(1), Txg(txg + 1)).unwrap());
        (1..6).for_each(|after| _ = sync(&allocator, txg + after));
        let after = allocator.vdev_space(id).unwrap();
        assert_eq!(
            (after.allocated_bytes, after.largest_bytes),
            (before.allocated_bytes, before.largest_bytes)
        );
    }
}

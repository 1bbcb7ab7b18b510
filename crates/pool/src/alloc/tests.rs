//! The allocator on small pools of every layout. `model` compares random runs with a simple model.

use super::*;
use crate::config::{DraidConfig, VdevKind};
use cenote_format::units::{Asize, Guid, PhysicalBirth};

mod model;
mod units;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A vdev of 1 MiB metaslabs with sectors of 4 KiB.
pub(super) fn disk(id: u64, class: VdevClass, metaslabs: u64) -> VdevConfig {
    let mut config = VdevConfig::new(VdevKind::Disk, id, Guid(id + 1));
    (config.class, config.ashift, config.metaslab_shift) = (class, 12, 20);
    config.asize_bytes = metaslabs << config.metaslab_shift;
    config
}

fn raidz(id: u64, parity: usize, width: u64, metaslabs: u64) -> VdevConfig {
    let children =
        (0..width).map(|child| VdevConfig::new(VdevKind::Disk, child, Guid(child + 100))).collect();
    VdevConfig { kind: VdevKind::Raidz, parity, children, ..disk(id, VdevClass::Normal, metaslabs) }
}

/// Two data and one parity column: only the first metaslab begins at a row.
fn draid(id: u64, metaslabs: u64) -> VdevConfig {
    let shape = DraidConfig { data: 2, groups: 8, spares: 1, failure_groups: 1 };
    VdevConfig { kind: VdevKind::Draid, draid: Some(shape), ..raidz(id, 1, 9, metaslabs) }
}

/// A sector, or a row of a dRAID redundancy group.
fn unit_bytes(config: &VdevConfig) -> u64 {
    let columns = config.draid.map_or(1, |shape| shape.data + config.parity as u64);
    columns << config.ashift
}

pub(super) fn empty(config: &VdevConfig) -> Vec<NewMetaslab> {
    let unit = unit_bytes(config);
    let border = |index: u64| index << config.metaslab_shift;
    let metaslab = |index| {
        let start_bytes = border(index).next_multiple_of(unit);
        let size_bytes = (border(index + 1) - start_bytes) / unit * unit;
        NewMetaslab { index, start_bytes, size_bytes, allocated: Ranges::default() }
    };
    (0..config.asize_bytes >> config.metaslab_shift).map(metaslab).collect()
}

fn pool(vdevs: &[VdevConfig]) -> Allocator {
    let allocator = Allocator::new();
    vdevs.iter().for_each(|config| allocator.add_vdev(config, empty(config)));
    allocator
}

fn request(class: AllocClass, psize: u64, copies: usize) -> AllocRequest<'static> {
    AllocRequest::new(class, Psize(psize), copies, Txg(1))
}

fn fill(allocator: &Allocator, request: &AllocRequest<'_>) -> (Vec<Dva>, AllocError) {
    let mut all = Vec::new();
    loop {
        match allocator.allocate(request) {
            Ok(copies) => all.extend(copies),
            Err(error) => return (all, error),
        }
    }
}

fn sync(allocator: &Allocator, txg: u64) -> Vec<MetaslabChanges> {
    let changes = allocator.take_changes(Txg(txg));
    allocator.finish(Txg(txg));
    changes
}

#[test]
fn a_pool_that_was_filled_and_emptied_is_as_before() {
    let shapes = [disk(0, VdevClass::Normal, 8), raidz(0, 2, 7, 8), draid(0, 8)];
    for (config, psize) in shapes.iter().flat_map(|shape| [4, 12, 128].map(|kib| (shape, kib * KIB))) {
        let allocator = pool(std::slice::from_ref(config));
        let before = allocator.vdev_space(VdevId(0)).unwrap();
        let (blocks, error) = fill(&allocator, &request(AllocClass::Normal, psize, 1));
        let asize = blocks[0].asize.0;
        // All metaslabs are empty, so space is lost only at the end of each.
        let expected: u64 = empty(config).iter().map(|metaslab| metaslab.size_bytes / asize).sum();
        assert_eq!(blocks.len() as u64, expected, "{:?} {psize}", config.kind);
        let AllocError::NoSpace { class, psize: asked, copies: 1, largest_bytes } = error else {
            panic!("{error}")
        };
        assert_eq!((class, asked), (AllocClass::Normal, Psize(psize)));
        assert!(largest_bytes < asize);
        assert_eq!(largest_bytes, allocator.vdev_space(VdevId(0)).unwrap().largest_bytes);

        sync(&allocator, 1);
        blocks.iter().for_each(|dva| allocator.free(dva, PhysicalBirth(1), Txg(2)).unwrap());
        for txg in [2, 3] {
            sync(&allocator, txg);
            assert!(allocator.allocate(&request(AllocClass::Normal, psize, 1)).is_err(), "freed too early");
            let space = allocator.vdev_space(VdevId(0)).unwrap();
            assert_eq!(space.deferred_bytes, blocks.len() as u64 * asize);
        }
        sync(&allocator, 4);
        assert_eq!(allocator.vdev_space(VdevId(0)).unwrap(), before);
        assert_eq!(fill(&allocator, &request(AllocClass::Normal, psize, 1)).0.len(), blocks.len());
    }
}

#[test]
fn what_waits_can_be_released_at_once() {
    let allocator = pool(&[disk(0, VdevClass::Normal, 2)]);
    let (blocks, _) = fill(&allocator, &request(AllocClass::Normal, 64 * KIB, 1));
    sync(&allocator, 1);
    blocks.iter().for_each(|dva| allocator.free(dva, PhysicalBirth(1), Txg(2)).unwrap());
    sync(&allocator, 2);
    allocator.release_deferred();
    assert_eq!(allocator.vdev_space(VdevId(0)).unwrap().free_bytes(), 2 * MIB);
}

/// A pool filled by one block of txg 1, and a request for another.
fn filled() -> (Allocator, Dva, AllocRequest<'static>) {
    let allocator = pool(&[disk(0, VdevClass::Normal, 1)]);
    let whole = request(AllocClass::Normal, MIB, 1);
    let dva = allocator.allocate(&whole).unwrap()[0];
    sync(&allocator, 1);
    (allocator, dva, whole)
}

#[test]
fn what_a_reader_may_look_at_is_not_allocated_again() {
    let (allocator, dva, whole) = filled();
    let reader = allocator.keep_freed(false);
    sync(&allocator, 2);
    allocator.free(&dva, PhysicalBirth(1), Txg(3)).unwrap();
    for txg in 3..20 {
        sync(&allocator, txg);
        assert!(allocator.allocate(&whole).is_err(), "txg {txg}");
    }
    let later = allocator.keep_freed(false);
    drop(reader);
    sync(&allocator, 20);
    assert_eq!(allocator.allocate(&whole).unwrap(), [dva], "a later reader has nothing of it");
    assert!(!later.is_given_up());
}

#[test]
fn what_was_written_after_a_reader_began_does_not_wait_for_it() {
    let (allocator, dva, whole) = filled();
    allocator.free(&dva, PhysicalBirth(1), Txg(2)).unwrap();
    (2..5).for_each(|txg| drop(sync(&allocator, txg)));
    let _reader = allocator.keep_freed(false);
    // The reader may also see the next tree.
    sync(&allocator, 5);
    let mut txg = 6;
    for _ in 0..10 {
        let dva = allocator.allocate(&AllocRequest { txg: Txg(txg), ..whole }).unwrap()[0];
        sync(&allocator, txg);
        sync(&allocator, txg + 1);
        allocator.free(&dva, PhysicalBirth(txg), Txg(txg + 2)).unwrap();
        (txg + 2..txg + 5).for_each(|txg| drop(sync(&allocator, txg)));
        txg += 5;
    }
}

#[test]
fn a_pool_that_is_short_of_space_takes_what_readers_keep_but_not_what_is_kept_firmly() {
    for is_firm in [false, true] {
        let (allocator, dva, whole) = filled();
        let reader = allocator.keep_freed(is_firm);
        sync(&allocator, 2);
        allocator.free(&dva, PhysicalBirth(1), Txg(3)).unwrap();
        (3..6).for_each(|txg| drop(sync(&allocator, txg)));
        allocator.give_up_kept();
        assert_eq!(reader.is_given_up(), !is_firm, "it is told before anything is allocated");
        assert!(allocator.allocate(&whole).is_err());
        sync(&allocator, 6);
        assert_eq!(allocator.allocate(&whole).is_ok(), !is_firm);
    }
}

#[test]
fn copies_lie_on_other_vdevs_while_there_are_any() {
    let vdevs = [0, 1, 2].map(|id| disk(id, VdevClass::Normal, 8));
    let allocator = pool(&vdevs);
    for _ in 0..500 {
        let copies = allocator.allocate(&request(AllocClass::Normal, 8 * KIB, 3)).unwrap();
        let mut ids: Vec<_> = copies.iter().map(|dva| dva.vdev.0).collect();
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2]);
    }
    let [first] = allocator.allocate(&request(AllocClass::Normal, 8 * KIB, 1)).unwrap()[..] else { panic!() };
    let beside = AllocRequest { beside: &[first], ..request(AllocClass::Normal, 8 * KIB, 2) };
    assert!(allocator.allocate(&beside).unwrap().iter().all(|dva| dva.vdev != first.vdev));
    let avoid = AllocRequest { avoid: &[VdevId(0), VdevId(2)], ..request(AllocClass::Normal, 8 * KIB, 2) };
    assert!(allocator.allocate(&avoid).unwrap().iter().all(|dva| dva.vdev == VdevId(1)));
    let near = AllocRequest { near: Some(VdevId(2)), ..request(AllocClass::Normal, 8 * KIB, 2) };
    assert_eq!(allocator.allocate(&near).unwrap().iter().map(|dva| dva.vdev.0).collect::<Vec<_>>(), [2, 0]);
}

#[test]
fn copies_on_one_vdev_lie_far_apart_then_near_then_anywhere() {
    let allocator = pool(&[disk(0, VdevClass::Normal, 16)]);
    let three = request(AllocClass::Normal, 16 * KIB, 3);
    let nearest = |copies: &[Dva]| {
        let apart = |a: &Dva, b: &Dva| a.offset_bytes.abs_diff(b.offset_bytes);
        apart(&copies[0], &copies[1]).min(apart(&copies[1], &copies[2])).min(apart(&copies[0], &copies[2]))
    };
    // Three sets of five metaslabs fill up before copies move closer.
    for _ in 0..3 * 64 {
        assert!(nearest(&allocator.allocate(&three).unwrap()) >= 2 * MIB);
    }
    let (rest, _) = fill(&allocator, &three);
    assert!((3 * 3 * 64 + rest.len()) as u64 + 2 >= 16 * 64, "only {} more copies", rest.len());
    // In a vdev with one metaslab no distance is large.
    let small = pool(&[disk(0, VdevClass::Normal, 1)]);
    assert_eq!(fill(&small, &three).0.len(), 63);
}

#[test]
fn classes_fall_back_and_keep_to_themselves() {
    use AllocClass::*;
    let vdevs = [
        disk(0, VdevClass::Normal, 65),
        disk(1, VdevClass::Log, 2),
        disk(2, VdevClass::Special, 2),
        disk(3, VdevClass::Dedup, 2),
    ];
    let allocator = pool(&vdevs);
    let sizes =
        [Normal, Log, EmbeddedLog, Special, Dedup].map(|class| allocator.class_space(class).size_bytes / MIB);
    assert_eq!(sizes, [64, 2, 1, 2, 2]);
    let whole = |class| allocator.allocate(&request(class, MIB, 1)).unwrap()[0];
    let log: Vec<_> = (0..4).map(|_| whole(Log)).collect();
    assert_eq!(log.iter().map(|dva| dva.vdev.0).collect::<Vec<_>>(), [1, 1, 0, 0]);
    assert_eq!((log[2].offset_bytes, log[3].offset_bytes), (0, MIB), "the first metaslab is set aside");
    assert_eq!([(); 3].map(|()| whole(Special).vdev.0), [2, 2, 0]);
    assert_eq!([(); 3].map(|()| whole(Dedup).vdev.0), [3, 3, 0]);
    allocator.unallocate(&log[2], Txg(1)).unwrap();
    let (rest, _) = fill(&allocator, &request(Normal, MIB, 1));
    assert_eq!(rest.len(), 61);
    assert!(
        rest.iter().all(|dva| dva.vdev == VdevId(0) && dva.offset_bytes >= MIB),
        "data on the log's metaslab"
    );
    assert_eq!(whole(EmbeddedLog).offset_bytes, 0);
}

#[test]
fn blocks_ask_for_the_class_that_suits_them() {
    let block = |object_type, level, kib| BlockUse {
        object_type,
        level,
        psize: Psize(kib * KIB),
        special_small_blocks: 16 * KIB,
    };
    let file = ObjectType::PLAIN_FILE_CONTENTS;
    let blocks = [
        block(file, 0, 16),
        block(file, 0, 17),
        block(file, 1, 128),
        block(ObjectType::DNODE, 0, 128),
        block(ObjectType::DDT_ZAP, 1, 128),
        block(ObjectType::ZVOL, 0, 16),
    ];
    let of = |allocator: &Allocator| blocks.map(|block| allocator.preferred_class(&block, 25));
    use AllocClass::{Dedup, Normal, Special};
    let normal = disk(0, VdevClass::Normal, 4);
    assert_eq!(of(&pool(std::slice::from_ref(&normal))), [Normal; 6]);
    let special = pool(&[normal.clone(), disk(1, VdevClass::Special, 4)]);
    assert_eq!(of(&special), [Special, Normal, Special, Special, Special, Special]);
    (0..3).for_each(|_| drop(special.allocate(&request(Special, MIB, 1)).unwrap()));
    assert_eq!(of(&special)[..4], [Normal, Normal, Special, Special], "a quarter is kept for metadata");
    assert_eq!(special.preferred_class(&blocks[0], 20), Special, "less is kept");
    let dedup = pool(&[normal, disk(1, VdevClass::Special, 4), disk(2, VdevClass::Dedup, 4)]);
    assert_eq!(of(&dedup)[4], Dedup);
}

#[test]
fn vdevs_take_turns_by_what_is_free() {
    let allocator = pool(&[disk(0, VdevClass::Normal, 32), disk(1, VdevClass::Normal, 128)]);
    let blocks: Vec<u64> = (0..60 * 16)
        .map(|_| allocator.allocate(&request(AllocClass::Normal, 64 * KIB, 1)).unwrap()[0].vdev.0)
        .collect();
    let small = blocks.iter().filter(|&&vdev| vdev == 0).count();
    assert!((150..250).contains(&small), "{small} of 960 blocks on a vdev with a fifth of the space");
    let turns = blocks.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(turns < 100, "{turns} turns");
    // Log blocks change vdevs every time.
    let allocator = pool(&[disk(0, VdevClass::Log, 4), disk(1, VdevClass::Log, 4)]);
    let log = || allocator.allocate(&request(AllocClass::Log, 8 * KIB, 1)).unwrap()[0].vdev.0;
    assert_eq!([(); 4].map(|()| log()), [0, 1, 0, 1]);
}

#[test]
fn vdevs_that_do_not_allocate_get_nothing_and_can_be_emptied() {
    let mut leaving = disk(1, VdevClass::Normal, 4);
    leaving.non_allocating = true;
    let allocator = pool(&[disk(0, VdevClass::Normal, 4), leaving]);
    let (blocks, error) = fill(&allocator, &request(AllocClass::Normal, 256 * KIB, 1));
    assert_eq!((blocks.len(), blocks.iter().all(|dva| dva.vdev == VdevId(0))), (16, true));
    assert!(matches!(error, AllocError::NoSpace { largest_bytes: 0, .. }), "{error}");
    allocator.set_allocates(VdevId(1), true);
    assert_eq!(fill(&allocator, &request(AllocClass::Normal, 256 * KIB, 1)).0.len(), 16);
    allocator.set_allocates(VdevId(0), false);
    sync(&allocator, 1);
    blocks.iter().for_each(|dva| allocator.free(dva, PhysicalBirth(1), Txg(2)).unwrap());
    (2..5).for_each(|txg| drop(sync(&allocator, txg)));
    assert_eq!(allocator.vdev_space(VdevId(0)).unwrap().allocated_bytes, 0);
    assert!(allocator.allocate(&request(AllocClass::Normal, 4 * KIB, 1)).is_err());
}

#[test]
fn what_contradicts_the_maps_is_an_error() {
    let allocator = pool(&[disk(0, VdevClass::Normal, 2)]);
    let at = |vdev, offset_bytes, asize| Dva {
        vdev: VdevId(vdev),
        offset_bytes,
        asize: Asize(asize),
        gang: false,
    };
    let dva = at(0, 8 * KIB, 8 * KIB);
    assert_eq!(allocator.free(&dva, PhysicalBirth(1), Txg(2)), Err(AllocError::NotAllocated { dva }));
    allocator.claim(&dva, Txg(1)).unwrap();
    assert_eq!(allocator.claim(&dva, Txg(1)), Err(AllocError::NotFree { dva }));
    sync(&allocator, 1);
    for bad in [at(1, 0, 4096), at(0, 2 * MIB, 4096), at(0, MIB - 4096, 8192), at(0, 512, 4096), at(0, 0, 0)]
    {
        assert_eq!(allocator.free(&bad, PhysicalBirth(1), Txg(2)), Err(AllocError::BadAddress { dva: bad }));
    }
    let beyond = at(0, u64::MAX - 4095, 4096);
    assert_eq!(allocator.claim(&beyond, Txg(2)), Err(AllocError::BadAddress { dva: beyond }));
    allocator.free(&dva, PhysicalBirth(1), Txg(2)).unwrap();
    for txg in 2..5 {
        assert_eq!(
            allocator.free(&dva, PhysicalBirth(1), Txg(2)),
            Err(AllocError::NotAllocated { dva }),
            "txg {txg}"
        );
        sync(&allocator, txg);
    }
    assert_eq!(allocator.free(&dva, PhysicalBirth(1), Txg(2)), Err(AllocError::NotAllocated { dva }));
    // A gang address covers all its pieces; only its header lies there.
    let gang = Dva { gang: true, ..at(0, 0, 512 * KIB) };
    allocator.claim(&gang, Txg(5)).unwrap();
    assert_eq!(allocator.vdev_space(VdevId(0)).unwrap().allocated_bytes, 4 * KIB);
}

#[test]
fn an_allocation_can_be_undone() {
    let allocator = pool(&[disk(0, VdevClass::Normal, 1)]);
    let whole = request(AllocClass::Normal, MIB, 1);
    let dva = allocator.allocate(&whole).unwrap()[0];
    allocator.unallocate(&dva, Txg(1)).unwrap();
    assert!(allocator.take_changes(Txg(1)).is_empty(), "nobody need hear of it");
    let dva = allocator.allocate(&whole).unwrap()[0];
    assert_eq!(allocator.take_changes(Txg(1))[0].allocated_bytes, MIB);
    // The allocation was reported, so it is freed like any other.
    allocator.unallocate(&dva, Txg(1)).unwrap();
    let changes = sync(&allocator, 1);
    assert_eq!((changes[0].freed.total_bytes(), changes[0].allocated_bytes), (MIB, 0));
    assert!(allocator.allocate(&whole).is_err());
}

#[test]
fn threads_get_different_places() {
    let allocator = pool(&[disk(0, VdevClass::Normal, 66), disk(1, VdevClass::Normal, 8)]);
    let work = |thread: u64| {
        let block = |step: u64| {
            let class = [AllocClass::Normal, AllocClass::Log][(step % 2) as usize];
            let dvas = allocator.allocate(&request(class, (1 + (thread + step) % 16) * 4 * KIB, 2)).unwrap();
            if step.is_multiple_of(5) {
                dvas.iter().for_each(|dva| allocator.unallocate(dva, Txg(1)).unwrap());
                return Vec::new();
            }
            dvas
        };
        (0..200).flat_map(block).collect::<Vec<Dva>>()
    };
    let work = &work;
    let blocks: Vec<Dva> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut taken = [Ranges::default(), Ranges::default()];
    for dva in &blocks {
        assert_eq!(taken[dva.vdev.0 as usize].insert(dva.offset_bytes, dva.asize.0), None);
    }
    for (id, taken) in taken.iter().enumerate() {
        assert_eq!(allocator.vdev_space(VdevId(id as u64)).unwrap().allocated_bytes, taken.total_bytes());
    }
}

#[test]
fn a_damaged_map_breaks_no_alignment() {
    let config = disk(0, VdevClass::Normal, 1);
    let mut metaslabs = empty(&config);
    metaslabs[0].allocated.insert(512, 1024);
    metaslabs[0].allocated.insert(10_000, 512);
    let allocator = Allocator::new();
    allocator.add_vdev(&config, metaslabs);
    let (blocks, _) = fill(&allocator, &request(AllocClass::Normal, 4096, 1));
    assert!(blocks.iter().all(|dva| dva.offset_bytes.is_multiple_of(4096)));
    assert_eq!(blocks.len(), 254);
}

#[test]
fn a_metaslab_is_set_aside_for_logs_where_there_are_more_than_64() {
    for (metaslabs, class, expected) in
        [(64, VdevClass::Normal, false), (65, VdevClass::Normal, true), (65, VdevClass::Special, false)]
    {
        assert_eq!(has_embedded_log(&disk(0, class, metaslabs)), expected, "{metaslabs} {class:?}");
    }
}

#[test]
fn what_lies_behind_a_block_is_taken_for_a_moment_where_much_is_free() {
    let allocator = pool(&[disk(0, VdevClass::Normal, 8)]);
    let ask = request(AllocClass::Log, 8 * KIB, 1);
    let block = allocator.allocate(&ask).unwrap()[0];
    let behind = allocator.claim_behind(&block, Psize(256 * KIB), Txg(1)).unwrap();
    assert_eq!((behind.offset_bytes, behind.asize), (block.offset_bytes + block.asize.0, Asize(256 * KIB)));
    // Other allocations avoid it, and it cannot be claimed twice.
    assert_eq!(allocator.claim_behind(&block, Psize(256 * KIB), Txg(1)), None);
    let other = allocator.allocate(&ask).unwrap()[0];
    assert!(other.offset_bytes >= behind.offset_bytes + behind.asize.0);
    allocator.unallocate(&behind, Txg(1)).unwrap();
    assert_eq!(
        sync(&allocator, 1).iter().map(|change| change.allocated.total_bytes()).sum::<u64>(),
        16 * KIB
    );
    let (blocks, _) = fill(&allocator, &ask);
    assert!(blocks.iter().all(|block| allocator.claim_behind(block, Psize(8 * KIB), Txg(1)).is_none()));
}

#[test]
fn a_txg_frees_nothing_of_another() {
    let allocator = pool(&[disk(0, VdevClass::Normal, 2)]);
    let at = |txg| AllocRequest { txg: Txg(txg), ..request(AllocClass::Normal, 8 * KIB, 1) };
    // Txg 5 is syncing, and clients already allocate in txg 6.
    let [of_5, of_6] = [5, 6].map(|txg| allocator.allocate(&at(txg)).unwrap()[0]);
    assert_eq!(allocator.free(&of_6, PhysicalBirth(6), Txg(5)), Err(AllocError::OtherTxg { dva: of_6 }));
    allocator.free(&of_5, PhysicalBirth(5), Txg(5)).unwrap();
    sync(&allocator, 5);
    allocator.free(&of_6, PhysicalBirth(6), Txg(6)).unwrap();
    let changes = sync(&allocator, 6);
    assert_eq!((changes[0].allocated.total_bytes(), changes[0].freed.total_bytes()), (8 * KIB, 8 * KIB));
}

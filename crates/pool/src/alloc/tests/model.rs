//! Random operations on the allocator, compared with a slow and simple model: sets of ranges per vdev.

use super::*;
use crate::alloc::footprint::Footprint;
use cenote_runtime::Rng;
use std::collections::VecDeque;

struct Vdev {
    config: VdevConfig,
    /// The metaslab reserved for intent logs.
    for_log: Option<u64>,
    /// Allocated or deferred.
    taken: Ranges,
    /// The content of the space maps.
    on_disk: Ranges,
    /// Freed in the syncing txg and earlier ones, newest first.
    freed: VecDeque<Ranges>,
}

struct Model {
    vdevs: Vec<Vdev>,
    allocator: Allocator,
    rng: Rng,
    /// Allocated in txgs on disk, and in this one.
    old: Vec<Dva>,
    new: Vec<Dva>,
    txg: u64,
    refused: u64,
}

impl Model {
    fn new(configs: Vec<VdevConfig>, seed: u64) -> Model {
        let allocator = pool(&configs);
        let vdev = |config| Vdev {
            for_log: has_embedded_log(&config).then_some(0),
            config,
            taken: Ranges::default(),
            on_disk: Ranges::default(),
            freed: VecDeque::from([Ranges::default()]),
        };
        let vdevs = configs.into_iter().map(vdev).collect();
        Model { vdevs, allocator, rng: Rng::new(seed), old: Vec::new(), new: Vec::new(), txg: 1, refused: 0 }
    }

    /// A txg: allocations, some undone, passes of frees, the sync.
    fn group(&mut self) {
        for _ in 0..self.rng.below(60) {
            match self.rng.below(10) {
                0 => self.undo(),
                _ => self.allocate(),
            }
        }
        for _ in 0..=self.rng.below(3) {
            for _ in 0..self.rng.below(50) {
                self.free();
            }
            self.take_changes();
        }
        self.check();
        self.allocator.finish(Txg(self.txg));
        self.txg += 1;
        self.old.append(&mut self.new);
        for vdev in &mut self.vdevs {
            vdev.freed.push_front(Ranges::default());
            for (start, end) in
                vdev.freed.drain(3.min(vdev.freed.len())..).flat_map(|r| r.iter().collect::<Vec<_>>())
            {
                assert_eq!(vdev.taken.remove(start, end - start), None);
            }
        }
        self.check();
    }

    fn allocate(&mut self) {
        let class = AllocClass::ALL[self.rng.below(5) as usize];
        let psize = Psize(512 << self.rng.below(9) | self.rng.below(16) << 9);
        let copies = 1 + self.rng.below(3) as usize;
        let request = AllocRequest::new(class, psize, copies, Txg(self.txg));
        match self.allocator.allocate(&request) {
            Ok(dvas) => {
                assert_eq!(dvas.len(), copies);
                dvas.iter().for_each(|dva| self.allocated(dva, &request));
                self.check_copies(&dvas, psize);
                self.new.extend(dvas);
            }
            Err(error) => {
                self.refused += 1;
                self.check_no_space(&request, &error);
            }
        }
    }

    fn allocated(&mut self, dva: &Dva, request: &AllocRequest<'_>) {
        let vdev = &mut self.vdevs[dva.vdev.0 as usize];
        let (offset, len, footprint) = (dva.offset_bytes, dva.asize.0, Footprint::new(&vdev.config));
        assert_eq!(len, footprint.asize(request.psize, PhysicalBirth::in_txg(request.txg)));
        assert!(offset.is_multiple_of(unit_bytes(&vdev.config)), "{dva:?}");
        let whole =
            |new: &NewMetaslab| new.start_bytes <= offset && offset + len <= new.start_bytes + new.size_bytes;
        let metaslab = empty(&vdev.config).into_iter().find(whole).expect("on one metaslab");
        let class = vdev.class(metaslab.index);
        assert!(request.class.and_fallbacks().contains(&class), "{class:?} for {:?}", request.class);
        assert_eq!(vdev.taken.insert(offset, len), None, "handed out twice");
    }

    /// Copies share a vdev only if no other vdev of the class had room.
    fn check_copies(&self, dvas: &[Dva], psize: Psize) {
        let on = |vdev: &Vdev| dvas.iter().filter(|dva| dva.vdev.0 == vdev.config.id).count();
        let first = &self.vdevs[dvas[0].vdev.0 as usize];
        let class = first.class(dvas[0].offset_bytes >> first.config.metaslab_shift);
        if self.vdevs.iter().any(|vdev| on(vdev) > 1) {
            for other in self.vdevs.iter().filter(|vdev| on(vdev) == 0) {
                assert_eq!(
                    other.fitting(class, psize, Txg(self.txg)),
                    0,
                    "{dvas:?}, vdev {}",
                    other.config.id
                );
            }
        }
    }

    /// A refused request would not have fit as often as requested.
    fn check_no_space(&self, request: &AllocRequest<'_>, error: &AllocError) {
        let AllocError::NoSpace { largest_bytes, .. } = error else { panic!("{error}") };
        for class in request.class.and_fallbacks() {
            let fitting = self.vdevs.iter().map(|vdev| vdev.fitting(*class, request.psize, request.txg));
            assert!(fitting.sum::<u64>() < request.copies as u64, "{error}, and {class:?} had room");
        }
        let asizes = self.vdevs.iter().map(|vdev| {
            Footprint::new(&vdev.config).asize(request.psize, PhysicalBirth::in_txg(request.txg))
        });
        assert!(asizes.max() > Some(*largest_bytes) || request.copies > 1, "{error}");
    }

    fn undo(&mut self) {
        if self.new.is_empty() {
            return;
        }
        let dva = self.new.swap_remove(self.rng.below(self.new.len() as u64) as usize);
        self.allocator.unallocate(&dva, Txg(self.txg)).unwrap();
        assert_eq!(self.vdevs[dva.vdev.0 as usize].taken.remove(dva.offset_bytes, dva.asize.0), None);
    }

    fn free(&mut self) {
        let from = if self.rng.below(8) == 0 { &mut self.new } else { &mut self.old };
        if from.is_empty() {
            return;
        }
        let dva = from.swap_remove(self.rng.below(from.len() as u64) as usize);
        self.allocator.free(&dva, PhysicalBirth(1), Txg(self.txg)).unwrap();
        let freed = &mut self.vdevs[dva.vdev.0 as usize].freed[0];
        assert_eq!(freed.insert(dva.offset_bytes, dva.asize.0), None);
        assert_eq!(
            self.allocator.free(&dva, PhysicalBirth(1), Txg(self.txg)),
            Err(AllocError::NotAllocated { dva })
        );
    }

    fn take_changes(&mut self) {
        for change in self.allocator.take_changes(Txg(self.txg)) {
            let vdev = &mut self.vdevs[change.vdev.0 as usize];
            for (start, end) in change.allocated.iter() {
                assert_eq!(vdev.on_disk.insert(start, end - start), None);
            }
            for (start, end) in change.freed.iter() {
                assert_eq!(vdev.on_disk.remove(start, end - start), None);
            }
            let here = within(&vdev.on_disk, vdev.metaslab(change.index));
            assert_eq!(change.allocated_bytes, here.total_bytes());
            assert_eq!(self.allocator.allocated(change.vdev, change.index).as_ref(), Some(&here));
            assert_eq!(change.free_ranges, vdev.histogram(change.index));
        }
    }

    fn check(&self) {
        for vdev in &self.vdevs {
            let id = VdevId(vdev.config.id);
            let free = vdev.free();
            for ((index, space), (_, free)) in self.allocator.metaslab_spaces(id).into_iter().zip(&free) {
                assert_eq!(space.free_bytes(), free.total_bytes(), "metaslab {index}");
                assert_eq!(space.free_ranges, vdev.histogram(index));
                assert_eq!(
                    space.largest_bytes,
                    free.iter().map(|(start, end)| end - start).max().unwrap_or(0)
                );
            }
            let space = self.allocator.vdev_space(id).expect("a vdev");
            assert_eq!(
                space.size_bytes,
                empty(&vdev.config).iter().map(|metaslab| metaslab.size_bytes).sum::<u64>()
            );
            assert_eq!(space.allocated_bytes, vdev.taken.total_bytes());
            assert_eq!(space.deferred_bytes, vdev.freed.iter().map(Ranges::total_bytes).sum::<u64>());
        }
        let classes = AllocClass::ALL.map(|class| self.allocator.class_space(class).allocated_bytes);
        let vdevs = self.vdevs.iter().map(|vdev| vdev.taken.total_bytes());
        assert_eq!(classes.iter().sum::<u64>(), vdevs.sum::<u64>());
    }
}

impl Vdev {
    fn metaslab(&self, index: u64) -> (u64, u64) {
        let metaslab = &empty(&self.config)[index as usize];
        (metaslab.start_bytes, metaslab.start_bytes + metaslab.size_bytes)
    }

    fn class(&self, metaslab: u64) -> AllocClass {
        match self.config.class {
            _ if self.for_log == Some(metaslab) => AllocClass::EmbeddedLog,
            VdevClass::Normal => AllocClass::Normal,
            VdevClass::Log => AllocClass::Log,
            VdevClass::Special => AllocClass::Special,
            VdevClass::Dedup => AllocClass::Dedup,
        }
    }

    fn fitting(&self, class: AllocClass, psize: Psize, txg: Txg) -> u64 {
        let asize = Footprint::new(&self.config).asize(psize, PhysicalBirth::in_txg(txg));
        let free = self.free().into_iter().filter(|(index, _)| self.class(*index) == class);
        free.map(|(_, ranges)| ranges.iter().map(|(start, end)| (end - start) / asize).sum::<u64>()).sum()
    }

    fn free(&self) -> Vec<(u64, Ranges)> {
        let free = |new: NewMetaslab| {
            (new.index, self.taken.complement(new.start_bytes, new.start_bytes + new.size_bytes))
        };
        empty(&self.config).into_iter().map(free).collect()
    }

    /// Free and deferred ranges of a metaslab, by size.
    fn histogram(&self, index: u64) -> SizeHistogram {
        let (start, end) = self.metaslab(index);
        let waiting = self.freed.iter().map(|freed| within(freed, (start, end)));
        let all = waiting.chain([self.taken.complement(start, end)]);
        all.map(|ranges| ranges.iter().collect::<SizeHistogram>()).fold(
            SizeHistogram::default(),
            |mut sum, part| {
                sum.merge(&part);
                sum
            },
        )
    }
}

fn within(ranges: &Ranges, (start, end): (u64, u64)) -> Ranges {
    ranges.complement(start, end).complement(start, end)
}

#[test]
fn random_work_goes_as_in_the_model() {
    // Enough metaslabs to set one aside, each smaller than the largest block with its parity.
    fn many() -> VdevConfig {
        VdevConfig { metaslab_shift: 17, asize_bytes: 66 << 17, ..disk(0, VdevClass::Normal, 0) }
    }
    let pools: [fn() -> Vec<VdevConfig>; 4] = [
        || vec![disk(0, VdevClass::Normal, 3)],
        || vec![many(), disk(1, VdevClass::Special, 4), disk(2, VdevClass::Dedup, 2)],
        || vec![raidz(0, 2, 6, 4), raidz(1, 1, 3, 6), disk(2, VdevClass::Normal, 3)],
        || vec![draid(0, 5), disk(1, VdevClass::Normal, 2), disk(2, VdevClass::Log, 2)],
    ];
    for seed in 0..12 {
        eprintln!("seed {seed}");
        let mut model = Model::new(pools[seed as usize % pools.len()](), seed);
        (0..80).for_each(|_| model.group());
        assert!(model.refused > 10, "never full");
    }
}

//! The ring against a plain map from each byte to its last writer.

use cenote_format::blkptr::Dva;
use cenote_format::units::{PhysicalBirth, VdevId};
use cenote_runtime::Rng;

use super::*;

const MIB: u64 = 1 << 20;

fn shape(end_bytes: u64) -> Shape {
    Shape { log_entries: 5, ..Shape::new(Guid(7), Guid(9), 12, end_bytes, 0) }
}

fn entry(n: u64, psize_bytes: u64) -> LogEntry {
    let prop = Prop::of(PropParts { lsize_bytes: psize_bytes, psize_bytes, ..PropParts::default() });
    let dva = Dva { vdev: VdevId(1), offset_bytes: n << 12, ..Dva::default() };
    LogEntry { dva, birth: PhysicalBirth(n), prop, at_bytes: 0, level: 0, pad: Pad }
}

/// Every block said to be there was the last one written there, and none lies beyond the end.
#[test]
fn what_is_there_was_not_written_over() {
    for seed in 0..20 {
        let mut rng = Rng::stream(seed, 1);
        let end = 4 * MIB + 4096 + (3 + seed % 4) * MIB + 4096 * seed;
        let mut ring = Ring::new(shape(end));
        let mut owners = vec![0; (end >> 9) as usize];
        let mut places: Vec<(u64, Place)> = Vec::new();
        let mut n = 0;
        for _ in 0..100 {
            let sizes: Vec<u64> = (0..=rng.below(6)).map(|_| (1 + rng.below(200)) * 512).collect();
            let asize = sizes.iter().map(|size| ring.shape.asize(*size)).sum();
            let room = ring.worst_asize(asize, sizes.len());
            ring.make_room(room);
            let still: Vec<_> = places.iter().filter(|(_, place)| ring.is_there(*place)).copied().collect();
            let mut own = |at: u64, len: u64, who: u64| {
                assert!(at >= ring_start() && at + len <= end, "{at} {len}");
                owners[(at >> 9) as usize..((at + len) >> 9) as usize].fill(who);
            };
            for size in sizes {
                n += 1;
                let (at_bytes, log) = ring.place(entry(n, size));
                own(at_bytes, ring.shape.asize(size), n);
                places.push((n, Place { device: 0, round: ring.round, at_bytes, psize_bytes: size }));
                if let Some((at, log)) = log {
                    own(at, log.len() as u64, u64::MAX);
                }
            }
            for (who, place) in still.iter().chain(places.iter().rev().take(3)) {
                assert!(ring.is_there(*place), "seed {seed}: {place:?}");
                let range =
                    (place.at_bytes >> 9) as usize..((place.at_bytes + place.psize_bytes) >> 9) as usize;
                assert!(owners[range].iter().all(|owner| owner == who), "seed {seed}: {place:?}");
            }
            // As after an import: hands and log continue.
            let again = Ring::resume(ring.shape, &ring.header());
            if ring.newest[0].at_bytes != 0 {
                let again = again.unwrap();
                assert_eq!((again.is_first, again.newest), (ring.is_first, ring.newest));
                assert!(again.is_first || again.hand <= again.evict);
                // Logged blocks that were there before are there again, at their places.
                for (_, place) in &places {
                    let round = again.round_of(place.at_bytes, place.psize_bytes);
                    let is_there = round.is_some_and(|round| again.is_there(Place { round, ..*place }));
                    let is_logged = ring.logs.iter().any(|log| log.names(place.at_bytes));
                    assert!(is_there || !ring.is_there(*place) || !is_logged, "seed {seed}: {place:?}");
                }
                assert!(ring.logs.iter().all(|log| ring.is_log_there(log)), "seed {seed}");
                assert!(again.is_log_there(&ring.newest[0]));
            }
        }
        assert!(places.len() > 100);
    }
}

trait Names {
    fn names(&self, at_bytes: u64) -> bool;
}

impl Names for LogPointer {
    fn names(&self, at_bytes: u64) -> bool {
        is_between((self.payload_start_bytes, self.at_bytes), at_bytes)
    }
}

fn ring_start() -> u64 {
    VDEV_LABEL_START_SIZE + 4096
}

#[test]
fn a_header_of_another_pool_device_size_or_version_is_not_resumed() {
    let shape = shape(64 * MIB);
    let good = Ring::new(shape).header();
    assert!(Ring::resume(shape, &good).is_some());
    for bad in [
        DeviceHeader { pool: Guid(8), ..good },
        DeviceHeader { vdev: Guid(8), ..good },
        DeviceHeader { version: 2, ..good },
        DeviceHeader { end_bytes: good.end_bytes + 1, ..good },
        DeviceHeader { log_entries: 6, ..good },
        DeviceHeader { evict_bytes: 0, ..good },
        DeviceHeader { newest: [LogPointer { at_bytes: u64::MAX, ..LogPointer::zeroed() }; 2], ..good },
    ] {
        assert!(Ring::resume(shape, &bad).is_none(), "{bad:?}");
    }
}

#[test]
fn openzfs_has_so_many_entries_in_a_log_block() {
    let entries = |mib: u64| Shape::new(Guid(1), Guid(2), 9, mib * MIB, 1 << 30).log_entries;
    assert_eq!([entries(1023), entries(1024), entries(2048), entries(1 << 20)], [0, 63, 127, 1022]);
}

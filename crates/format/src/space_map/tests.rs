//! Round trips in every block size; hostile words end in an error.

use proptest::prelude::*;

use super::*;
use crate::words::check_phys;

fn segments() -> impl Strategy<Value = Vec<Segment>> {
    let run = prop_oneof![1..40_000u64, 1..(1u64 << 38)];
    let offset = prop_oneof![0..1000u64, 0..(1u64 << 50)];
    let vdev = prop::option::of((0..1u64 << 24).prop_map(VdevId));
    let segment = (any::<bool>(), vdev, offset, run).prop_map(|(free, vdev, offset, run)| Segment {
        map_type: if free { MapType::Free } else { MapType::Alloc },
        vdev,
        offset,
        run,
    });
    prop::collection::vec(segment, 0..20)
}

fn read(raw: &[u8], block_bytes: usize, shift: u32, endian: Endian) -> Result<Vec<SpaceMapEntry>> {
    let mut reader = SpaceMapReader::new(shift, endian)?;
    let mut out = Vec::new();
    for block in raw.chunks(block_bytes) {
        for entry in reader.block(block) {
            out.push(entry?);
        }
    }
    Ok(out)
}

#[test]
fn sizes_are_those_of_the_disk_and_words_come_back() {
    check_phys::<SpaceMapPhys>();
    check_phys::<MetaslabUnflushed>();
}

#[test]
fn a_known_log_reads_as_its_picture_says() {
    let words = [
        0b10 << 62 | 1 << 60 | 3 << 50 | 77u64, // debug: free, pass 3, txg 77
        5 << 16 | 1 << 15 | 1,                  // free 2 units at 5
        0b11 << 62 | 9 << 24 | 4,               // 10 units of vdev 4
        1 << 40,                                // allocated at 2^40
    ];
    let raw: Vec<u8> = words.iter().flat_map(|w: &u64| w.to_be_bytes()).collect();
    let entries = read(&raw, 4096, 9, Endian::Big).unwrap();
    let free = SpaceMapEntry {
        map_type: MapType::Free,
        vdev: None,
        offset_bytes: 5 * 512,
        run_bytes: 1024,
        txg: Txg(77),
        sync_pass: 3,
    };
    let alloc = SpaceMapEntry {
        map_type: MapType::Alloc,
        vdev: Some(VdevId(4)),
        offset_bytes: 1 << 49,
        run_bytes: 5120,
        ..free
    };
    assert_eq!(entries, [free, alloc]);
}

#[test]
fn a_log_space_map_of_the_kernel_module_reads_as_ranges_of_its_vdev() {
    // First words of object 195 (txg 41) of the golden pool unclean-zil, as on disk.
    let words: [u64; 6] = [
        0x8004_0000_0000_0029,
        0xc000_0000_4700_0000,
        0x0000_0000_0004_0bb8,
        0x9004_0000_0000_0029,
        0xc000_0000_0700_0000,
        0x8000_0000_0004_0b18,
    ];
    let raw: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let alloc = SpaceMapEntry {
        map_type: MapType::Alloc,
        vdev: Some(VdevId(0)),
        offset_bytes: 0x817_7000,
        run_bytes: 0x9000,
        txg: Txg(41),
        sync_pass: 1,
    };
    let free =
        SpaceMapEntry { map_type: MapType::Free, offset_bytes: 0x816_3000, run_bytes: 0x1000, ..alloc };
    assert_eq!(read(&raw, 131072, 9, Endian::Little).unwrap(), [alloc, free]);
}

#[test]
fn a_cut_two_word_entry_and_an_offset_beyond_64_bits_are_errors() {
    let cut = (0b11u64 << 62).to_le_bytes();
    assert!(read(&cut, 4096, 9, Endian::Little).is_err());
    let far: Vec<u8> = [0b11u64 << 62, (1 << 63) - 1].iter().flat_map(|w| w.to_le_bytes()).collect();
    assert!(read(&far, 4096, 9, Endian::Little).is_err());
    assert!(SpaceMapReader::new(64, Endian::Little).is_err());
}

#[test]
fn a_pool_without_spacemap_v2_gets_entries_of_one_word() {
    let run = 3 * RUN_LIMIT + 1;
    let segment = Segment { map_type: MapType::Alloc, vdev: None, offset: 7, run };
    let written = |mut writer: SpaceMapWriter| {
        writer.segment(segment);
        writer.finish(Endian::Little)
    };
    let (old, new) = (written(SpaceMapWriter::new(4096).one_word()), written(SpaceMapWriter::new(4096)));
    assert_eq!((old.len(), new.len()), (4 * 8, 2 * 8));
    let entries = read(&old, 4096, 0, Endian::Little).unwrap();
    assert_eq!(entries.iter().map(|e| e.run_bytes).sum::<u64>(), run);
    assert!(entries.iter().all(|entry| entry.vdev.is_none()));
}

proptest! {
    #[test]
    fn logs_round_trip(
        segments in segments(),
        block_words in 2usize..9,
        before in 0usize..20,
        big in any::<bool>(),
    ) {
        let endian = if big { Endian::Big } else { Endian::Little };
        let mut writer = SpaceMapWriter::new(block_words * 8).after(before as u64 * 8);
        for &segment in &segments {
            writer.debug(segment.map_type, Txg(9), 2);
            writer.segment(segment);
        }
        let mut raw = Writer::new(endian);
        raw.words(&vec![DEBUG_PREFIX << 62; before]);
        let raw = [raw.finish(), writer.finish(endian)].concat();
        let entries = read(&raw, block_words * 8, 9, endian).unwrap();

        // Join the pieces of long runs before comparing.
        let mut pieces = entries.into_iter();
        for segment in segments {
            let (mut at, mut left) = (segment.offset, segment.run);
            while left > 0 {
                let piece = pieces.next().unwrap();
                prop_assert_eq!((piece.map_type, piece.txg, piece.sync_pass), (segment.map_type, Txg(9), 2));
                prop_assert_eq!(piece.offset_bytes, at << 9);
                prop_assert!(segment.vdev.is_none() || piece.vdev == segment.vdev);
                at += piece.run_bytes >> 9;
                left -= piece.run_bytes >> 9;
            }
        }
        prop_assert!(pieces.next().is_none());
    }

    #[test]
    fn hostile_words_give_no_more_entries_than_words(
        raw in prop::collection::vec(any::<u8>(), 0..400),
        shift in 0u32..64,
    ) {
        let mut reader = SpaceMapReader::new(shift, Endian::Little).unwrap();
        prop_assert!(reader.block(&raw).count() <= raw.len() / 8);
    }
}

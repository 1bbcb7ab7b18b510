use super::*;
use crate::crypto::{BlockKey, Cipher};
use proptest::prelude::*;

fn put(block: &mut [u8], at: usize, value: u64, endian: Endian) {
    block[at..at + 8].copy_from_slice(&endian.bytes(value));
}

/// A 4 KiB log block with records of these types and lengths.
fn log_block(records: &[(u64, usize)], endian: Endian) -> Vec<u8> {
    let mut block: Vec<u8> = (0..4096).map(|i| (i % 251) as u8).collect();
    let mut at = RECORDS_AT;
    for (record_type, length) in records {
        put(&mut block, at, *record_type, endian);
        put(&mut block, at + 8, *length as u64, endian);
        at += length;
    }
    put(&mut block, CHAIN_USED_AT, at as u64, endian);
    block
}

#[test]
fn log_records_hide_their_bodies_but_not_their_pointers() {
    for endian in [Endian::Little, Endian::Big] {
        let block = log_block(&[(1, 100), (TX_WRITE, 192), (TX_WRITE, 200), (TX_CLONE_RANGE, 328)], endian);
        let layout = log(&block, endian).unwrap();
        let [create, write, copied, clone] = [184, 284, 476, 676];
        assert_eq!(
            layout.secret(),
            [
                create + 32..create + 100,
                write + 32..write + 64,
                copied + 32..copied + 64,
                copied + 192..copied + 200,
                clone + 32..clone + 64,
            ]
        );
        let aad = [
            &block[..144],
            &block[create..create + 32],
            &block[write..write + 32],
            &block[write + 64..write + 192],
            &block[copied..copied + 32],
            &block[copied + 64..copied + 192],
            &block[clone..clone + 32],
            &block[clone + 64..clone + 328],
        ];
        assert_eq!(layout.aad(), aad.concat());
    }
}

#[test]
fn a_log_block_comes_back_and_a_changed_header_is_noticed() {
    let block = log_block(&[(TX_WRITE, 1000), (1, 300)], Endian::Little);
    for cipher in Cipher::ALL {
        let key = BlockKey::new(cipher, &[6; 32]);
        let mut stored = block.clone();
        let layout = log(&block, Endian::Little).unwrap();
        let mac = key.seal_parts(&[1; 12], &layout, &mut stored).unwrap();
        assert_ne!(stored, block);
        assert_eq!(log(&stored, Endian::Little).unwrap(), layout, "the clear parts say the same");

        let mut opened = stored.clone();
        key.open_parts(&[1; 12], &mac, &layout, &mut opened).unwrap();
        assert_eq!(opened, block);

        stored[8] ^= 1; // the pointer to the next block
        let layout = log(&stored, Endian::Little).unwrap();
        assert_eq!(key.open_parts(&[1; 12], &mac, &layout, &mut stored), Err(CryptoError::Mac));
    }
}

#[test]
fn structures_that_lead_outside_the_block_are_refused() {
    for (record_type, length) in [(1, 0), (1, 31), (1, 4000), (TX_WRITE, 191), (TX_CLONE_RANGE, 63)] {
        let mut block = log_block(&[(record_type, 0)], Endian::Little);
        put(&mut block, RECORDS_AT + 8, length, Endian::Little);
        put(&mut block, CHAIN_USED_AT, 1000, Endian::Little);
        assert!(log(&block, Endian::Little).is_err(), "type {record_type}, length {length}");
    }
    let mut dnode = vec![0; 1024];
    dnode[0] = 19;
    dnode[12] = 2; // three slots in a block of two
    assert!(dnodes(&dnode, Endian::Little, KeyVersion::V1).is_err());
    dnode[12] = 0;
    dnode[3] = 4; // four pointers do not fit
    assert!(dnodes(&dnode, Endian::Little, KeyVersion::V1).is_err());
    dnode[3] = 3;
    dnode[FLAGS_AT] = FLAG_SPILL; // nor a spill pointer beside three
    assert!(dnodes(&dnode, Endian::Little, KeyVersion::V1).is_err());
}

proptest! {
    #[test]
    fn ranges_ascend_and_lie_in_the_block_whatever_is_in_it(
        mut block in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..5000),
        used in 0..5000u64,
    ) {
        if block.len() > RECORDS_AT {
            put(&mut block, CHAIN_USED_AT, used, Endian::Little);
        }
        for endian in [Endian::Little, Endian::Big] {
            let layouts = [log(&block, endian), dnodes(&block, endian, KeyVersion::V1)];
            for layout in layouts.into_iter().flatten() {
                let mut end = 0;
                for range in layout.secret() {
                    prop_assert!(end <= range.start && range.start < range.end && range.end <= block.len());
                    end = range.end;
                }
                prop_assert!(layout.aad().len() <= block.len());
            }
        }
    }
}

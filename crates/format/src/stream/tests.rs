use proptest::prelude::*;

use super::*;

/// Field bytes of each record type, of the 312.
const FIELD_BYTES: [usize; 11] = [312, 64 + 8, 32, 128 + 8, 40, 48, 112, 92, 56, 72, 40];

fn raw(number: u32, fill: &[u8], endian: Endian) -> [u8; DRR_BYTES] {
    let mut w = Writer::new(endian);
    w.u32(number).u32(0);
    w.bytes(&fill[..FIELD_BYTES[number as usize] - 8]).pad_to(DRR_BYTES);
    w.finish().try_into().unwrap()
}

proptest! {
    #[test]
    fn what_decodes_encodes_to_what_decodes_to_the_same(
        number in 1u32..11,
        fill in prop::collection::vec(prop_oneof![4 => Just(0u8), 1 => any::<u8>()], 320),
        big in any::<bool>(),
    ) {
        let endian = if big { Endian::Big } else { Endian::Little };
        if let Ok(record) = Record::decode(&raw(number, &fill, endian), endian) {
            prop_assert!(record.payload_bytes() <= SPA_MAXBLOCKSIZE);
            prop_assert_eq!(record.number(), number);
            let again = record.encode(endian).unwrap();
            prop_assert_eq!(Record::decode(&again, endian).unwrap(), record.clone());
            // The other order holds the same values.
            let other = record.encode(endian.swapped()).unwrap();
            prop_assert_eq!(Record::decode(&other, endian.swapped()).unwrap(), record);
        }
    }

    #[test]
    fn anything_decodes_or_is_refused(fill in prop::collection::vec(any::<u8>(), DRR_BYTES)) {
        let raw: [u8; DRR_BYTES] = fill.try_into().unwrap();
        for endian in [Endian::Little, Endian::Big] {
            let _ = Record::decode(&raw, endian);
        }
    }
}

#[test]
fn a_begin_shows_its_byte_order() {
    let begin = Begin {
        payload_bytes: 8,
        header: HeaderType::Compound,
        features: StreamFeatures::RAW | StreamFeatures::LARGE_BLOCKS,
        to_name: b"tank/a@monday".to_vec(),
        ..Begin::default()
    };
    for endian in [Endian::Little, Endian::Big] {
        let raw = Record::Begin(begin.clone()).encode(endian).unwrap();
        assert_eq!(Record::endian_of(&raw), Some(endian));
        assert_eq!(Record::decode(&raw, endian).unwrap(), Record::Begin(begin.clone()));
    }
    let long = Begin { to_name: vec![b'x'; 256], ..begin };
    assert!(Record::Begin(long).encode(Endian::Little).is_err());
}

#[test]
fn payloads_are_bounded() {
    let write = Write { logical_bytes: SPA_MAXBLOCKSIZE + 8, ..Write::default() };
    let raw = Record::Write(write).encode(Endian::Little).unwrap();
    assert!(Record::decode(&raw, Endian::Little).is_err());
    let begin = Begin { payload_bytes: u32::MAX, ..Begin::default() };
    let raw = Record::Begin(begin).encode(Endian::Little).unwrap();
    assert!(Record::decode(&raw, Endian::Little).is_err());
}

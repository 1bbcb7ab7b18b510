use super::*;
use proptest::prelude::*;

/// Storing algorithms, except the eight gzips that differ only in effort.
const STORED: [Compression; 7] = [
    Compression::Off,
    Compression::Lzjb,
    Compression::Gzip1,
    Compression::Gzip9,
    Compression::Zle,
    Compression::Lz4,
    Compression::Zstd,
];

/// Data with runs, zeros and repeats, which random bytes lack.
fn compressible() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u8>(), 1..300usize).prop_map(|(byte, n)| vec![byte; n]),
        (1..700usize).prop_map(|n| vec![0; n]),
        prop::collection::vec(any::<u8>(), 1..200),
        (1..40usize).prop_map(|n| b"directory entry ".repeat(n)),
    ];
    prop::collection::vec(piece, 1..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn what_is_compressed_comes_back(data in compressible(), padding in 0..600usize) {
        for compression in STORED {
            let Some(mut stored) = compression.compress(&data, data.len(), ZstdLevel::DEFAULT).unwrap() else {
                continue;
            };
            prop_assert!(stored.len() <= data.len());
            // On disk it is padded to whole sectors.
            stored.resize(stored.len() + padding, 0);
            let back = compression.decompress(&stored, data.len()).unwrap();
            prop_assert_eq!(&back, &data, "{:?}", compression);
        }
    }

    #[test]
    fn a_source_cut_short_is_an_error(data in compressible(), cut in 1..64usize) {
        for compression in STORED {
            let Some(stored) = compression.compress(&data, data.len(), ZstdLevel::DEFAULT).unwrap() else {
                continue;
            };
            let kept = stored.len().saturating_sub(cut);
            prop_assert!(compression.decompress(&stored[..kept], data.len()).is_err(), "{:?}", compression);
        }
    }

    #[test]
    fn any_bytes_at_all_neither_panic_nor_write_outside(
        source in prop::collection::vec(any::<u8>(), 0..2000), size in 0..3000usize,
    ) {
        for compression in Compression::ALL {
            let mut buffer = vec![0xa5; size + 64];
            let _ = compression.decompress_into(&source, &mut buffer[..size]);
            prop_assert!(buffer[size..].iter().all(|byte| *byte == 0xa5), "{:?}", compression);
        }
    }

    #[test]
    fn damaged_streams_neither_panic_nor_hang(
        data in compressible(), at in any::<prop::sample::Index>(), flip in 1..=255u8,
    ) {
        for compression in STORED {
            let Some(mut stored) = compression.compress(&data, data.len(), ZstdLevel::DEFAULT).unwrap() else {
                continue;
            };
            let at = at.index(stored.len());
            stored[at] ^= flip;
            let _ = compression.decompress(&stored, data.len());
        }
    }
}

#[test]
fn metadata_shrinks_with_every_compressor() {
    let data = b"zap entry \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".repeat(200);
    for compression in STORED.into_iter().filter(|c| *c != Compression::Off) {
        let stored = compression.compress(&data, data.len(), ZstdLevel::DEFAULT).unwrap();
        let stored = stored.unwrap_or_else(|| panic!("{compression:?} gave up"));
        assert!(stored.len() < data.len() * 3 / 4, "{compression:?}: {} of {}", stored.len(), data.len());
    }
}

#[test]
fn a_compressed_block_keeps_no_room_for_more() {
    // As an indirect block with few pointers.
    for data in [128 << 10, 1 << 20].map(|len| [vec![7; 300], vec![0; len - 300]].concat()) {
        for compression in STORED.into_iter().filter(|c| *c != Compression::Off) {
            let stored = compression.compress(&data, data.len(), ZstdLevel::DEFAULT).unwrap().unwrap();
            let (room, len) = (stored.capacity(), stored.len());
            assert!(room < 2 * len, "{compression:?}: {room} for {len}");
        }
    }
}

#[test]
fn known_streams() {
    // lzjb: flags 0b10, literal 'a', then a copy of 5 from 1 back.
    let stream = [0b10, b'a', 2 << 2, 1];
    assert_eq!(Compression::Lzjb.decompress(&stream, 6).unwrap(), b"aaaaaa");
    // The last copy may pass the end of the block.
    assert_eq!(Compression::Lzjb.decompress(&stream, 4).unwrap(), b"aaaa");
    // zle: two literals, three zeros, one literal.
    assert_eq!(Compression::Zle.decompress(&[1, b'a', b'b', 66, 0, b'c'], 6).unwrap(), b"ab\0\0\0c");
    // gzip: zlib's own stream for "abc", padded.
    let stream = [0x78, 0x9c, 0x4b, 0x4c, 0x4a, 0x06, 0x00, 0x02, 0x4d, 0x01, 0x27, 0, 0, 0];
    assert_eq!(Compression::Gzip6.decompress(&stream, 3).unwrap(), b"abc");
    // lz4: five literals.
    assert_eq!(Compression::Lz4.decompress(b"\0\0\0\x06\x50hello\0\0", 5).unwrap(), b"hello");
}

#[test]
fn hostile_streams_are_refused() {
    let refused = |compression: Compression, source: &[u8], size| {
        let result = compression.decompress(source, size);
        assert!(matches!(result, Err(CompressError::Corrupt { .. })), "{compression:?}: {result:?}");
    };
    refused(Compression::Lzjb, &[0b1, 0, 0], 16); // distance 0
    refused(Compression::Lzjb, &[0b10, b'a', 0, 2], 16); // before the start
    refused(Compression::Zle, &[200], 16); // more zeros than fit
    refused(Compression::Lz4, &[0xff; 64], 16); // length beyond the source
    refused(Compression::Zstd, &[0xff; 64], 16);
    refused(Compression::Zstd, &[0, 0, 0, 0, 3, 0, 0, 0], 16); // an empty frame
    assert_eq!(
        Compression::Lz4.decompress(&[], MAX_BLOCK_BYTES + 1),
        Err(CompressError::TooLong(MAX_BLOCK_BYTES + 1))
    );
}

#[test]
fn output_beyond_the_limit_is_none() {
    let noise: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for compression in STORED {
        assert_eq!(compression.compress(&noise, 128, ZstdLevel::DEFAULT).unwrap(), None, "{compression:?}");
    }
}

#[test]
fn numbers_and_levels_are_those_on_disk() {
    for number in 0..17u8 {
        assert_eq!(Compression::try_from(number).unwrap() as u8, number);
    }
    assert_eq!(Compression::try_from(17), Err(CompressError::Unknown(17)));
    assert_eq!(Compression::try_from(13).unwrap().name(), "gzip-9");

    let valid: Vec<u8> = (0..=255).filter(|number| ZstdLevel::new(*number).is_some()).collect();
    assert_eq!(valid, (1..=19).chain(103..=123).collect::<Vec<u8>>());
    let data = b"block ".repeat(1000);
    for number in valid {
        let stored = Compression::Zstd.compress(&data, data.len(), ZstdLevel::new(number).unwrap()).unwrap();
        let stored = stored.unwrap();
        assert_eq!(stored[4], number);
        assert_eq!(Compression::Zstd.decompress(&stored, data.len()).unwrap(), data);
    }
}

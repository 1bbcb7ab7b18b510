//! Pool objects: DSL, block lists, space maps, tables, logs.

use cenote_codec::compress::Compression;
use cenote_format::Phys;
use cenote_format::blkptr::BLKPTR_BYTES;
use cenote_format::bpobj::{BpobjEntry, BpobjPhys, BptreeEntry, BptreePhys};
use cenote_format::brt::{BrtVdevPhys, decode_entry_counts};
use cenote_format::bytes::{Endian, Reader};
use cenote_format::ddt::log::{DdtLogHeader, records};
use cenote_format::ddt::{DdtHistogram, DdtKey, DdtStat, DdtValue, ddt_blkptr};
use cenote_format::draid::DraidMap;
use cenote_format::dsl::bookmark::{Bookmark, RedactBlock, RedactionListHead};
use cenote_format::dsl::deadlist::{DeadlistPhys, parse_deadlist_key};
use cenote_format::dsl::{DslDatasetPhys, DslDirPhys};
use cenote_format::errlog::{BlockBookmark, ErrorBookmark, parse_head_key};
use cenote_format::history::{self, HistoryPhys};
use cenote_format::indirect::{
    CondensingIndirect, IndirectBirth, IndirectBirthsPhys, IndirectMapping, IndirectMappingEntry,
    IndirectMappingPhys, decode_obsolete_counts,
};
use cenote_format::nvlist::Nvlist;
use cenote_format::scan::{DdtBookmark, ErrorScrubPhys, RebuildPhys, RemovingPhys, ScanPhys};
use cenote_format::space_map::{MetaslabUnflushed, SpaceMapPhys, SpaceMapReader};

use super::{ENDIANS, consume};

/// Decodes a structure of words, which must round-trip.
fn words<T: Phys>(data: &[u8], endian: Endian) -> Option<T> {
    let value = T::decode(data, endian).ok()?;
    let encoded = value.encode(endian);
    let again = T::decode(&encoded, endian).map(|value| value.encode(endian));
    assert_eq!(again.as_ref(), Ok(&encoded), "encoded and decoded again");
    Some(value)
}

/// DSL bonus buffers and lists.
pub fn dsl(data: &[u8]) {
    for endian in ENDIANS {
        words::<DslDirPhys>(data, endian);
        if let Some(dataset) = words::<DslDatasetPhys>(data, endian) {
            consume((dataset.is_snapshot(), dataset.compress_ratio_percent()));
        }
        words::<Bookmark>(data, endian);
        words::<DeadlistPhys>(data, endian);
        if let Some(block) = words::<RedactBlock>(data, endian) {
            consume((block.block_bytes(), block.block_count()));
        }
        if let Ok(head) = RedactionListHead::decode(data, endian) {
            assert_eq!(RedactionListHead::decode(&head.encode(endian), endian).as_ref(), Ok(&head));
            consume(head.is_complete());
        }
    }
    consume(parse_deadlist_key(data));
}

/// Lists of block pointers.
pub fn bpobj(data: &[u8]) {
    for endian in ENDIANS {
        words::<BpobjPhys>(data, endian);
        words::<BptreePhys>(data, endian);
        words::<BptreeEntry>(data, endian);
        for chunk in data.chunks(BLKPTR_BYTES) {
            if let Ok(bp) = cenote_format::blkptr::Blkptr::read(&mut Reader::new("bpobj", chunk, endian)) {
                let entry = BpobjEntry::from_blkptr(bp);
                let again = BpobjEntry::from_blkptr(entry.to_blkptr());
                assert_eq!(again.to_blkptr(), entry.to_blkptr(), "encoded and decoded again");
            }
        }
    }
}

/// A space map log, cut into blocks.
pub fn space_map(data: &[u8]) {
    let (shift, log) = data.split_first().unwrap_or((&9, &[]));
    for endian in ENDIANS {
        words::<SpaceMapPhys>(data, endian);
        words::<MetaslabUnflushed>(data, endian);
        for shift in [u32::from(*shift), 9, 12, 63] {
            let Ok(mut reader) = SpaceMapReader::new(shift, endian) else { continue };
            for block in log.chunks(4096) {
                for entry in reader.block(block).flatten() {
                    let end = entry.offset_bytes.checked_add(entry.run_bytes);
                    assert!(end.is_some(), "an entry's end is a number: {entry:?}");
                }
            }
        }
    }
}

/// The mapping of a removed vdev.
pub fn indirect(data: &[u8]) {
    for endian in ENDIANS {
        words::<IndirectMappingPhys>(data, endian);
        words::<IndirectBirthsPhys>(data, endian);
        words::<IndirectBirth>(data, endian);
        words::<CondensingIndirect>(data, endian);
        consume(decode_obsolete_counts(data, endian).count());
        let entries = data.chunks(24).map_while(|chunk| words::<IndirectMappingEntry>(chunk, endian));
        let Ok(mapping) = IndirectMapping::new(entries.collect()) else { continue };
        for entry in mapping.entries().iter().take(64) {
            for (offset, len) in [(entry.src_offset_bytes, entry.len_bytes()), (0, u64::MAX), (512, 1 << 17)]
            {
                let total: u64 = mapping.resolve(offset, len).iter().map(|piece| piece.asize.0).sum();
                assert!(total == 0 || total == len, "{total} of {len} bytes at {offset} are mapped");
            }
        }
    }
}

/// Dedup table entries, packed as in a ZAP or plain.
pub fn ddt(data: &[u8]) {
    let unpack = |packed: &[u8], len: usize| Compression::Zle.decompress(packed, len).ok();
    for flat in [false, true] {
        for endian in ENDIANS {
            let key = words::<DdtKey>(data, endian);
            words::<DdtStat>(data, endian);
            words::<DdtHistogram>(data, endian);
            let values =
                [DdtValue::decode(data, flat, unpack), DdtValue::decode_unpacked(data, flat, endian)];
            for value in values.iter().flatten() {
                let again = DdtValue::decode(&value.encode(endian), flat, unpack);
                assert_eq!(again.as_ref(), Ok(value), "encoded and decoded again");
                consume(value.refcount());
                for (key, phys) in key.iter().flat_map(|key| value.phys().map(move |phys| (key, phys))) {
                    consume((ddt_blkptr(8, key, &phys), key.lsize(), key.psize(), key.is_encrypted()));
                }
            }
        }
    }
}

/// A dedup log block.
pub fn ddt_log(data: &[u8]) {
    for endian in ENDIANS {
        if let Some(header) = words::<DdtLogHeader>(data, endian) {
            consume((header.version(), header.flags(), header.checkpoint()));
        }
        for flat in [false, true] {
            for record in records(data, flat, endian).flatten() {
                consume(record.encode(endian));
            }
        }
    }
}

/// The block reference table.
pub fn brt(data: &[u8]) {
    for endian in ENDIANS {
        if let Some(phys) = words::<BrtVdevPhys>(data, endian) {
            consume((phys.endian(), phys.range_of(0), phys.range_of(u64::MAX)));
        }
        consume(decode_entry_counts(data, endian).count());
    }
}

/// Pool history: ring positions and records.
pub fn history(data: &[u8]) {
    for endian in ENDIANS {
        let Some(phys) = words::<HistoryPhys>(data, endian) else { continue };
        let Ok(ranges) = phys.ranges() else { continue };
        let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert!(ranges.len() <= 3 && total <= history::MAX_HISTORY_BYTES, "{ranges:?}");
    }
    for record in history::records(data).flatten() {
        consume(Nvlist::decode(record));
    }
}

/// Keys of the error logs.
pub fn errlog(data: &[u8]) {
    if let Ok(bookmark) = BlockBookmark::from_key(data) {
        assert_eq!(BlockBookmark::from_key(bookmark.to_key().as_bytes()).as_ref(), Ok(&bookmark));
    }
    if let Ok(bookmark) = ErrorBookmark::from_key(data) {
        assert_eq!(ErrorBookmark::from_key(bookmark.to_key().as_bytes()).as_ref(), Ok(&bookmark));
    }
    consume(parse_head_key(data));
    for endian in ENDIANS {
        words::<BlockBookmark>(data, endian);
        words::<ErrorBookmark>(data, endian);
    }
}

/// State of scrub, resilver, removal and rebuild; dRAID maps by child count.
pub fn scan(data: &[u8]) {
    for endian in ENDIANS {
        if let Some(scan) = words::<ScanPhys>(data, endian) {
            consume(scan.is_paused());
        }
        words::<ErrorScrubPhys>(data, endian);
        words::<RemovingPhys>(data, endian);
        words::<RebuildPhys>(data, endian);
        words::<DdtBookmark>(data, endian);
        let children = data.first_chunk().map_or(0, |word| endian.u64(*word));
        consume(DraidMap::for_children(children));
    }
}

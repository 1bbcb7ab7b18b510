//! Operations and block layouts round trip in both byte orders; hostile bytes are bounded.

use proptest::collection::vec;
use proptest::prelude::*;

use super::attr::{LogAcl, LogAttrs};
use super::record::{CreateKind, LR_BYTES, NewObject, RenameKind, TX_CI, WriteData, tx};
use super::*;
use crate::units::{ObjectId, Txg};

/// Without the key of an encrypted dataset, all but record headers and the pointers of writes and clones is
/// noise.
#[test]
fn what_is_clear_of_records_is_read_past_noise() {
    let bp = Blkptr::decode(&[7; BLKPTR_BYTES], Endian::Little).unwrap();
    let (object, data) = (ObjectId(3), WriteData::Indirect);
    let write = Operation::Write {
        already_synced: false,
        object,
        offset_bytes: 0,
        length_bytes: 512,
        block_offset: 0,
        bp,
        data,
    };
    let link = Operation::Link { directory: object, object, name: Bytes::from_static(b"name") };
    let mut records = Vec::new();
    let blocks = vec![bp, Blkptr::HOLE];
    let clone =
        Operation::CloneRange { object, offset_bytes: 0, length_bytes: 1024, block_bytes: 512, blocks };
    for (seq, operation) in [(1, link), (2, write), (3, clone)] {
        let record = LogRecord { txg: Txg(9), seq, case_insensitive: false, operation };
        records.extend(record.encode(Endian::Little));
    }
    // Remove the NUL of the name.
    records[LR_BYTES + 16..][..8].fill(0xff);
    let block = LogBlock {
        endian: Endian::Little,
        next: bp,
        eck: EmbeddedChecksum { endian: Endian::Little, checksum: [0; 4] },
        records: records.into(),
    };
    assert!(block.records().next().unwrap().is_err());
    let clear: Vec<ClearRecord> = block.clear_records().collect::<Result<_>>().unwrap();
    let pointers: Vec<_> = clear.iter().map(|record| (record.seq, record.written.map(|to| to.bp))).collect();
    assert_eq!(pointers, [(1, None), (2, Some(bp)), (3, None)]);
    assert_eq!(clear[2].shared, [bp, Blkptr::HOLE]);
}

fn name() -> impl Strategy<Value = Bytes> {
    vec(1..=255u8, 0..20).prop_map(Bytes::from)
}

fn data() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 1..40).prop_map(Bytes::from)
}

fn object() -> impl Strategy<Value = ObjectId> {
    (0..1u64 << 48).prop_map(ObjectId)
}

/// A plain uid or gid, or a FUID of one of two domains.
fn id() -> impl Strategy<Value = u64> {
    prop_oneof![0..1u64 << 32, (1..3u64, 0..1u64 << 32).prop_map(|(domain, rid)| domain << 32 | rid)]
}

fn new_object() -> impl Strategy<Value = NewObject> {
    (object(), object(), 1..=32u16, any::<[u64; 5]>(), id(), id()).prop_map(
        |(directory, object, slots, [mode, generation, s, ns, rdev], uid, gid)| NewObject {
            directory,
            object,
            slots,
            mode,
            uid,
            gid,
            generation,
            crtime: [s, ns],
            rdev,
        },
    )
}

fn attrs() -> impl Strategy<Value = LogAttrs> {
    (any::<[u32; 3]>(), any::<u64>(), any::<[u64; 2]>(), any::<[u8; 32]>()).prop_map(
        |(requested, attrs, crtime, scanstamp)| LogAttrs {
            requested: requested.to_vec(),
            attrs,
            crtime,
            scanstamp,
        },
    )
}

fn acl() -> impl Strategy<Value = LogAcl> {
    (any::<[u64; 2]>(), data(), vec(any::<u64>(), 0..4), vec(name(), 0..4)).prop_map(
        |([entry_count, flags], entries, fuids, domains)| LogAcl {
            entry_count,
            flags,
            entries,
            fuids,
            domains,
        },
    )
}

fn domains_of(uid: u64, gid: u64) -> Vec<Bytes> {
    (0..attr::owner_domains(uid, gid)).map(|i| Bytes::from(format!("S-1-{i}"))).collect()
}

fn create() -> impl Strategy<Value = Operation> {
    let parts = (any::<bool>(), new_object(), prop::option::of(attrs()), prop::option::of(acl()), name());
    parts.prop_map(|(dir, new, attrs, acl, name)| Operation::Create {
        kind: if dir { CreateKind::Directory } else { CreateKind::File },
        new,
        attrs,
        domains: if acl.is_some() { Vec::new() } else { domains_of(new.uid, new.gid) },
        acl,
        name,
    })
}

fn set_attr() -> impl Strategy<Value = Operation> {
    (object(), any::<[u64; 7]>(), id(), id(), prop::option::of(attrs())).prop_map(
        |(object, [mask, mode, size_bytes, a, b, c, d], uid, gid, attrs)| Operation::SetAttr {
            object,
            mask: mask & !(1 << 31 | 1 << 16) | u64::from(attrs.is_some()) << 31,
            mode,
            uid,
            gid,
            size_bytes,
            atime: [a, b],
            mtime: [c, d],
            attrs,
            domains: domains_of(uid, gid),
        },
    )
}

fn rename() -> impl Strategy<Value = Operation> {
    (0..3u8, new_object(), object(), name(), name()).prop_map(|(kind, new, to_directory, from, to)| {
        let kind = match kind {
            0 => RenameKind::Replace,
            1 => RenameKind::Exchange,
            _ => RenameKind::Whiteout(new),
        };
        Operation::Rename { kind, from_directory: new.directory, to_directory, from, to }
    })
}

fn write() -> impl Strategy<Value = Operation> {
    (any::<bool>(), object(), any::<[u64; 3]>(), any::<[u64; 16]>(), prop::option::of(data())).prop_map(
        |(already_synced, object, [offset_bytes, length, block_offset], bp, data)| Operation::Write {
            already_synced,
            object,
            offset_bytes,
            length_bytes: data.as_ref().map_or(length, |d| d.len() as u64),
            block_offset,
            bp: Blkptr::from_words(bp),
            data: data.map_or(WriteData::Indirect, WriteData::Copied),
        },
    )
}

fn simple() -> impl Strategy<Value = Operation> {
    let eights = (0..5usize).prop_map(|n| Bytes::from(vec![7; n * 8]));
    prop_oneof![
        (new_object(), name()).prop_map(|(new, name)| Operation::MakeXattrDir { new, name }),
        (new_object(), name(), name()).prop_map(|(new, name, target)| Operation::Symlink {
            new,
            name,
            target
        }),
        (any::<bool>(), object(), name()).prop_map(|(is_directory, directory, name)| Operation::Remove {
            is_directory,
            directory,
            name
        }),
        (object(), object(), name()).prop_map(|(directory, object, name)| Operation::Link {
            directory,
            object,
            name
        }),
        (object(), any::<[u64; 2]>()).prop_map(|(object, [offset_bytes, length_bytes])| {
            Operation::Truncate { object, offset_bytes, length_bytes }
        }),
        (object(), any::<u64>(), eights.clone())
            .prop_map(|(object, entry_count, entries)| Operation::SetAclV0 { object, entry_count, entries }),
        (object(), acl()).prop_map(|(object, acl)| Operation::SetAcl { object, acl }),
        (object(), name(), data()).prop_map(|(object, name, value)| Operation::SetSaXattr {
            object,
            name,
            value
        }),
        (object(), any::<[u64; 3]>(), vec(any::<[u64; 16]>(), 0..4)).prop_map(|(object, [a, b, c], bps)| {
            let blocks = bps.into_iter().map(Blkptr::from_words).collect();
            Operation::CloneRange { object, offset_bytes: a, length_bytes: b, block_bytes: c, blocks }
        }),
        (25..1000u64, eights).prop_map(|(txtype, payload)| Operation::Unknown { txtype, payload }),
    ]
}

fn record() -> impl Strategy<Value = LogRecord> {
    let operation = prop_oneof![create(), set_attr(), rename(), write(), simple()];
    (any::<u64>(), any::<u64>(), any::<bool>(), operation).prop_map(
        |(txg, seq, case_insensitive, operation)| LogRecord {
            txg: Txg(txg),
            seq,
            case_insensitive,
            operation,
        },
    )
}

proptest! {
    #[test]
    fn blocks_of_records_round_trip(
        records in vec(record(), 0..6),
        next in any::<[u64; 16]>(),
        big in any::<bool>(),
    ) {
        let endian = if big { Endian::Big } else { Endian::Little };
        let raw: Vec<u8> = records.iter().flat_map(|r| r.encode(endian)).collect();
        let eck = EmbeddedChecksum { endian, checksum: [1, 2, 3, 4] };
        let block = LogBlock { endian, next: Blkptr::from_words(next), eck, records: raw.into() };
        for layout in [LogLayout::Head, LogLayout::Tail] {
            let bytes = Bytes::from(block.encode(layout, 16384).unwrap());
            prop_assert_eq!(bytes.len(), 16384);
            let back = LogBlock::decode(&bytes, layout).unwrap();
            prop_assert_eq!(&back, &block);
            let back: Vec<LogRecord> = back.records().collect::<Result<_>>().unwrap();
            prop_assert_eq!(&back, &records);
        }
    }

    #[test]
    fn hostile_records_are_bounded(
        txtype in 0..26u64,
        raw in vec(prop_oneof![Just(0u8), any::<u8>()], 0..300),
    ) {
        let mut block = Vec::new();
        for word in [txtype, 32 + raw.len() as u64, 1, 1] {
            block.extend(word.to_le_bytes());
        }
        block.extend(raw);
        let len = block.len();
        if let Ok((_, used)) = LogRecord::decode(&block.into(), Endian::Little) {
            prop_assert_eq!(used, len);
        }
    }

    #[test]
    fn hostile_blocks_end(raw in vec(any::<u8>(), 0..400)) {
        let block = LogBlock {
            endian: Endian::Little,
            next: Blkptr::HOLE,
            eck: EmbeddedChecksum { endian: Endian::Little, checksum: [0; 4] },
            records: raw.into(),
        };
        prop_assert!(block.records().count() <= 400 / 32 + 1);
        prop_assert!(LogBlock::decode(&block.records, LogLayout::Head).is_err());
    }
}

#[test]
fn a_cut_or_overlong_block_is_refused() {
    let eck = EmbeddedChecksum { endian: Endian::Little, checksum: [0; 4] };
    let block = LogBlock { endian: Endian::Little, next: Blkptr::HOLE, eck, records: vec![0; 64].into() };
    assert!(block.encode(LogLayout::Head, ZIL_CHAIN_BYTES + 63).is_err());
    for layout in [LogLayout::Head, LogLayout::Tail] {
        let mut raw = block.encode(layout, 4096).unwrap();
        let used_at = if layout == LogLayout::Head { 136 } else { 4096 - ZIL_CHAIN_BYTES + 136 };
        raw[used_at..used_at + 8].copy_from_slice(&4097u64.to_le_bytes());
        assert!(LogBlock::decode(&raw.into(), layout).is_err());
    }
}

#[test]
fn a_file_create_reads_as_openzfs_lays_it_out() {
    let mut raw = Vec::new();
    let foid = 0x02 << 56 | 77; // 3 slots
    for word in [tx::CREATE | TX_CI, 112, 9, 5, 34, foid, 0o100644, 1000, 100, 8, 1, 2, 0] {
        raw.extend(u64::to_be_bytes(word));
    }
    raw.extend(b"caf\xe9.c\0\0");
    let (record, len) = LogRecord::decode(&raw.into(), Endian::Big).unwrap();
    assert_eq!(len, 112);
    assert!(record.case_insensitive);
    assert_eq!(record.operation.type_name(), "TX_CREATE");
    let Operation::Create { new, name, .. } = record.operation else { panic!("not a create") };
    assert_eq!((new.object, new.slots, new.directory, new.uid), (ObjectId(77), 3, ObjectId(34), 1000));
    assert_eq!(&name[..], b"caf\xe9.c");
}

#[test]
fn the_chain_goes_on_only_with_the_next_number() {
    let mut words = [0; 16];
    words[12..].copy_from_slice(&[11, 12, 54, 7]);
    let own = Blkptr::from_words(words);
    let eck = EmbeddedChecksum { endian: Endian::Little, checksum: [0; 4] };
    let mut block = LogBlock { endian: Endian::Little, next: own, eck, records: Bytes::new() };
    assert!(!block.continues(&own));
    words[15] = 8;
    block.next = Blkptr::from_words(words);
    assert!(block.continues(&own));
}

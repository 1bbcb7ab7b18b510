use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::units::BlockId;

const HASHER: ZapHasher = ZapHasher { salt: 0x1234_5678_9abc_def1, flags: 0 };

fn endian() -> impl Strategy<Value = Endian> {
    prop_oneof![Just(Endian::Little), Just(Endian::Big)]
}

fn name(max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(1u8.., 1..max)
}

#[derive(Debug, Clone)]
struct Value {
    int_bytes: u8,
    bytes: Vec<u8>,
}

fn value() -> impl Strategy<Value = Value> {
    (prop_oneof![Just(1u8), Just(2), Just(4), Just(8)], 0usize..9).prop_flat_map(|(int_bytes, count)| {
        vec(any::<u8>(), count * usize::from(int_bytes)).prop_map(move |bytes| Value { int_bytes, bytes })
    })
}

fn fill(entries: &BTreeMap<Vec<u8>, Value>, endian: Endian, shift: u32) -> (BTreeMap<Vec<u8>, Value>, Leaf) {
    let mut builder = LeafBuilder::new(shift, 0, 0, endian).unwrap();
    let mut kept = BTreeMap::new();
    for (name, value) in entries {
        if builder.add(HASHER.text(name), 0, name, value.int_bytes, &value.bytes).unwrap() {
            kept.insert(name.clone(), value.clone());
        }
    }
    (kept, builder.into_leaf().unwrap())
}

/// Reads everything, to check for panics and long loops.
fn exercise(leaf: &Leaf) {
    let mut name = Vec::new();
    for entry in leaf.entries().flatten() {
        _ = (entry.read_name(&mut name), entry.name_words(), entry.value_u64(), entry.value_words());
        _ = (leaf.lookup(entry.hash, &name), leaf.lookup_words(entry.hash, &[1]));
        assert!(name.capacity() <= 4 * 16384);
    }
}

proptest! {
    #[test]
    fn leaves_round_trip(
        entries in btree_map(name(60), value(), 0..40),
        endian in endian(),
        shift in 9u32..15,
    ) {
        let (kept, leaf) = fill(&entries, endian, shift);
        prop_assert_eq!(usize::from(leaf.entry_count), kept.len());
        for (name, value) in &kept {
            let entry = leaf.lookup(HASHER.text(name), name).unwrap().unwrap();
            prop_assert_eq!(&entry.name().unwrap(), name);
            prop_assert_eq!(&entry.value_bytes().unwrap(), &value.bytes);
            prop_assert_eq!(entry.int_bytes, value.int_bytes);
            prop_assert_eq!(entry.value_words().unwrap().len(), usize::from(entry.int_count));
        }
        for name in entries.keys().filter(|name| !kept.contains_key(*name)) {
            prop_assert!(leaf.lookup(HASHER.text(name), name).unwrap().is_none());
        }
        let listed = leaf.entries_in_order().unwrap();
        prop_assert!(listed.windows(2).all(|pair| pair[0].hash <= pair[1].hash));
        prop_assert_eq!(listed.len(), kept.len());
    }

    #[test]
    fn damaged_leaves_cost_no_panic(
        entries in btree_map(name(60), value(), 1..20),
        hits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..60),
    ) {
        let mut builder = LeafBuilder::new(11, 0, 0, Endian::Little).unwrap();
        for (name, value) in &entries {
            builder.add(HASHER.text(name), 0, name, value.int_bytes, &value.bytes).unwrap();
        }
        let mut block = builder.finish();
        for (at, value) in &hits {
            let at = 48 + at.index(block.len() - 48);
            block[at] = *value;
        }
        exercise(&Leaf::decode(block.into(), Endian::Little).unwrap());
    }

    #[test]
    fn noise_costs_no_panic(mut block in vec(any::<u8>(), 512..513), endian in endian()) {
        for kind in [ZBT_LEAF, ZBT_HEADER, ZBT_MICRO] {
            let first = if endian == Endian::Little { kind.to_le_bytes() } else { kind.to_be_bytes() };
            block[..8].copy_from_slice(&first);
            let block = Bytes::from(block.clone());
            if let Ok(ZapBlock0::Micro(micro)) = ZapBlock0::decode(block.clone(), endian) {
                prop_assert!(micro.entries().count() <= 7);
            }
            _ = Leaf::decode(block, endian).map(|leaf| exercise(&leaf));
        }
    }

    #[test]
    fn micro_round_trips(
        entries in btree_map(name(MZAP_NAME_LEN), (any::<u64>(), any::<u32>()), 0..31),
        endian in endian(),
    ) {
        let listed: Vec<_> =
            entries.iter().map(|(name, (value, cd))| MicroEntry { name, value: *value, cd: *cd }).collect();
        let block = MicroZap::encode(listed.iter().copied(), HASHER, 5, 2048, endian).unwrap();
        let ZapBlock0::Micro(micro) = ZapBlock0::decode(block.into(), endian).unwrap() else {
            panic!("not micro");
        };
        prop_assert_eq!((micro.salt, micro.normflags), (HASHER.salt, 5));
        prop_assert_eq!(micro.entries().collect::<Vec<_>>(), listed);
        for (name, (value, _)) in &entries {
            prop_assert_eq!(micro.lookup(name), Some(*value));
        }
    }
}

#[test]
fn the_hash_is_that_of_openzfs() {
    // CRC-64/XZ of "123456789" from all ones, before its final inversion.
    let hasher = ZapHasher { salt: u64::MAX, flags: ZAP_FLAG_HASH64 };
    assert_eq!(hasher.text(b"123456789"), !0x995D_C9BB_DF19_39FA & !0xffff);
    let short = ZapHasher { flags: 0, ..hasher };
    assert_eq!(short.text(b"123456789"), !0x995D_C9BB_DF19_39FA & !(u64::MAX >> 28));
    let text = ZapHasher { flags: ZAP_FLAG_UINT64_KEY | ZAP_FLAG_HASH64, ..hasher };
    assert_eq!(text.words(&[u64::from_le_bytes(*b"12345678")]), hasher.text(b"12345678"));
    let ready = ZapHasher { flags: ZAP_FLAG_PRE_HASHED_KEY | ZAP_FLAG_UINT64_KEY | ZAP_FLAG_HASH64, salt: 0 };
    assert_eq!(ready.words(&[0xabcd_ef01_2345_6789, 1]), 0xabcd_ef01_2345_0000);
}

#[test]
fn names_of_words_are_found() {
    let mut builder = LeafBuilder::new(12, 0, 0, Endian::Little).unwrap();
    let hasher = ZapHasher { flags: ZAP_FLAG_UINT64_KEY, ..HASHER };
    let keys = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]];
    for key in &keys {
        assert!(builder.add_words(hasher.words(key), 0, key, 8, &key[4].to_be_bytes()).unwrap());
    }
    let leaf = builder.into_leaf().unwrap();
    for key in &keys {
        let entry = leaf.lookup_words(hasher.words(key), key).unwrap().unwrap();
        assert_eq!(entry.value_u64().unwrap(), key[4]);
        assert_eq!(entry.name_words().unwrap(), key);
    }
}

#[test]
fn names_of_one_hash_stay_in_order_of_their_differentiator() {
    let mut builder = LeafBuilder::new(12, 0, 0, Endian::Little).unwrap();
    for (cd, name) in [(1, b"b"), (0, b"a"), (2, b"c")] {
        builder.add(7 << 40, cd, name, 1, &[]).unwrap();
    }
    let leaf = builder.into_leaf().unwrap();
    assert_eq!(leaf.find(7 << 40, |_| Ok(true)).unwrap().unwrap().name().unwrap(), b"a");
    let mut seen = Vec::new();
    leaf.find(7 << 40, |entry| {
        seen.push(entry.cd);
        Ok(false)
    })
    .unwrap();
    assert_eq!(seen, [0, 1, 2]);
}

#[test]
fn a_chain_that_bites_its_tail_ends() {
    let mut builder = LeafBuilder::new(9, 0, 0, Endian::Little).unwrap();
    builder.add(1 << 40, 0, b"x", 8, &[0; 8]).unwrap();
    let mut block = builder.finish();
    let chunk = 48 + 2 * 16;
    assert_eq!(block[chunk], 252);
    block[chunk + 2..chunk + 4].copy_from_slice(&[0, 0]);
    let leaf = Leaf::decode(block.into(), Endian::Little).unwrap();
    assert!(leaf.lookup(1 << 40, b"y").is_err());
}

#[test]
fn pointers_lie_in_the_header_or_in_a_table() {
    let mut block = vec![0; 1024];
    let mut put = |word: usize, value: u64| block[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
    put(0, ZBT_HEADER);
    put(1, ZAP_MAGIC);
    put(4, 6);
    put(10, 77);
    put(64 + 5, 3);
    let embedded = FatHeader::decode(block.clone().into(), Endian::Little).unwrap();
    assert_eq!(embedded.locate(embedded.table_index(5 << 58)), LeafPointer::Leaf(BlockId(3)));
    let pointers: Vec<_> = (0..embedded.table_len())
        .map(|i| match embedded.locate(i) {
            LeafPointer::Leaf(block) => block,
            LeafPointer::InTable { .. } => panic!("embedded"),
        })
        .collect();
    assert_eq!(embedded.encode(&pointers).unwrap(), block);

    let mut put = |word: usize, value: u64| block[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
    put(2, 9);
    put(3, 2);
    put(4, 8);
    let outside = FatHeader::decode(block.clone().into(), Endian::Little).unwrap();
    let index = outside.table_index(0xff << 56);
    assert_eq!(outside.locate(index), LeafPointer::InTable { block: BlockId(10), offset_bytes: 127 * 8 });

    for (word, value) in [(4, 9), (4, 64), (2, u64::MAX), (1, 5)] {
        let mut bad = block.clone();
        bad[word * 8..][..8].copy_from_slice(&u64::to_le_bytes(value));
        assert!(FatHeader::decode(bad.into(), Endian::Little).is_err(), "word {word} = {value}");
    }
    assert!(FatHeader::decode(block[..1000].to_vec().into(), Endian::Little).is_err());
}

//! Audits a fat ZAP: every pointer, leaf and chunk is accounted for. Decodes the bytes independently.

use std::collections::{BTreeMap, BTreeSet};

use cenote_format::units::BlockId;
use cenote_object::Zap;

const LEAF: u64 = 1 << 63;
const HEADER: u64 = LEAF + 1;
const END: u16 = 0xffff;

fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(block[at..at + 2].try_into().unwrap())
}

fn word(block: &[u8], index: usize) -> u64 {
    u64::from_ne_bytes(block[index * 8..index * 8 + 8].try_into().unwrap())
}

/// Panics on any inconsistency. Only fat ZAPs are checked: the reader hides the differentiators that a micro
/// ZAP's check needs.
pub async fn audit(zap: &Zap) {
    let object = zap.object();
    let block = async |id: u64| object.read_block(BlockId(id)).await.unwrap().0;
    let header = block(0).await;
    if word(&header, 0) != HEADER {
        return;
    }
    let (first, blocks, shift) = (word(&header, 2), word(&header, 3), word(&header, 4));
    let (free_block, leaf_count, entry_count) = (word(&header, 7), word(&header, 8), word(&header, 9));
    assert_eq!(word(&header, 5), 0, "no table is half copied");
    let mut pointers = Vec::new();
    if blocks == 0 {
        pointers.extend((header.len() / 16..header.len() / 8).map(|i| word(&header, i)));
    }
    for id in first..first + blocks {
        let table = block(id).await;
        pointers.extend((0..table.len() / 8).map(|i| word(&table, i)));
    }
    assert_eq!(pointers.len(), 1 << shift);
    let mut by_leaf: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (index, leaf) in pointers.iter().enumerate() {
        assert!(*leaf > 0 && *leaf < free_block && !(first..first + blocks).contains(leaf));
        by_leaf.entry(*leaf).or_default().push(index as u64);
    }
    assert_eq!(by_leaf.len() as u64, leaf_count);
    let mut entries = 0;
    for (id, indexes) in by_leaf {
        let leaf = block(id).await;
        let (prefix, prefix_len) = (word(&leaf, 2), u64::from(u16_at(&leaf, 32)));
        let spare = shift - prefix_len;
        let wanted: Vec<u64> = (prefix << spare..(prefix + 1) << spare).collect();
        assert_eq!(indexes, wanted, "pointers to leaf {id}");
        entries += audit_leaf(&leaf);
    }
    assert_eq!(entries, entry_count);
}

/// Every chunk is free, or part of one name or value of one entry in one chain. Returns the number of
/// entries.
fn audit_leaf(leaf: &[u8]) -> u64 {
    assert_eq!(word(leaf, 0), LEAF);
    let buckets = leaf.len() / 32;
    let count = (leaf.len() - 2 * buckets) / 24 - 2;
    let chunk = |n: u16| &leaf[48 + 2 * buckets + 24 * usize::from(n)..][..24];
    let mut seen = BTreeSet::new();
    let mut follow = |first: u16, kind: u8| {
        let (mut next, mut len) = (first, 0);
        while next != END {
            assert!(usize::from(next) < count && seen.insert(next) && chunk(next)[0] == kind);
            next = u16_at(chunk(next), 22);
            len += 1;
        }
        len
    };
    assert_eq!(follow(u16_at(leaf, 34), 253), u16_at(leaf, 28), "free chunks");
    let (prefix, prefix_len) = (word(leaf, 2), u32::from(u16_at(leaf, 32)));
    let (mut entries, mut hashes) = (Vec::new(), BTreeSet::new());
    for bucket in 0..buckets {
        let (mut next, mut last_cd) = (u16_at(leaf, 48 + 2 * bucket), 0);
        while next != END {
            let entry = chunk(next);
            let (cd, hash) = (u32::from_ne_bytes(entry[12..16].try_into().unwrap()), word(entry, 2));
            assert_eq!(entry[0], 252);
            assert_eq!(hash.checked_shr(64 - prefix_len).unwrap_or(0), prefix);
            assert_eq!((hash << prefix_len >> (64 - buckets.ilog2())) as usize, bucket);
            assert!(hashes.insert((hash, cd)), "one differentiator twice");
            assert!(cd >= last_cd, "a chain out of order");
            let (name, value) = (follow(u16_at(entry, 4), 251), follow(u16_at(entry, 8), 251));
            let value_bytes = u16_at(entry, 10) * u16::from(entry[1]);
            assert!(name >= 1 && value == value_bytes.div_ceil(21));
            entries.push(next);
            (next, last_cd) = (u16_at(entry, 2), cd);
        }
    }
    for entry in &entries {
        assert!(seen.insert(*entry), "an entry in two chains");
    }
    assert_eq!(seen.len(), count, "chunks are lost");
    assert_eq!(entries.len(), usize::from(u16_at(leaf, 30)));
    entries.len() as u64
}

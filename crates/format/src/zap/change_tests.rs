//! In-place changes compared with a map; damaged leaves; blocks in the other byte order.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;

const HASHER: ZapHasher = ZapHasher { salt: 0x1234_5678_9abc_def1, flags: 0 };

/// Name number, value and action.
type Change = (u8, Vec<u8>, u8);

fn changes() -> impl Strategy<Value = Vec<Change>> {
    vec((0u8..40, vec(any::<u8>(), 0..90), 0u8..4), 1..200)
}

fn name(number: u8) -> Vec<u8> {
    format!("{number}{}", "n".repeat(usize::from(number))).into_bytes()
}

fn hash(number: u8) -> u64 {
    HASHER.text(&[number / 2 + 1])
}

fn key(number: u8, stored: &[u8]) -> LeafKey<'_> {
    LeafKey { hash: hash(number), bytes: stored, len: stored.len() as u16 }
}

fn check(block: &[u8], model: &BTreeMap<u8, Vec<u8>>) {
    let leaf = Leaf::decode(block.to_vec().into(), Endian::NATIVE).unwrap();
    assert_eq!(leaf.entries().count(), model.len());
    for (number, value) in model {
        let entry = leaf.lookup(hash(*number), &name(*number)).unwrap().unwrap();
        assert_eq!(&entry.value_bytes().unwrap(), value);
    }
}

/// Returns whether the entry fit.
fn apply(leaf: &mut LeafMut<'_>, (number, value, action): &Change) -> Result<bool> {
    let stored = [&name(*number)[..], &[0]].concat();
    let value = LeafValue { int_bytes: 1, raw: value };
    match (leaf.find(key(*number, &stored))?, action) {
        (Some(slot), 0) => leaf.remove(slot).map(|_| true),
        (Some(slot), _) => leaf.set_value(slot, value),
        (None, 0) => Ok(true),
        (None, _) => leaf.add(key(*number, &stored), None, value),
    }
}

proptest! {
    #[test]
    fn a_changed_leaf_holds_what_a_map_holds(changes in changes(), shift in 10u32..13) {
        let mut block = vec![0; 1 << shift];
        LeafMut::init(&mut block, 0, 0, true).unwrap();
        let mut model = BTreeMap::new();
        for change in changes {
            let before = block.clone();
            let had_room = apply(&mut LeafMut::open(&mut block).unwrap(), &change).unwrap();
            let (number, value, action) = change;
            match (had_room, action) {
                (false, _) => prop_assert_eq!(&before, &block),
                (true, 0) => _ = model.remove(&number),
                (true, _) => _ = model.insert(number, value),
            }
        }
        check(&block, &model);

        let mut sibling = vec![0; 1 << shift];
        LeafMut::open(&mut block).unwrap().split(&mut sibling).unwrap();
        let is_upper = |number: &u8| hash(*number) >> 63 == 1;
        let (upper, lower): (BTreeMap<_, _>, BTreeMap<_, _>) =
            model.into_iter().partition(|(number, _)| is_upper(number));
        check(&sibling, &upper);
        check(&block, &lower);
        prop_assert_eq!(LeafMut::summary(&sibling).unwrap(), (1, 1, upper.len() as u16));
    }

    #[test]
    fn damaged_leaves_cost_no_panic(
        before in changes(),
        after in changes(),
        hits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let mut block = vec![0; 2048];
        let mut leaf = LeafMut::init(&mut block, 0, 0, false).unwrap();
        for change in &before {
            apply(&mut leaf, change).unwrap();
        }
        for (at, value) in hits {
            let at = 24 + at.index(block.len() - 24);
            block[at] = value;
        }
        if let Ok(mut leaf) = LeafMut::open(&mut block) {
            for change in &after {
                _ = apply(&mut leaf, change);
            }
            _ = leaf.split(&mut vec![0; 2048]);
        }
    }

    #[test]
    fn blocks_of_the_other_byte_order_become_native(
        entries in btree_map(vec(1u8.., 1..40), (vec(any::<u8>(), 0..40), any::<u32>()), 0..12),
    ) {
        let [native, foreign] = [Endian::NATIVE, Endian::NATIVE.swapped()].map(|endian| {
            let mut builder = LeafBuilder::new(11, 5, 0, endian).unwrap();
            for (name, (value, cd)) in &entries {
                builder.add(HASHER.text(name), *cd, name, 1, value).unwrap();
            }
            builder.finish()
        });
        let mut swapped = foreign;
        swap_block(&mut swapped);
        prop_assert_eq!(swapped, native);

        let listed = entries.iter().map(|(name, (value, cd))| {
            let value = value.len() as u64;
            MicroEntry { name, value, cd: *cd }
        });
        let [native, mut foreign] = [Endian::NATIVE, Endian::NATIVE.swapped()]
            .map(|endian| MicroZap::encode(listed.clone(), HASHER, 5, 2048, endian).unwrap());
        swap_block(&mut foreign);
        prop_assert_eq!(foreign, native);
    }
}

#[test]
fn all_numbers_of_a_leaf_or_a_micro_table_are_set_at_once() {
    let mut leaf = vec![0; 4096];
    let mut open = LeafMut::init(&mut leaf, 0, 0, false).unwrap();
    for number in 0..30u8 {
        let stored = [&name(number)[..], &[0]].concat();
        let raw = u64::from(number).to_be_bytes();
        assert!(open.add(key(number, &stored), None, LeafValue { int_bytes: 8, raw: &raw }).unwrap());
    }
    assert_eq!(set_numbers(&mut leaf, 77).unwrap(), 30);
    let set = (0..30).map(|number| (number, 77u64.to_be_bytes().to_vec())).collect();
    check(&leaf, &set);
    let listed = |leaf: &[u8], wanted| {
        let (leaf, mut names) = (Leaf::decode(leaf.to_vec().into(), Endian::NATIVE)?, Vec::new());
        let note = |name: &[u8], number| {
            names.push(name.to_vec());
            (number == 77).then_some(()).ok_or(FormatError::Corrupt { what: "number", why: "is another" })
        };
        leaf.each_number(|number| number == wanted, note)?;
        names.sort();
        Ok::<_, FormatError>(names)
    };
    // Names of one and of two chunks.
    let mut names: Vec<_> = (0..30).map(name).collect();
    names.sort();
    assert_eq!(listed(&leaf, 77).unwrap(), names);
    assert!(listed(&leaf, 78).unwrap().is_empty());
    // A text among them.
    let stored = [&name(30)[..], &[0]].concat();
    let text = LeafValue { int_bytes: 1, raw: b"text" };
    LeafMut::open(&mut leaf).unwrap().add(key(30, &stored), None, text).unwrap();
    assert!(listed(&leaf, 77).is_err() && set_numbers(&mut leaf, 5).is_err());

    let names = ["a", "bc", "d"];
    let entries =
        names.iter().zip(1..).map(|(name, value)| MicroEntry { name: name.as_bytes(), value, cd: 0 });
    let mut micro = MicroZap::encode(entries, HASHER, 0, 1024, Endian::NATIVE).unwrap();
    assert_eq!(set_numbers(&mut micro, 9).unwrap(), 3);
    let micro = MicroZap::decode(micro.into(), Endian::NATIVE).unwrap();
    assert!(names.iter().all(|name| micro.lookup(name.as_bytes()) == Some(9)));
    assert_eq!((micro.entries().count(), micro.salt), (3, HASHER.salt));
}

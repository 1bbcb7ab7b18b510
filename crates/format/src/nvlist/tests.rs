use proptest::collection::vec;
use proptest::prelude::*;

use super::{MAX_DEPTH, NvValue, Nvlist};

fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(1u8.., 0..12)
}

fn plain_value() -> impl Strategy<Value = NvValue> {
    prop_oneof![
        Just(NvValue::Boolean),
        any::<u8>().prop_map(NvValue::Byte),
        any::<i8>().prop_map(NvValue::Int8),
        any::<u8>().prop_map(NvValue::Uint8),
        any::<i16>().prop_map(NvValue::Int16),
        any::<u16>().prop_map(NvValue::Uint16),
        any::<i32>().prop_map(NvValue::Int32),
        any::<u32>().prop_map(NvValue::Uint32),
        any::<i64>().prop_map(NvValue::Int64),
        any::<u64>().prop_map(NvValue::Uint64),
        any::<i64>().prop_map(NvValue::Hrtime),
        any::<bool>().prop_map(NvValue::BooleanValue),
        (-1e9..1e9).prop_map(NvValue::Double),
        text().prop_map(NvValue::String),
        vec(any::<u8>(), 0..9).prop_map(NvValue::ByteArray),
        vec(any::<u8>(), 0..9).prop_map(NvValue::Uint8Array),
        vec(any::<i8>(), 0..9).prop_map(NvValue::Int8Array),
        vec(any::<bool>(), 0..9).prop_map(NvValue::BooleanArray),
        vec(any::<i16>(), 0..9).prop_map(NvValue::Int16Array),
        vec(any::<u16>(), 0..9).prop_map(NvValue::Uint16Array),
        vec(any::<i32>(), 0..9).prop_map(NvValue::Int32Array),
        vec(any::<u32>(), 0..9).prop_map(NvValue::Uint32Array),
        vec(any::<i64>(), 0..9).prop_map(NvValue::Int64Array),
        vec(any::<u64>(), 0..9).prop_map(NvValue::Uint64Array),
        vec(text(), 0..5).prop_map(NvValue::StringArray),
    ]
}

fn list() -> impl Strategy<Value = Nvlist> {
    let name = "[a-z:.]{0,9}";
    let leaf = vec((name, plain_value()), 0..6).prop_map(Nvlist::from_iter);
    leaf.prop_recursive(4, 40, 5, move |inner| {
        let value = prop_oneof![
            plain_value(),
            inner.clone().prop_map(NvValue::Nvlist),
            vec(inner, 0..4).prop_map(NvValue::NvlistArray),
        ];
        vec((name, value), 0..6).prop_map(Nvlist::from_iter)
    })
}

/// Memory of a decoded list, bounded by a small multiple of its packed bytes.
fn weight(list: &Nvlist) -> usize {
    size_of::<Nvlist>()
        + list
            .iter()
            .map(|(name, value)| {
                size_of::<(String, NvValue)>()
                    + name.len()
                    + match value {
                        NvValue::Nvlist(inner) => weight(inner),
                        NvValue::NvlistArray(lists) => lists.iter().map(weight).sum(),
                        NvValue::StringArray(v) => v.iter().map(|s| s.len() + size_of::<Vec<u8>>()).sum(),
                        NvValue::ByteArray(v) | NvValue::String(v) => v.len(),
                        NvValue::Uint64Array(v) => v.len() * 8,
                        _ => 0,
                    }
            })
            .sum::<usize>()
}

proptest! {
    #[test]
    fn xdr_round_trips(list in list()) {
        prop_assert_eq!(Nvlist::decode(&list.encode()).unwrap(), list);
    }

    #[test]
    fn cut_lists_are_refused(list in list(), cut in 0.0..1.0) {
        let packed = list.encode();
        let len = (packed.len() as f64 * cut) as usize;
        prop_assert!(Nvlist::decode(&packed[..len]).is_err());
    }

    #[test]
    fn damage_costs_no_panic_and_no_memory(
        list in list(),
        hits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        for packing in [0, 1] {
            let mut packed = list.encode();
            packed[0] = packing;
            for (at, value) in &hits {
                let at = at.index(packed.len() - 4) + 4;
                packed[at] = *value;
            }
            if let Ok(found) = Nvlist::decode(&packed) {
                prop_assert!(weight(&found) <= 64 + 8 * packed.len());
            }
        }
    }
}

fn native_pair(name: &str, data_type: u32, count: u32, value: &[u8]) -> Vec<u8> {
    let value_at = (16 + name.len() + 1).next_multiple_of(8);
    let size = value_at + value.len().next_multiple_of(8);
    let mut pair = (size as u32).to_le_bytes().to_vec();
    pair.extend((name.len() as u16 + 1).to_le_bytes());
    pair.extend([0, 0]);
    pair.extend(count.to_le_bytes());
    pair.extend(data_type.to_le_bytes());
    pair.extend(name.as_bytes());
    pair.resize(value_at, 0);
    pair.extend(value);
    pair.resize(size, 0);
    pair
}

#[test]
fn native_lists_with_lists_inside() {
    let mut packed = vec![0, 1, 0, 0];
    packed.extend([0, 0, 0, 0, 1, 0, 0, 0]);
    packed.extend(native_pair("n", 8, 1, &7u64.to_le_bytes()));
    // Pointers are stale memory of the writer and must not matter.
    let mut strings = vec![0xff; 16];
    strings.extend(b"ab\0c\0");
    packed.extend(native_pair("s", 17, 2, &strings));
    let mut head = vec![0, 0, 0, 0, 1, 0, 0, 0];
    head.extend([0xee; 16]);
    packed.extend(native_pair("list", 19, 1, &head));
    packed.extend(native_pair("inner", 9, 1, b"text\0"));
    packed.extend([0; 4]);
    let mut heads = vec![0xff; 16];
    heads.extend(head.iter().chain(&head));
    packed.extend(native_pair("lists", 20, 2, &heads));
    packed.extend([0; 4]);
    packed.extend(native_pair("second", 1, 0, &[]));
    packed.extend([0; 4]);
    packed.extend([0; 4]);

    let list = Nvlist::decode(&packed).unwrap();
    assert_eq!(list.get_u64("n"), Some(7));
    assert_eq!(list.get_string_array("s").unwrap(), [b"ab".to_vec(), b"c".to_vec()]);
    assert_eq!(list.get_nvlist("list").unwrap().get_str("inner"), Some("text"));
    let lists = list.get_nvlist_array("lists").unwrap();
    assert!(lists[0].is_empty());
    assert_eq!(lists[1].get_bool("second"), Some(true));
    assert_eq!(list.len(), 4);
    for len in 0..packed.len() {
        assert!(Nvlist::decode(&packed[..len]).is_err(), "cut at {len}");
    }
}

#[test]
fn big_endian_native_is_read() {
    let packed: Vec<u8> = [
        &[0, 0, 0, 0][..],
        &[0, 0, 0, 0, 0, 0, 0, 1],
        &[0, 0, 0, 32, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 8, b'n', 0, 0, 0, 0, 0, 0, 0],
        &258u64.to_be_bytes(),
        &[0; 4],
    ]
    .concat();
    assert_eq!(Nvlist::decode(&packed).unwrap().get_u64("n"), Some(258));
}

#[test]
fn nesting_is_bounded() {
    let nest = |depth: u32| {
        (0..depth).fold(Nvlist::new(), |inner, _| {
            let mut outer = Nvlist::new();
            outer.insert("l", NvValue::Nvlist(inner));
            outer
        })
    };
    assert!(Nvlist::decode(&nest(MAX_DEPTH).encode()).is_ok());
    assert!(Nvlist::decode(&nest(MAX_DEPTH + 1).encode()).is_err());
}

#[test]
fn a_count_is_not_believed_before_its_bytes_are_seen() {
    let mut list = Nvlist::new();
    list.insert("a", NvValue::Uint64Array(vec![1, 2]));
    let mut packed = list.encode();
    // Both counts of the array: after 12 bytes of heads, 8 of sizes, 8 of name, 4 of type.
    for at in [32, 36] {
        packed[at..at + 4].copy_from_slice(&0x2000_0000u32.to_be_bytes());
    }
    assert!(Nvlist::decode(&packed).is_err());
}

#[test]
fn text_is_laid_out_as_zdb_does() {
    let mut inner = Nvlist::new();
    inner.insert("type", NvValue::String(b"disk\xff".to_vec())).insert("flag", NvValue::Boolean);
    let mut list = Nvlist::new();
    list.insert("txg", NvValue::Uint64(4))
        .insert("holes", NvValue::Uint64Array(vec![1, 2]))
        .insert("children", NvValue::NvlistArray(vec![inner]));
    assert_eq!(
        list.to_string(),
        "txg: 4\nholes[0]: 1\nholes[1]: 2\nchildren[0]:\n    type: 'disk\\xff'\n    flag\n"
    );
}

//! File system structures: system attributes, old znodes, ACLs, FUID tables.
//!
//! Locking: the registry is built once, behind a `LazyLock`, and never changes.

use std::sync::LazyLock;

use cenote_format::bytes::Reader;
use cenote_format::sa::{SaReader, SaRegistry, ZplAttr};
use cenote_format::znode::{
    AclForm, AclPhys, Dirent, FuidTable, ZnodePhys, decode_aces, encode_aces, znode_flag_names,
};

use super::{ENDIANS, consume};

fn use_attributes(registry: &SaRegistry, data: &[u8]) {
    let Ok(reader) = SaReader::new(registry, data) else { return };
    for attr in ZplAttr::all() {
        consume((reader.get(attr), reader.u64(attr), reader.time(attr)));
    }
    let total: usize = reader.attributes().map(|(_, value)| value.len()).sum();
    // Attributes do not overlap unless the layout names one twice.
    consume((reader.endian(), total));
}

/// Attributes in a bonus or spill block, with the layouts that every file system registers.
pub fn sa(data: &[u8]) {
    static REGISTRY: LazyLock<SaRegistry> = LazyLock::new(|| {
        // Attributes in the module's registration order, and its most frequent layouts.
        let names: Vec<(&[u8], u64)> = ZplAttr::all()
            .enumerate()
            .map(|(number, attr)| {
                let (length, byteswap) = (u64::from(attr.registered_bytes()), u64::from(attr.byteswap()));
                (attr.name().as_bytes(), length << 24 | byteswap << 16 | number as u64)
            })
            .collect();
        let file: Vec<u64> = vec![5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 16, 19];
        let link: Vec<u64> = [&file[..], &[17]].concat();
        let with_project: Vec<u64> = [&file[..12], &[21], &file[12..], &[20]].concat();
        let layouts: [(&[u8], &[u64]); 4] =
            [(b"2", &file), (b"3", &link), (b"4", &with_project), (b"5", &[20])];
        SaRegistry::decode(names, layouts).expect("a real registry")
    });
    use_attributes(&REGISTRY, data);
}

/// A registry from the input, and attributes read with it.
pub fn sa_registry(data: &[u8]) {
    let (table, values) = data.split_at(data.len() / 2);
    let words: Vec<u64> = table.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let (registered, layouts) = words.split_at(words.len() / 2);
    let names: Vec<String> = registered.iter().map(|word| format!("A{}", word % 64)).collect();
    let registrations = names.iter().map(String::as_bytes).zip(registered.iter().copied());
    let numbers: Vec<String> = (0..layouts.len()).map(|number| number.to_string()).collect();
    let layouts = numbers.iter().map(String::as_bytes).zip(layouts.chunks(5));
    let Ok(registry) = SaRegistry::decode(registrations, layouts) else { return };
    consume((registry.attributes().count(), registry.layout(0).map(|layout| layout.attributes().count())));
    use_attributes(&registry, values);
}

/// An old znode in a bonus.
pub fn znode(data: &[u8]) {
    for endian in ENDIANS {
        let Ok(znode) = ZnodePhys::decode(data, endian) else { continue };
        consume((znode.kind(), znode.inline_link(), znode.scanstamp(), znode.acl.inline_aces()));
        let again = ZnodePhys::decode(&znode.encode(endian), endian).map(|znode| znode.encode(endian));
        assert_eq!(again, Ok(znode.encode(endian)), "encoded and decoded again");
    }
}

/// ACLs in both forms, and the words beside them.
pub fn acl(data: &[u8]) {
    for endian in ENDIANS {
        if let Ok(acl) = AclPhys::read(&mut Reader::new("ACL", data, endian)) {
            consume(acl.inline_aces());
        }
        for count in [0, 1, data.len() / 8, usize::MAX] {
            consume(decode_aces(AclForm::Initial, data, count, endian));
            let Ok(aces) = decode_aces(AclForm::Fuid, data, count, endian) else { continue };
            let packed = encode_aces(&aces, endian);
            assert_eq!(
                decode_aces(AclForm::Fuid, &packed, aces.len(), endian),
                Ok(aces),
                "packed and unpacked"
            );
        }
        for word in data.as_chunks::<8>().0.iter().map(|word| endian.u64(*word)) {
            consume((Dirent::from_word(word).to_word(), znode_flag_names(word).count()));
        }
    }
}

/// The table of FUID domains.
pub fn fuid(data: &[u8]) {
    let Ok(table) = FuidTable::decode(data) else { return };
    consume((table.domain(0), table.domain(1), table.domain(u32::MAX)));
}

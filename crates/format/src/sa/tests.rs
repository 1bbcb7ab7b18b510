use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Registration value: number, byte-swap class, length.
fn registration(number: u64, attr: ZplAttr) -> (&'static [u8], u64) {
    let value = number | u64::from(attr.byteswap()) << 16 | u64::from(attr.registered_bytes()) << 24;
    (attr.name().as_bytes(), value)
}

/// A file system with OpenZFS's usual attribute numbers, and its layouts for a file (2), a symbolic link (3)
/// and a file with ACL and xattrs, each of variable length (4).
pub(super) fn registry() -> SaRegistry {
    let registrations: Vec<_> = ZplAttr::all().zip(0..).map(|(attr, n)| registration(n, attr)).collect();
    let file = [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 16, 19];
    let link = [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 16, 19, 17];
    let mixed = [20, 5, 19, 6, 17];
    let layouts: [(&[u8], &[u64]); 3] = [(b"2", &file), (b"3", &link), (b"4", &mixed)];
    SaRegistry::decode(registrations, layouts).unwrap()
}

proptest! {
    #[test]
    fn what_is_packed_is_read(
        a in vec(any::<u8>(), 0..50),
        b in vec(any::<u8>(), 0..50),
        c in vec(any::<u8>(), 0..50),
        mode in any::<u64>(),
        big in any::<bool>(),
    ) {
        let registry = registry();
        let endian = if big { Endian::Big } else { Endian::Little };
        let mode_bytes = if big { mode.to_be_bytes() } else { mode.to_le_bytes() };
        let values: [&[u8]; 5] = [&a, &mode_bytes, &b, &[7; 8], &c];
        let packed = encode_sa(&registry, 4, &values, endian).unwrap();
        let reader = SaReader::new(&registry, &packed).unwrap();
        prop_assert_eq!(reader.u64(ZplAttr::Mode), Some(mode));
        prop_assert_eq!(reader.get(ZplAttr::Dxattr), Some(&a[..]));
        prop_assert_eq!(reader.get(ZplAttr::DaclAces), Some(&b[..]));
        prop_assert_eq!(reader.get(ZplAttr::Symlink), Some(&c[..]));
        prop_assert_eq!(reader.get(ZplAttr::Rdev), None);
        prop_assert_eq!(reader.attributes().map(|(_, v)| v).collect::<Vec<_>>(), values);
        for len in 0..packed.len() {
            prop_assert!(SaReader::new(&registry, &packed[..len]).is_err());
        }
    }

    #[test]
    fn noise_costs_no_panic(mut data in vec(any::<u8>(), 8..400), number in 0u16..6) {
        data[..4].copy_from_slice(&SA_MAGIC.to_le_bytes());
        data[4..6].copy_from_slice(&number.to_le_bytes());
        let registry = registry();
        if let Ok(reader) = SaReader::new(&registry, &data) {
            prop_assert!(reader.attributes().map(|(_, v)| v.len()).sum::<usize>() <= data.len());
            prop_assert!(ZplAttr::all().filter_map(|attr| reader.get(attr)).all(|v| v.len() <= data.len()));
        }
    }
}

#[test]
fn a_files_attributes_lie_where_openzfs_puts_them() {
    let registry = registry();
    let mut bonus = vec![0; 168 + 8];
    bonus[..4].copy_from_slice(&SA_MAGIC.to_le_bytes());
    bonus[4..6].copy_from_slice(&(2u16 | 1 << 10).to_le_bytes());
    bonus[6..8].copy_from_slice(&8u16.to_le_bytes());
    bonus[8..16].copy_from_slice(&0o100644u64.to_le_bytes());
    bonus[16..24].copy_from_slice(&4711u64.to_le_bytes());
    bonus[80..88].copy_from_slice(&(-5i64).to_le_bytes());
    bonus[88..96].copy_from_slice(&123u64.to_le_bytes());
    let reader = SaReader::new(&registry, &bonus).unwrap();
    assert_eq!(reader.u64(ZplAttr::Mode), Some(0o100644));
    assert_eq!(reader.u64(ZplAttr::Size), Some(4711));
    assert_eq!(reader.time(ZplAttr::Mtime), Some((-5, 123)));
    assert_eq!(reader.get(ZplAttr::DaclAces).unwrap().len(), 8);
}

#[test]
fn what_contradicts_itself_is_refused() {
    let registry = registry();
    assert!(SaReader::new(&registry, &[0; 200]).is_err());
    let mut unknown = vec![0; 200];
    unknown[..4].copy_from_slice(&SA_MAGIC.to_be_bytes());
    unknown[5] = 9;
    assert!(SaReader::new(&registry, &unknown).is_err());
    let none: [(&[u8], u64); 0] = [];
    for layout in [(&b"2"[..], &[99][..]), (b"two", &[1]), (b"1024", &[1]), (b"2", &[1 << 16])] {
        assert!(SaRegistry::decode(none, [layout]).is_err());
    }
}

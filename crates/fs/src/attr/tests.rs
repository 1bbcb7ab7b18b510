use super::*;
use cenote_format::bytes::{Endian, Writer};
use cenote_format::znode::ZFS_OLD_ZNODE_PHYS_SIZE;

fn dnode(bonus_type: u8, bonus: &[u8], spill: bool, endian: Endian) -> Dnode {
    let mut w = Writer::new(endian);
    w.bytes(&[19, 17, 1, 1, bonus_type, 0, 0, if spill { 5 } else { 1 }]);
    w.u16(1).u16(bonus.len() as u16).u8(0).pad_to(16).u64(0).u64(1000).pad_to(192).bytes(bonus).pad_to(512);
    Dnode::decode(w.finish().into(), endian).unwrap().unwrap()
}

fn znode(endian: Endian) -> Vec<u8> {
    let mut w = Writer::new(endian);
    w.words(&[1, 2, (-5i64).cast_unsigned(), 7, 3, 4, 5, 6, 42, 0o60660, 9, 34, 1, 77, 0x0080_0011]);
    w.words(&[pflags::IMMUTABLE | pflags::NODUMP, 1000, 1 << 32 | 70000]).pad_to(ZFS_OLD_ZNODE_PHYS_SIZE);
    w.finish()
}

#[test]
fn a_znode_shows_as_linux_shows_it() {
    for endian in [Endian::Little, Endian::Big] {
        let dnode = dnode(17, &znode(endian), false, endian);
        let Decoded::Done(attr) = Attr::decode(&SaRegistry::default(), &dnode).unwrap() else { panic!() };
        assert_eq!(attr.kind(), FileKind::BlockDevice);
        assert_eq!(attr.permissions(), 0o660);
        assert_eq!(attr.mtime.to_string(), "-5.000000007");
        assert_eq!(attr.owner(), (1000, 70000));
        assert_eq!(attr.device(), (8, 17));
        assert_eq!(attr.linux_flags(), 0x50);
        assert_eq!(attr.xattr_dir, Some(ObjectId(77)));
        assert_eq!(attr.sectors(), 2 + 1);
    }
}

#[test]
fn a_cut_znode_is_an_error() {
    let whole = znode(Endian::Little);
    assert!(Attr::decode(&SaRegistry::default(), &dnode(17, &whole[..143], false, Endian::Little)).is_err());
    assert!(Attr::decode(&SaRegistry::default(), &dnode(0, &whole, false, Endian::Little)).is_err());
}

/// Layout 2 has all attributes that every file has; layout 3 has only the device number.
fn table() -> SaRegistry {
    let registrations: Vec<_> = ZplAttr::all()
        .zip(0u64..)
        .map(|(attr, number)| (attr.name().as_bytes(), number | u64::from(attr.registered_bytes()) << 24))
        .collect();
    let base = [5, 6, 4, 12, 13, 7, 11, 8, 0, 1, 2, 3];
    SaRegistry::decode(registrations, [(&b"2"[..], &base[..]), (&b"3"[..], &[10][..])]).unwrap()
}

fn sa_buffer(layout: u16, words: &[u64]) -> Vec<u8> {
    let mut w = Writer::new(Endian::Little);
    w.bytes(&0x2f505au32.to_le_bytes()).u16(layout | 1 << 10).u16(0).words(words);
    w.finish()
}

#[test]
fn a_device_whose_number_is_in_the_spill_block_asks_for_it() {
    let base = |mode| sa_buffer(2, &[mode, 0, 8, 1, 2, 34, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4]);
    let table = table();
    let plain = dnode(44, &base(0o100644), true, Endian::Little);
    assert!(matches!(Attr::decode(&table, &plain).unwrap(), Decoded::Done(a) if a.has_spill));
    let device = dnode(44, &base(0o20600), true, Endian::Little);
    assert_eq!(Attr::decode(&table, &device).unwrap(), Decoded::NeedsSpill);
    let spill = sa_buffer(3, &[1 << 20 | 3]);
    let attr = Attr::decode_with_spill(&table, &device, &spill).unwrap();
    assert_eq!(attr.device(), (1, 3));
    let without = dnode(44, &base(0o20600), false, Endian::Little);
    assert!(Attr::decode(&table, &without).is_err());
}

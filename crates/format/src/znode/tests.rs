use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::nvlist::{NvValue, Nvlist};

fn ace() -> impl Strategy<Value = Ace> {
    let who = prop_oneof![
        Just(AceWho::Owner),
        Just(AceWho::OwningGroup),
        Just(AceWho::Everyone),
        any::<u64>().prop_map(|id| AceWho::User(Fuid(id))),
        any::<u64>().prop_map(|id| AceWho::Group(Fuid(id))),
    ];
    (0u16..10, 0u16..0x40, any::<u32>(), who, any::<[u8; 16]>()).prop_map(
        |(ace_type, flags, mask, who, object)| {
            let object_types = (5..=8).contains(&ace_type).then_some((object, [7; 16]));
            Ace { ace_type, flags, mask, who, object_types }
        },
    )
}

fn endian() -> impl Strategy<Value = Endian> {
    prop_oneof![Just(Endian::Little), Just(Endian::Big)]
}

proptest! {
    #[test]
    fn acls_round_trip(aces in vec(ace(), 0..12), endian in endian()) {
        let packed = encode_aces(&aces, endian);
        prop_assert_eq!(&decode_aces(AclForm::Fuid, &packed, aces.len(), endian).unwrap(), &aces);
        if !aces.is_empty() {
            let cut = &packed[..packed.len() - 1];
            prop_assert!(decode_aces(AclForm::Fuid, cut, aces.len(), endian).is_err());
        }
    }

    #[test]
    fn znodes_round_trip(mut bonus in vec(any::<u8>(), 264..320), version in 0u16..3, endian in endian()) {
        bonus[152..176].fill(0);
        let at = 176 + 12;
        bonus[at..at + 4].fill(0);
        let put = |n: u16| if endian == Endian::Little { n.to_le_bytes() } else { n.to_be_bytes() };
        bonus[at..at + 2].copy_from_slice(&put(version));
        match ZnodePhys::decode(&bonus, endian) {
            Ok(znode) => {
                prop_assert!(version < 2);
                prop_assert_eq!(znode.encode(endian), bonus);
                _ = (znode.inline_link(), znode.scanstamp(), znode.acl.inline_aces());
            }
            Err(_) => prop_assert_eq!(version, 2),
        }
    }

    #[test]
    fn directory_entries_round_trip(object in 0u64..1 << 48, kind in 0u8..16) {
        let stored = (kind != 0).then(|| FileKind::from_number(kind));
        let entry = Dirent { object: ObjectId(object), kind: stored };
        prop_assert_eq!(entry.to_word(), u64::from(kind) << 60 | object);
        prop_assert_eq!(Dirent::from_word(entry.to_word()), entry);
    }

    #[test]
    fn counts_are_not_believed(data in vec(any::<u8>(), 0..100), count in any::<usize>()) {
        for form in [AclForm::Initial, AclForm::Fuid] {
            if let Ok(aces) = decode_aces(form, &data, count, Endian::Little) {
                prop_assert!(aces.len() == count && count <= data.len() / 8);
            }
        }
    }
}

fn link(size: u64, tail: &[u8]) -> ZnodePhys {
    let mut bonus = vec![0; ZFS_OLD_ZNODE_PHYS_SIZE];
    bonus[72..80].copy_from_slice(&0o120777u64.to_le_bytes());
    bonus[80..88].copy_from_slice(&size.to_le_bytes());
    bonus.extend(tail);
    ZnodePhys::decode(&bonus, Endian::Little).unwrap()
}

#[test]
fn a_short_links_target_is_in_the_bonus() {
    assert_eq!(link(6, b"target..").inline_link(), Some(&b"target"[..]));
    assert_eq!(link(9, b"target..").inline_link(), None);
    assert_eq!(link(u64::MAX, b"target..").inline_link(), None);
    assert!(ZnodePhys::decode(&[0; 263], Endian::Little).is_err());
}

#[test]
fn old_entries_are_read() {
    let mut bonus = vec![0; ZFS_OLD_ZNODE_PHYS_SIZE];
    bonus[184] = 2;
    let entries: [(u32, u32, u16, u16); 2] = [(u32::MAX, 0x1ff, 0x1000, 0), (1001, 1, 0x43, 1)];
    for (i, (who, mask, flags, ace_type)) in entries.into_iter().enumerate() {
        let at = 192 + 12 * i;
        bonus[at..at + 4].copy_from_slice(&who.to_le_bytes());
        bonus[at + 4..at + 8].copy_from_slice(&mask.to_le_bytes());
        bonus[at + 8..at + 10].copy_from_slice(&flags.to_le_bytes());
        bonus[at + 10..at + 12].copy_from_slice(&ace_type.to_le_bytes());
    }
    let acl = ZnodePhys::decode(&bonus, Endian::Little).unwrap().acl;
    assert_eq!((acl.form, acl.count, acl.size_bytes), (AclForm::Initial, 2, 24));
    let aces = acl.inline_aces().unwrap();
    assert_eq!((aces[0].who, aces[0].mask, aces[0].flags), (AceWho::Owner, 0x1ff, 0));
    assert_eq!((aces[1].who, aces[1].ace_type, aces[1].flags), (AceWho::Group(Fuid(1001)), 1, 3));
    bonus[184] = 7;
    assert!(ZnodePhys::decode(&bonus, Endian::Little).unwrap().acl.inline_aces().is_err());
}

#[test]
fn domains_are_found_by_index() {
    let mut element = Nvlist::new();
    element
        .insert("fuid_idx", NvValue::Uint64(1))
        .insert("fuid_domain", NvValue::String(b"S-1-5-21-3".to_vec()));
    let mut list = Nvlist::new();
    list.insert("fuid_nvlist", NvValue::NvlistArray(vec![element]));
    let table = FuidTable::decode(&list.encode()).unwrap();
    let fuid = Fuid(1 << 32 | 1104);
    assert_eq!(table.sid(fuid).unwrap(), "S-1-5-21-3-1104");
    assert_eq!((fuid.posix(), Fuid(500).posix()), (None, Some(500)));
    assert_eq!(table.sid(Fuid(2 << 32)), None);
    assert!(FuidTable::decode(&Nvlist::new().encode()).is_err());
}

#[test]
fn flags_have_names() {
    let names: Vec<_> = znode_flag_names(ZFS_ACL_TRIVIAL | ZFS_IMMUTABLE | ZFS_PROJID).collect();
    assert_eq!(names, ["acl_trivial", "immutable", "projid"]);
}

use super::*;
use crate::nvlist::NvValue;
use crate::units::{Guid, Txg};

fn text(s: &str) -> NvValue {
    NvValue::String(s.as_bytes().to_vec())
}

fn disk(guid: u64) -> Nvlist {
    let mut list = Nvlist::new();
    list.insert("type", text("disk")).insert("guid", NvValue::Uint64(guid)).insert("path", text("/dev/sda"));
    list
}

fn member() -> Nvlist {
    let mut tree = Nvlist::new();
    tree.insert("type", text("raidz"))
        .insert("guid", NvValue::Uint64(10))
        .insert("nparity", NvValue::Uint64(2))
        .insert("ashift", NvValue::Uint64(12))
        .insert("raidz_expanding", NvValue::Boolean)
        .insert("raidz_expand_txgs", NvValue::Uint64Array(vec![5, 9]))
        .insert("vendor:new", NvValue::Uint64(1))
        .insert("children", NvValue::NvlistArray((11..17).map(disk).collect()));
    let mut features = Nvlist::new();
    features.insert("com.delphix:hole_birth", NvValue::Boolean);
    let mut list = Nvlist::new();
    list.insert("version", NvValue::Uint64(5000))
        .insert("name", text("tank"))
        .insert("state", NvValue::Uint64(1))
        .insert("txg", NvValue::Uint64(42))
        .insert("pool_guid", NvValue::Uint64(7))
        .insert("guid", NvValue::Uint64(11))
        .insert("vdev_tree", NvValue::Nvlist(tree))
        .insert("features_for_read", NvValue::Nvlist(features));
    list
}

#[test]
fn a_members_label_is_read_through_its_bytes() {
    let mut phys = member().encode();
    phys.resize(VDEV_PHYS_SIZE as usize, 0);
    let LabelConfig::Member(config) = LabelConfig::decode(&decode_config_nvlist(&phys).unwrap()).unwrap()
    else {
        panic!("not a member");
    };
    assert_eq!((config.name.as_str(), config.state, config.txg), ("tank", PoolState::Exported, Txg(42)));
    assert_eq!(config.hostid, None);
    assert_eq!(config.features_for_read, ["com.delphix:hole_birth"]);
    let tree = &config.vdev_tree;
    assert_eq!((&tree.kind, tree.parity, tree.ashift), (&VdevKind::Raidz, 2, 12));
    assert!(tree.raidz_expanding);
    assert_eq!(tree.raidz_expand_txgs, [Txg(5), Txg(9)]);
    assert_eq!(tree.other.get_u64("vendor:new"), Some(1));
    assert_eq!(tree.other.len(), 1);
    assert_eq!(tree.leaves().map(|v| v.guid).collect::<Vec<_>>(), [11, 12, 13, 14, 15, 16].map(Guid));
}

#[test]
fn what_is_wrong_is_named() {
    for (name, value) in [
        ("name", NvValue::Uint64(1)),
        ("txg", text("4")),
        ("hostname", NvValue::Boolean),
        ("vdev_tree", NvValue::Boolean),
    ] {
        let mut list = member();
        list.insert(name, value);
        let error = LabelConfig::decode(&list).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
    let mut list = member();
    let mut tree = list.get_nvlist("vdev_tree").unwrap().clone();
    tree.insert("ashift", NvValue::Uint64(70));
    list.insert("vdev_tree", NvValue::Nvlist(tree));
    assert!(LabelConfig::decode(&list).is_err());
    assert!(LabelConfig::decode(&Nvlist::new()).is_err());
}

fn draid(children: usize, pairs: &[(&str, u64)]) -> Nvlist {
    let mut list = Nvlist::new();
    list.insert("type", text("draid"))
        .insert("guid", NvValue::Uint64(10))
        .insert("children", NvValue::NvlistArray((0..children as u64).map(|i| disk(20 + i)).collect()));
    for (name, value) in pairs {
        list.insert(name, NvValue::Uint64(*value));
    }
    list
}

/// The geometry that `zpool create` chooses for these failure groups: rows are as many in all of them.
fn shape_of(parity: u64, data: u64, children: u64, failure_groups: u64, spares: u64) -> Nvlist {
    let (width, all) = (parity + data, children * failure_groups - spares);
    let groups_of = |disks: u64, rows: u64| rows * disks / width;
    let disks = |group| children - spares / failure_groups - u64::from(group < spares % failure_groups);
    let is_whole = |rows: &u64| (0..failure_groups).all(|group| (rows * disks(group)).is_multiple_of(width));
    let rows = (1..=width).find(is_whole).unwrap();
    let groups = (0..failure_groups).map(|group| groups_of(disks(group), rows)).sum();
    assert_eq!(groups * width, rows * all);
    let pairs = [("nparity", parity), ("draid_ndata", data), ("draid_nspares", spares)];
    let pairs = [&pairs[..], &[("draid_ngroups", groups), ("draid_nchildren", children)]].concat();
    draid((children * failure_groups) as usize, &pairs)
}

#[test]
fn draids_with_failure_domains_are_read_and_kept() {
    for (parity, data, children, groups, spares) in [
        (1, 2, 4, 2, 1),
        (2, 3, 6, 3, 2),
        (3, 2, 6, 4, 4),
        (1, 1, 3, 2, 0),
        (1, 4, 6, 5, 5),
        (2, 8, 12, 21, 9),
    ] {
        let vdev = VdevConfig::decode(&shape_of(parity, data, children, groups, spares)).unwrap();
        let shape = vdev.draid.unwrap();
        assert_eq!((shape.data, shape.spares, shape.failure_groups), (data, spares, groups));
        let last = (children * groups - 1) as usize;
        let (group, domain) = ((groups - 1) as usize, (children - 1) as usize);
        assert_eq!(vdev.failure_group_and_domain(last), Some((group, domain)));
        assert_eq!(vdev.failures([0, children as usize, last].into_iter()), 2, "two are of one domain");
        assert_eq!(VdevConfig::decode(&vdev.encode()).unwrap(), vdev);
    }
    // Without domains, in a pool with another dRAID that has some.
    let pairs = [("nparity", 1), ("draid_ndata", 2), ("draid_ngroups", 1), ("draid_nchildren", 3)];
    let plain = VdevConfig::decode(&draid(3, &pairs)).unwrap();
    assert_eq!(plain.draid.unwrap().failure_groups, 1);
    assert_eq!((plain.failure_group_and_domain(2), plain.failures([0, 2].into_iter())), (None, 2));
}

#[test]
fn forged_draids_are_refused() {
    let whole = shape_of(1, 2, 4, 2, 1);
    assert!(VdevConfig::decode(&whole).is_ok());
    let forged = [
        ("draid_nchildren", [0, 1, 2, 3, 5, 16, u64::MAX].as_slice()),
        ("draid_nspares", &[0, 2, 3, 7, 8, 9, u64::MAX - 1, u64::MAX]),
        ("draid_ngroups", &[0, 1, 6, 8, 1 << 16, 1 << 40, u64::MAX]),
        ("draid_ndata", &[0, 3, 4, 8, 1 << 62, u64::MAX - 1, u64::MAX]),
        ("nparity", &[0, 2, 3, 4, 255, u64::MAX]),
    ];
    for (name, values) in forged {
        for value in values {
            let mut list = whole.clone();
            list.insert(name, NvValue::Uint64(*value));
            assert!(VdevConfig::decode(&list).is_err(), "{name} {value}");
        }
    }
    // Four groups fill a row of twelve disks, but not the rows of three times four.
    let uneven = [("nparity", 1), ("draid_ndata", 2), ("draid_ngroups", 4)];
    assert!(VdevConfig::decode(&draid(12, &uneven)).is_ok());
    let uneven = [&uneven[..], &[("draid_nchildren", 4)]].concat();
    assert!(VdevConfig::decode(&draid(12, &uneven)).is_err());
    let wide = [("nparity", 1), ("draid_ndata", 1), ("draid_ngroups", 128), ("draid_nchildren", 2)];
    assert!(VdevConfig::decode(&draid(256, &wide)).is_err());
}

#[test]
fn spares_and_caches_have_labels_of_their_own() {
    let mut list = Nvlist::new();
    list.insert("version", NvValue::Uint64(5000))
        .insert("state", NvValue::Uint64(3))
        .insert("guid", NvValue::Uint64(99));
    assert!(matches!(LabelConfig::decode(&list).unwrap(), LabelConfig::Spare(aux) if aux.guid == Guid(99)));
    list.insert("state", NvValue::Uint64(4)).insert("ashift", NvValue::Uint64(12));
    assert!(
        matches!(LabelConfig::decode(&list).unwrap(), LabelConfig::L2cache(aux) if aux.ashift == Some(12))
    );
}

#[test]
fn labels_lie_at_both_ends() {
    let size = (64 << 20) + 4711;
    let offsets: Vec<_> = (0..VDEV_LABELS).map(|i| label_offset(size, i).unwrap()).collect();
    assert_eq!(offsets, [0, 256 << 10, (64 << 20) - (512 << 10), (64 << 20) - (256 << 10)]);
    assert_eq!(label_offset(size, 4), None);
    assert_eq!(label_offset(LABEL_BYTES * 4 - 1, 0), None);
    assert_eq!(VDEV_BOOT_OFFSET + VDEV_BOOT_SIZE, VDEV_LABEL_START_SIZE);
}

#[test]
fn the_ring_is_cut_by_ashift() {
    assert_eq!((uberblock_slot_bytes(9), uberblock_count(9)), (1024, 128));
    assert_eq!((uberblock_slot_bytes(12), uberblock_count(12)), (4096, 32));
    assert_eq!((uberblock_slot_bytes(16), uberblock_count(16)), (8192, 16));
    let ring = vec![0; VDEV_UBERBLOCK_RING as usize];
    let slots: Vec<_> = uberblock_slots(&ring, 12).collect();
    assert_eq!(slots.len(), 32);
    assert_eq!(slots[31].0 + 4096, LABEL_BYTES);
}

#[test]
fn boot_settings_in_every_form() {
    let mut block = vec![0; VDEV_PAD_SIZE as usize];
    assert_eq!(BootEnv::decode(&block).unwrap(), BootEnv::Raw(Vec::new()));
    block[7] = 1;
    block[8] = 9;
    assert!(BootEnv::decode(&block).is_err());
    let packed = disk(3).encode();
    block[8..8 + packed.len()].copy_from_slice(&packed);
    assert_eq!(BootEnv::decode(&block).unwrap(), BootEnv::Nvlist(disk(3)));
    block[0] = 1;
    assert!(matches!(BootEnv::decode(&block).unwrap(), BootEnv::Other(_)));
    assert!(BootEnv::decode(&block[..4000]).is_err());
}

//! Where dRAIDs put the sectors of their blocks.

use super::*;
use cenote_format::label::VdevKind;
use cenote_format::units::Guid;
use std::collections::BTreeSet;

/// A dRAID of `failure_groups` times `children` disks, with the fewest rows to a slice.
fn draid(ashift: u32, parity: u64, data: u64, children: u64, failure_groups: u64, spares: u64) -> Draid {
    let all = children * failure_groups;
    let mut shape = DraidConfig { data, groups: 0, spares, failure_groups };
    let width = parity + data;
    let rows = (1..=width).find(|rows| shape.disks(all).all(|disks| (rows * disks).is_multiple_of(width)));
    shape.groups = rows.unwrap() * (all - spares) / width;
    let child = |id| VdevConfig::new(VdevKind::Disk, id, Guid(100 + id));
    let config = VdevConfig {
        parity: parity as usize,
        draid: Some(shape),
        ashift,
        children: (0..all).map(child).collect(),
        ..VdevConfig::new(VdevKind::Draid, 0, Guid(1))
    };
    Draid::new(&config).unwrap()
}

#[test]
fn groups_and_spares_fill_each_row_of_each_slice_once() {
    for (parity, data, children, failure_groups, spares) in [
        (1, 2, 5, 1, 1),
        (1, 2, 4, 2, 1),
        (2, 3, 6, 3, 2),
        (3, 2, 6, 4, 4),
        (1, 1, 3, 2, 0),
        (2, 2, 9, 5, 8),
        (1, 3, 4, 3, 0),
    ] {
        let draid = draid(12, parity, data, children, failure_groups, spares);
        let slices = 3 * children;
        let mut seen = BTreeSet::new();
        for group in 0..slices * draid.shape.groups {
            let columns = draid.row(group * draid.group_bytes(), draid.row_data_bytes(), 0);
            let domains: BTreeSet<u64> = columns.iter().map(|column| column.slot as u64 % children).collect();
            assert_eq!(domains.len(), columns.len(), "group {group} has two disks of one domain");
            for column in columns {
                let row = (column.offset_bytes - VDEV_LABEL_START_SIZE) / ROW_BYTES;
                assert!(seen.insert((row, column.slot)), "group {group}: row {row} of {}", column.slot);
            }
        }
        for row in 0..slices * draid.slice_rows {
            for spare in 0..spares {
                let child = draid.spare_child(spare, row * ROW_BYTES + VDEV_LABEL_START_SIZE).unwrap();
                assert!(seen.insert((row, child)), "spare {spare}: row {row} of {child}");
            }
        }
        let all = children * failure_groups;
        assert_eq!(
            seen.len() as u64,
            slices * draid.slice_rows * all,
            "{children} {failure_groups} {spares}"
        );
        assert_eq!(draid.spare_child(spares, VDEV_LABEL_START_SIZE), None);
    }
}

/// Page of a block, at an offset of the vdev and with a length, and the disk and offset where it was found.
type Found = (u64, usize, usize, usize, u64);

/// Found by searching the disks of pools that OpenZFS's master wrote for pages of their files.
#[test]
fn pages_are_where_openzfs_puts_them() {
    // draid1:2d:4c:8w:1s
    let one: &[Found] = &[
        (0x2af000, 0x9200, 0, 1, 0x4e5000),
        (0x2af000, 0x9200, 4, 1, 0x4e9000),
        (0x2af000, 0x9200, 8, 3, 0x4e8000),
        (0x1abbc000, 0xa200, 0, 2, 0x5294000),
        (0x1abbc000, 0xa200, 9, 4, 0x5297000),
        (0x28002000, 0xb200, 0, 7, 0x5956000),
        (0x28002000, 0xb200, 10, 0, 0x595a000),
        (0x4237e000, 0xc200, 0, 2, 0xa52a000),
        (0x4237e000, 0xc200, 11, 4, 0xa52e000),
        (0x55482000, 0xd200, 0, 6, 0xcad6000),
        (0x55482000, 0xd200, 12, 7, 0xcadb000),
        (0x5003d000, 0xe200, 0, 0, 0xaebf000),
        (0x5003d000, 0xe200, 13, 6, 0xbec4000),
    ];
    // draid2:3d:6c:18w:2s
    let two: &[Found] = &[
        (0x780000, 0x100000, 0, 3, 0x580000),
        (0x780000, 0x100000, 247, 11, 0x5cc000),
        (0xadc000, 0x100000, 238, 11, 0x66f000),
        (0x62c82000, 0x100000, 0, 2, 0x901a000),
        (0x62e30000, 0x100000, 128, 6, 0x909a000),
        (0x62fde000, 0x100000, 255, 4, 0x911a000),
    ];
    // draid3:2d:6c:24w:4s
    let three: &[Found] = &[
        (0x42eaf000, 0x100000, 0, 10, 0x3a23000),
        (0x4312f000, 0x100000, 128, 7, 0x3aa3000),
        (0x433af000, 0x100000, 255, 7, 0x3ba2000),
    ];
    for (draid, found) in
        [(draid(12, 1, 2, 4, 2, 1), one), (draid(12, 2, 3, 6, 3, 2), two), (draid(9, 3, 2, 6, 4, 4), three)]
    {
        for &(offset, psize, page, disk, at) in found {
            let byte = page << 12;
            let rows = draid.rows(offset, psize).unwrap();
            let data = rows.iter().flat_map(|(parity, columns)| columns.iter().skip(*parity));
            let mut holding =
                data.filter(|column| (column.data_at..column.data_at + column.len).contains(&byte));
            let column = holding.next().unwrap();
            let here = column.offset_bytes + (byte - column.data_at) as u64;
            assert_eq!((column.slot, here), (disk, at), "page {page} of {offset:#x}");
        }
    }
}

//! Round trip of the MOS configuration, as engines write it there and to labels.

use crate::open;
use cenote_format::label::PoolConfig;
use cenote_format::nvlist::Nvlist;
use cenote_runtime::Runtime;

/// First lines that differ.
fn first_difference(a: &Nvlist, b: &Nvlist) -> String {
    let (a, b) = (a.to_string(), b.to_string());
    let pair = a.lines().zip(b.lines()).find(|(a, b)| a != b);
    format!("{pair:?}, {} and {} lines", a.lines().count(), b.lines().count())
}

#[test]
fn every_configuration_encodes_to_the_same_list() {
    let rt = Runtime::real(None);
    let (mut compared, mut differ) = (0, Vec::new());
    for golden in cenote_testkit::golden_pools() {
        let mos = rt.block_on(open(&rt, &golden));
        let list = mos.config();
        compared += 1;
        let again = PoolConfig::decode(list).unwrap().encode();
        // Lists by zfs-fuse omit the features; OpenZFS writes at least an empty list. Allocation sizes by 2.4
        // are informational, so we omit them.
        let is_meant = list.contains("features_for_read") && !golden.is_of_2_4();
        if again.encode() != list.encode() && is_meant {
            differ.push(format!("{}: {}", golden.name(), first_difference(list, &again)));
        }
    }
    println!("{compared} compared");
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}

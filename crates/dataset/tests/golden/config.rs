//! The configuration in the MOS, decoded and encoded again: what an engine will write there and into labels.

use crate::open;
use cenote_format::label::PoolConfig;
use cenote_format::nvlist::Nvlist;
use cenote_runtime::Runtime;

/// The first lines in which two lists differ.
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
        // Those by zfs-fuse have no list of features; OpenZFS writes one, if need be an empty one. What 2.4
        // says there of the sizes of allocations only informs: it is left out.
        let is_meant = list.contains("features_for_read") && !golden.is_of_2_4();
        if again.encode() != list.encode() && is_meant {
            differ.push(format!("{}: {}", golden.name(), first_difference(list, &again)));
        }
    }
    println!("{compared} compared");
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}

//! Properties and their sources, against `zfs get -Hp all`.

use crate::open;
use cenote_runtime::Runtime;
use cenote_testkit::golden_pools;
use std::collections::{BTreeMap, BTreeSet};

type Rows = BTreeMap<(String, String), (String, String)>;

/// Properties exempt from the comparison: none.
const DEPENDS_ON_THE_MOMENT: [&str; 0] = [];

/// Whether OpenZFS 2.3 omits a property, in general or for volumes.
fn is_new_in_2_4(property: &str) -> bool {
    (property.starts_with("default") && property.ends_with("quota")) || property == "special_small_blocks"
}

#[test]
fn every_property_is_what_zfs_get_says() {
    let rt = Runtime::real(Some(2));
    let mut differences = Vec::new();
    for pool in golden_pools() {
        let name = pool.name();
        // The recorded values were taken after the kernel replayed the intent logs on a copy.
        if pool.facts().state.starts_with("unclean") {
            continue;
        }
        let datasets: BTreeSet<String> = pool.facts().datasets.iter().map(|d| d.name.clone()).collect();
        let is_dataset_row =
            |r: &cenote_testkit::PropertyRow| datasets.contains(&r.name) && !r.name.contains('#');
        let rows = pool.properties();
        // The pool's rows come first, up to the root dataset's `type`.
        let first = rows.iter().position(|r| r.property == "type").unwrap();
        let wanted: Rows = rows[first..]
            .iter()
            .filter(|r| is_dataset_row(r))
            .map(|r| ((r.name.clone(), r.property.clone()), (r.value.clone(), r.source.clone())))
            .collect();
        let found: Rows = rt.block_on(async {
            let mos = open(&rt, &pool).await;
            let mut rows = Rows::new();
            for head in mos.all_datasets().await.unwrap() {
                for dataset in head.snapshots().await.unwrap().into_iter().chain([head]) {
                    for property in dataset.properties().await.unwrap() {
                        let row = (property.literal(), property.source.to_string());
                        rows.insert((dataset.name().to_owned(), property.name), row);
                    }
                }
            }
            rows
        });
        for key in wanted.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
            let (is, should) = (found.get(key), wanted.get(key));
            let is_new = key.1 == "snapshots_changed_nsecs" || !pool.is_of_2_4() && is_new_in_2_4(&key.1);
            let is_missing = should.is_none() && is_new;
            // Its default differs in 2.4.
            let is_default = key.1 == "xattr" && pool.is_of_2_4();
            if is != should && !is_missing && !is_default && !DEPENDS_ON_THE_MOMENT.contains(&key.1.as_str())
            {
                differences.push(format!("{name}: {} {}: {is:?}, zfs says {should:?}", key.0, key.1));
            }
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

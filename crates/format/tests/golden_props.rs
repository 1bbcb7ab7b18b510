//! Compares property and feature tables with OpenZFS's output for the golden pools (`props.tsv`).

use cenote_format::features::{FEATURES_OF_2_3, SPA_FEATURES};
use cenote_format::props::{Prop, PropType, ZFS_PROPS, ZPOOL_PROPS};
use cenote_testkit::{PropertyRow, golden, golden_pools};

/// All rows with the name of their golden pool.
fn rows() -> Vec<(String, PropertyRow)> {
    let printed = golden_pools().filter(|pool| pool.folder().join("props.tsv").exists());
    printed.flat_map(|pool| pool.properties().into_iter().map(move |row| (pool.name().into(), row))).collect()
}

#[test]
fn zfs_get_all_prints_our_properties_in_our_order() {
    // `zpool get` comes first for each pool; a dataset's properties begin with its type.
    let (mut table, mut next, mut checked) = (&ZPOOL_PROPS[..], 0, 0);
    for (pool, PropertyRow { name, property, value, source }) in rows() {
        match property.as_str() {
            "size" => (table, next) = (&ZPOOL_PROPS[..], 0),
            "type" => (table, next) = (&ZFS_PROPS[..], 0),
            other if other.contains([':', '@', '#']) => continue,
            _ => {}
        }
        let what = format!("{pool}: {name}: {property}={value} ({source})");
        let index = table[next..].iter().position(|p| p.name == property);
        let prop =
            &table[next + index.unwrap_or_else(|| panic!("{what}: not in the table, or out of order"))];
        assert!(prop.visible, "{what}: is shown");
        check_value(prop, &value, &source, &what);
        next += index.unwrap_or_default() + 1;
        checked += 1;
    }
    assert!(checked > 1000, "only {checked} properties were there");
}

fn check_value(prop: &Prop, value: &str, source: &str, what: &str) {
    assert!(prop.is_inheritable() || !source.starts_with("inherited"), "{what}: is inherited");
    if value == "-" {
        return;
    }
    match prop.value {
        PropType::Index { default, .. } if !matches!(prop.name, "mounted" | "defer_destroy") => {
            let number = prop.index_number(value).unwrap_or_else(|| panic!("{what}: unknown value"));
            if source == "default" {
                assert_eq!(number, default, "{what}");
            }
        }
        PropType::Number { default } if source == "default" && default != u64::MAX => {
            assert_eq!(value.parse(), Ok(default), "{what}");
        }
        _ => {}
    }
}

#[test]
fn zpool_get_all_prints_our_features_in_our_order() {
    let mut by_pool = std::collections::BTreeMap::<String, Vec<String>>::new();
    for (pool, row) in rows() {
        if let Some(feature) = row.property.strip_prefix("feature@") {
            by_pool.entry(pool).or_default().push(feature.to_owned());
        }
    }
    let ours: Vec<_> = SPA_FEATURES.iter().map(|f| f.name.to_owned()).collect();
    for (pool, theirs) in by_pool {
        let ours = if golden(&pool).is_of_2_4() { &ours } else { &ours[..FEATURES_OF_2_3] };
        assert_eq!(theirs, ours, "{pool}");
    }
}

//! The property and feature tables against what OpenZFS printed for the golden pools (`props.tsv`).
//!
//! Looks for the pools in `CENOTE_SHARED`, else beside the workspace; says so and passes if there are none.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that can't go on must stop")]

use std::path::PathBuf;

use cenote_format::features::SPA_FEATURES;
use cenote_format::props::{Prop, PropType, ZFS_PROPS, ZPOOL_PROPS};

fn pools() -> Option<PathBuf> {
    let shared = match std::env::var_os("CENOTE_SHARED") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    let pools = shared.join("pools");
    if !pools.is_dir() {
        eprintln!("skipped: no golden pools at {} (set CENOTE_SHARED)", pools.display());
        return None;
    }
    Some(pools)
}

/// Every row of every pool: (pool, name, property, value, source).
fn rows(pools: PathBuf) -> Vec<[String; 5]> {
    let mut rows = Vec::new();
    for entry in std::fs::read_dir(pools).expect("the pools folder lists") {
        let dir = entry.expect("the pools folder lists");
        let Ok(text) = std::fs::read_to_string(dir.path().join("props.tsv")) else { continue };
        let pool = dir.file_name().to_string_lossy().into_owned();
        rows.extend(text.lines().filter_map(|line| {
            let mut f = line.split('\t').map(str::to_owned);
            Some([pool.clone(), f.next()?, f.next()?, f.next()?, f.next()?])
        }));
    }
    rows
}

#[test]
fn zfs_get_all_prints_our_properties_in_our_order() {
    let Some(pools) = pools() else { return };
    // `zpool get` comes first for each pool; every dataset's properties begin with its type.
    let (mut table, mut next, mut checked) = (&ZPOOL_PROPS[..], 0, 0);
    for [pool, name, property, value, source] in rows(pools) {
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
    let Some(pools) = pools() else { return };
    let mut by_pool = std::collections::BTreeMap::<String, Vec<String>>::new();
    for [pool, _, property, _, _] in rows(pools) {
        if let Some(feature) = property.strip_prefix("feature@") {
            by_pool.entry(pool).or_default().push(feature.to_owned());
        }
    }
    let ours: Vec<_> = SPA_FEATURES.iter().map(|f| f.name.to_owned()).collect();
    for (pool, theirs) in by_pool {
        assert_eq!(theirs, ours, "{pool}");
    }
}

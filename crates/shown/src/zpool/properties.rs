//! Values of properties of pools and vdevs as text.

use cenote_control::answers::{Property, Value, VdevState};
use cenote_control::text::{nice_bytes, nice_number};
use cenote_control::zpool::shown::vdev_properties::state_number;
use cenote_format::features::SPA_VERSION_FEATURES;
use cenote_format::props::Prop;

/// A value, rounded for people or exact.
pub fn text(property: &Property, exact: bool) -> String {
    let number = match &property.value {
        Value::Text(text) => return text.clone(),
        Value::Number(number) => *number,
    };
    let ratio = || format!("{}.{:02}", number / 100, number % 100);
    match figure(&property.name) {
        "version" if number >= SPA_VERSION_FEATURES => "-".into(),
        "expandsize" | "checkpoint" if number == 0 => "-".into(),
        "dedup_table_quota" if number == u64::MAX => "auto".into(),
        "dedup_table_quota" if number == 0 && !exact => "none".into(),
        "dedupratio" | "bcloneratio" if exact => ratio(),
        "dedupratio" | "bcloneratio" => ratio() + "x",
        "capacity" | "fragmentation" if !exact => format!("{number}%"),
        "checkpoint" | "expandsize" if !exact => nice_bytes(number),
        "size" | "allocated" | "free" | "freeing" | "leaked" | "bclonesaved" | "bcloneused"
        | "dedupsaved" | "dedupused" | "available" | "usable" | "used" | "dedup_table_size"
        | "dedup_table_quota" | "ashift"
            if !exact =>
        {
            nice_number(number)
        }
        name => match Prop::zpool(name).and_then(|prop| prop.index_name(number)) {
            Some(text) => text.into(),
            None => number.to_string(),
        },
    }
}

/// The property that has the same form: `size` for `class_normal_size`.
fn figure(name: &str) -> &str {
    let of_class = name.strip_prefix("class_").and_then(|name| name.rsplit_once('_'));
    of_class.map_or(name, |(_, figure)| figure)
}

const STATES: [VdevState; 6] = [
    VdevState::Unavailable,
    VdevState::Faulted,
    VdevState::Offline,
    VdevState::Removed,
    VdevState::Degraded,
    VdevState::Online,
];

/// A value of a vdev, rounded for people or exact.
pub fn vdev_text(property: &Property, exact: bool) -> String {
    let number = match &property.value {
        Value::Text(text) => return text.clone(),
        Value::Number(number) => *number,
    };
    match property.name.as_str() {
        "expandsize" if number == 0 => "-".into(),
        "fragmentation" => format!("{number}%"),
        "capacity" if !exact => format!("{number}%"),
        "state" if !exact => {
            let state = STATES.into_iter().find(|state| state_number(*state) == number);
            state.map_or_else(String::new, |state| state.to_string())
        }
        "asize" | "psize" | "size" | "free" | "allocated" | "expandsize" | "read_errors" | "write_errors"
        | "checksum_errors"
            if !exact =>
        {
            nice_number(number)
        }
        name if !exact && (name.ends_with("_ops") || name.ends_with("_bytes")) => nice_number(number),
        _ => number.to_string(),
    }
}

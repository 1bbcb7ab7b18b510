//! A property's value as `zfs` prints it, and the columns of properties.
//!
//! Source: OpenZFS `zfs_prop_get`, `zfs_prop.c` (columns, alignment).

use cenote_control::answers::{Property, Value};
use cenote_control::text::{nice_bytes, nice_number, short_time, short_time_seconds};
use cenote_control::zfs::wanted::Wanted;
use cenote_format::props::{Prop, PropType};

use crate::table::Align;

/// The heading and alignment of a property's column.
pub fn heading(wanted: &Wanted) -> (String, Align) {
    match wanted {
        Wanted::Native(prop) => (prop.column.into(), align(prop)),
        other => (other.name().to_uppercase(), Align::Left),
    }
}

/// The column's minimum width that `zfs` uses: any size fits, and any name of an index property.
pub fn least_width(wanted: &Wanted) -> usize {
    match wanted {
        Wanted::Native(Prop { value: PropType::Number { .. }, .. }) => 5,
        Wanted::Native(Prop { value: PropType::Index { values, .. }, .. }) => {
            values.iter().map(|(name, _)| name.len()).max().unwrap_or(0)
        }
        _ => 0,
    }
}

fn align(prop: &Prop) -> Align {
    match prop.value {
        PropType::Number { .. }
            if !matches!(prop.name, "creation" | "snapshots_changed" | "snapshots_changed_nsecs") =>
        {
            Align::Right
        }
        _ => Align::Left,
    }
}

/// The value, rounded for people or exact.
pub fn text(property: &Property, exact: bool) -> String {
    match property.value {
        Value::Number(number) if !exact => human(property, number),
        _ => property.literal(),
    }
}

/// The received value in the same form.
pub fn received_text(property: &Property, exact: bool) -> Option<String> {
    let received = Property { value: property.received.clone()?, ..property.clone() };
    Some(text(&received, exact))
}

fn human(property: &Property, number: u64) -> String {
    let seconds = number.cast_signed();
    match property.name.as_str() {
        name if name.contains("quota@") && number == 0 => "none".into(),
        name if name.contains("obj") && name.contains('@') => nice_number(number),
        name if name.contains('@') => nice_bytes(number),
        "creation" => short_time(seconds),
        "snapshots_changed" => short_time_seconds(seconds),
        "quota" | "refquota" | "reservation" | "refreservation" if number == 0 => "none".into(),
        "filesystem_limit" | "snapshot_limit" | "filesystem_count" | "snapshot_count"
            if number == u64::MAX =>
        {
            "none".into()
        }
        "compressratio" | "refcompressratio" => property.literal() + "x",
        "guid"
        | "keyguid"
        | "ivsetguid"
        | "createtxg"
        | "objsetid"
        | "pbkdf2iters"
        | "snapshots_changed_nsecs" => number.to_string(),
        "referenced"
        | "available"
        | "used"
        | "usedbysnapshots"
        | "usedbydataset"
        | "usedbyrefreservation"
        | "usedbychildren"
        | "quota"
        | "refquota"
        | "reservation"
        | "refreservation" => nice_bytes(number),
        "mounted" => property.literal(),
        name => match Prop::zfs(name).map(|prop| prop.value) {
            Some(PropType::Index { .. }) => property.literal(),
            _ => nice_number(number),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_control::answers::Source;

    #[test]
    fn values_look_like_those_of_zfs() {
        for (name, number, people, exact) in [
            ("used", 24576, "24K", "24576"),
            ("used", 512, "512B", "512"),
            ("recordsize", 131072, "128K", "131072"),
            ("quota", 0, "none", "0"),
            ("compressratio", 183, "1.83x", "1.83"),
            ("guid", 14959957466432596274, "14959957466432596274", "14959957466432596274"),
            ("creation", 1795245622, "Sat Nov 21  7:20 2026", "1795245622"),
            ("snapshot_limit", u64::MAX, "none", "none"),
            ("snapshots_changed_nsecs", 1795245622000000007, "1795245622000000007", "1795245622000000007"),
            ("mounted", 0, "no", "no"),
            ("compression", 10, "gzip", "gzip"),
        ] {
            let value = Value::Number(number);
            let property = Property { name: name.into(), value, source: Source::None, received: None };
            assert_eq!(
                (text(&property, false), text(&property, true)),
                (people.into(), exact.into()),
                "{name}"
            );
        }
    }

    #[test]
    fn columns_of_other_properties_are_their_names() {
        assert_eq!(heading(&Wanted::parse("com.example:x").unwrap()).0, "COM.EXAMPLE:X");
    }
}

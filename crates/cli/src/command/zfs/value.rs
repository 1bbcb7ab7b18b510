//! A property's value as `zfs` prints it, and the columns that properties get.
//!
//! Source: OpenZFS `zfs_prop_get`, `zfs_prop.c` (columns, alignment).

use cenote_dataset::{Property, Value};
use cenote_format::props::{Prop, PropType, ZFS_PROPS};

use super::owner::OwnerProp;
use crate::outcome::CliError;
use crate::render::{Align, nice_bytes, nice_number, short_time, short_time_seconds};

/// A property that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// A native property.
    Native(&'static Prop),
    /// A user property.
    User(String),
    /// `written@SNAPSHOT` or `written#BOOKMARK`, without `written`.
    WrittenSince(String),
    /// `userused@NUMBER` and similar.
    OfOwner(OwnerProp),
}

/// What `space` stands for.
const SPACE: [&str; 7] = [
    "name",
    "available",
    "used",
    "usedbysnapshots",
    "usedbydataset",
    "usedbyrefreservation",
    "usedbychildren",
];

impl Wanted {
    /// Parses names with commas between them; `space` stands for several.
    pub fn parse_list(names: &str) -> Result<Vec<Wanted>, CliError> {
        let mut all = Vec::new();
        for name in names.split(',') {
            let own = [name];
            let meant = if name == "space" { &SPACE[..] } else { &own };
            for name in meant {
                all.push(Wanted::parse(name)?);
            }
        }
        Ok(all)
    }

    /// Parses a property's name or column heading.
    pub fn parse(name: &str) -> Result<Wanted, CliError> {
        if let Some(since) = name.strip_prefix("written").filter(|since| since.starts_with(['@', '#'])) {
            return Ok(Wanted::WrittenSince(since.into()));
        }
        if name.contains(':') {
            return Ok(Wanted::User(name.into()));
        }
        if let Some(owner_prop) = OwnerProp::parse(name)? {
            return Ok(Wanted::OfOwner(owner_prop));
        }
        ZFS_PROPS.iter().find(|prop| prop.is_named(name)).map(Wanted::Native).ok_or_else(|| {
            CliError::Usage(format!(
                "bad property list: invalid property '{name}'; `zfs get all DATASET` lists them"
            ))
        })
    }

    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Wanted::Native(prop) => prop.name.into(),
            Wanted::User(name) => name.clone(),
            Wanted::WrittenSince(since) => format!("written{since}"),
            Wanted::OfOwner(owner_prop) => owner_prop.name.clone(),
        }
    }

    /// Its column heading and alignment.
    pub fn column(&self) -> (String, Align) {
        match self {
            Wanted::Native(prop) => (prop.column.into(), align(prop)),
            other => (other.name().to_uppercase(), Align::Left),
        }
    }

    /// The minimum column width that `zfs` uses: any size fits, and any name of an index property.
    pub fn least_width(&self) -> usize {
        match self {
            Wanted::Native(Prop { value: PropType::Number { .. }, .. }) => 5,
            Wanted::Native(Prop { value: PropType::Index { values, .. }, .. }) => {
                values.iter().map(|(name, _)| name.len()).max().unwrap_or(0)
            }
            _ => 0,
        }
    }
}

fn align(prop: &Prop) -> Align {
    match prop.value {
        PropType::Number { .. } if !matches!(prop.name, "creation" | "snapshots_changed") => Align::Right,
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
        "guid" | "keyguid" | "ivsetguid" | "createtxg" | "objsetid" | "pbkdf2iters" => number.to_string(),
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
    use cenote_dataset::Source;

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
    fn properties_go_by_name_or_column() {
        assert_eq!(Wanted::parse("avail").unwrap().name(), "available");
        assert_eq!(Wanted::parse("refer").unwrap().name(), "referenced");
        assert_eq!(Wanted::parse("com.example:x").unwrap().column().0, "COM.EXAMPLE:X");
        assert!(Wanted::parse("colour").is_err());
    }
}

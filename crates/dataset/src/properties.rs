//! Properties of datasets with their sources, as `zfs get all` shows them.
//!
//! Idea: a property's value comes from one of three places. *Settings* are entries of the property ZAP of the
//! dataset's directory (of the snapshot itself first, for a snapshot), or of a directory above if the
//! property is inherited. *Facts* are what the dataset is: space, times, identity, encryption. Everything
//! else is the default. The table in `cenote_format::props` says which properties there are; this module says
//! what each is for one dataset.
//!
//! ```text
//!   name at this level         -> local                      NAME$inherit hides NAME$recvd here
//!   NAME$recvd at this level   -> received
//!   either, at a level above   -> inherited from that level  (if the property is inherited at all)
//! ```
//!
//! Sources: a fact has none (`-`), unless it equals the property's default or is one that the administrator
//! set (quotas, sizes), just as OpenZFS shows them.
//!
//! Source: OpenZFS `dsl_prop.c`, `dsl_dataset_stats`, `dsl_dir_stats`, libzfs `zfs_prop_get`.

mod bookmark;
mod facts;
mod settings;

use cenote_boxed::boxed;
use cenote_format::props::{AppliesTo, Prop, PropType, ZFS_PROPS};
use cenote_object::Result;
use serde::{Deserialize, Serialize};

use crate::dataset::{Dataset, DatasetKind};
use crate::properties::facts::Facts;
use crate::properties::settings::Settings;

/// The user who set a dataset's `mountpoint` without the right to mount: a user property that only the
/// daemon writes.
pub const PLACED_BY_PROPERTY: &str = "org.cenote:mountpoint-set-by";

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Nobody set it: it is a fact.
    None,
    /// Nobody set it: it is what OpenZFS assumes.
    Default,
    /// Set here.
    Local,
    /// Set on a dataset above.
    Inherited(String),
    /// Brought by a receive.
    Received,
    /// In force only as long as the dataset is mounted.
    Temporary,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::None => f.pad("-"),
            Source::Default => f.pad("default"),
            Source::Local => f.pad("local"),
            Source::Inherited(from) => f.pad(&format!("inherited from {from}")),
            Source::Received => f.pad("received"),
            Source::Temporary => f.pad("temporary"),
        }
    }
}

/// A value, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Value {
    /// A number: bytes, seconds, a ratio in hundredths, or the number of an index property's name.
    Number(u64),
    /// Text.
    Text(String),
}

/// A property of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Property {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Value,
    /// Where that comes from.
    pub source: Source,
    /// What a receive brought, whether it is in force or not.
    pub received: Option<Value>,
}

impl Property {
    /// The value as `zfs get -p` prints it: numbers exact, index properties by name.
    pub fn literal(&self) -> String {
        literal(&self.name, &self.value)
    }

    /// The value if it is a number.
    pub fn number(&self) -> Option<u64> {
        match self.value {
            Value::Number(number) => Some(number),
            Value::Text(_) => None,
        }
    }
}

fn literal(name: &str, value: &Value) -> String {
    let number = match value {
        Value::Text(text) => return text.clone(),
        Value::Number(number) => *number,
    };
    match name {
        "compressratio" | "refcompressratio" => format!("{}.{:02}", number / 100, number % 100),
        "mounted" => if number == 0 { "no" } else { "yes" }.into(),
        "filesystem_limit" | "snapshot_limit" | "filesystem_count" | "snapshot_count"
            if number == u64::MAX =>
        {
            "none".into()
        }
        name => match Prop::zfs(name).and_then(|prop| prop.index_name(number)) {
            Some(text) => text.into(),
            None => number.to_string(),
        },
    }
}

impl Dataset {
    /// All properties in the order of `zfs get all`, user properties (by name) last.
    ///
    /// # Errors
    /// Something that a property comes from is damaged. A missing key is not an error.
    #[boxed]
    pub async fn properties(&self) -> Result<Vec<Property>> {
        self.properties_of(&|_| true).await
    }

    /// Those whose names are asked for: most cost little, those of the content a few blocks.
    ///
    /// # Errors
    /// As [`Dataset::properties`].
    pub async fn properties_of(&self, is_wanted: &(dyn Fn(&str) -> bool + Sync)) -> Result<Vec<Property>> {
        let (settings, facts) = (Settings::load(self).await?, Facts::gather(self, is_wanted).await?);
        let mut all: Vec<Property> = ZFS_PROPS
            .iter()
            .filter(|prop| prop.visible && is_wanted(prop.name))
            .filter_map(|prop| resolve(self, prop, &settings, &facts))
            .collect();
        all.extend(settings.user_properties().into_iter().filter(|property| is_wanted(&property.name)));
        Ok(all)
    }

    /// One property by name, user properties too; `None` if this dataset has none of that name.
    ///
    /// # Errors
    /// As [`Dataset::properties`].
    #[boxed]
    pub async fn property(&self, name: &str) -> Result<Option<Property>> {
        if name.contains(':') {
            let settings = Settings::load(self).await?;
            return Ok(settings.user_properties().into_iter().find(|p| p.name == name));
        }
        let Some(prop) = Prop::zfs(name) else { return Ok(None) };
        let is_it = |wanted: &str| wanted == name;
        let (settings, facts) = (Settings::load(self).await?, Facts::gather(self, &is_it).await?);
        Ok(resolve(self, prop, &settings, &facts))
    }
}

impl Dataset {
    /// A property that follows from settings alone, as it is in force.
    #[boxed]
    pub async fn in_force(&self, name: &str) -> Result<Option<Value>> {
        let (settings, prop) = (Settings::load(self).await?, Prop::zfs(name));
        let set = settings.find(name, prop.is_none_or(Prop::is_inheritable)).map(|(value, _)| value);
        Ok(set.or_else(|| prop.and_then(default_of)))
    }

    /// Properties that are numbers and follow from settings alone, by name.
    pub async fn numbers<const N: usize>(&self, names: [&str; N]) -> Result<[u64; N]> {
        let settings = Settings::load(self).await?;
        Ok(names.map(|name| {
            let Some(prop) = Prop::zfs(name) else { return 0 };
            let set = settings.find(name, prop.is_inheritable()).map(|(value, _)| value);
            match set.or_else(|| default_of(prop)) {
                Some(Value::Number(number)) => number,
                _ => 0,
            }
        }))
    }
}

/// What a property is for this dataset; `None` if it has no such property.
fn resolve(dataset: &Dataset, prop: &Prop, settings: &Settings, facts: &Facts) -> Option<Property> {
    if !prop.applies.overlaps(applies_to(facts.kind)) || !fits_head(prop, facts) {
        return None;
    }
    let setting = settings.find(prop.name, prop.is_inheritable());
    let (value, source) = match (facts.get(prop.name), setting) {
        // What was set is noted in both places; the fact is what is in force.
        (Some(value), setting) => {
            let source = setting.map_or_else(|| source_of_fact(prop, &value), |(_, source)| source);
            (value, source)
        }
        (None, Some((value, source))) => (value, source),
        (None, None) => (default_of(prop)?, Source::Default),
    };
    let value = match (prop.name, value) {
        ("mountpoint", Value::Text(path)) => Value::Text(mountpoint(dataset.name(), path, &source)),
        (_, value) => value,
    };
    if let (PropType::Index { .. }, Value::Number(number)) = (prop.value, &value) {
        prop.index_name(*number)?;
    }
    let received = settings.received(prop.name);
    Some(Property { name: prop.name.into(), value, source, received })
}

fn applies_to(kind: DatasetKind) -> AppliesTo {
    match kind {
        DatasetKind::Filesystem => AppliesTo::FS,
        DatasetKind::Volume => AppliesTo::VOL,
        DatasetKind::Snapshot => AppliesTo::SNAP,
    }
}

/// Numbers of a snapshot must make sense for what it is a snapshot of, unless they are of snapshots only.
fn fits_head(prop: &Prop, facts: &Facts) -> bool {
    let of_heads = prop.applies.overlaps(AppliesTo::FS) || prop.applies.overlaps(AppliesTo::VOL);
    let is_text = matches!(prop.value, PropType::String { .. });
    facts.kind != DatasetKind::Snapshot
        || is_text
        || !of_heads
        || prop.applies.overlaps(applies_to(facts.head_kind))
}

fn default_of(prop: &Prop) -> Option<Value> {
    /// Read-only, and yet shown with a default where nothing is counted.
    const COUNTS: [&str; 2] = ["filesystem_count", "snapshot_count"];
    if prop.is_read_only() && !COUNTS.contains(&prop.name) || facts::is_fact_only(prop.name) {
        return None;
    }
    match prop.value {
        PropType::Number { default } | PropType::Index { default, .. } => Some(Value::Number(default)),
        PropType::String { default } => default.map(|text| Value::Text(text.into())),
    }
}

/// Facts that say what the administrator set count as local; one that equals a default counts as such.
fn source_of_fact(prop: &Prop, value: &Value) -> Source {
    const SET_BY_ADMINISTRATOR: [&str; 8] = [
        "volsize",
        "quota",
        "refquota",
        "reservation",
        "refreservation",
        "filesystem_count",
        "snapshot_count",
        "canmount",
    ];
    if facts::is_fact_only(prop.name) {
        return Source::None;
    }
    let is_default = !prop.is_read_only() && default_of(prop).as_ref() == Some(value);
    match is_default {
        true => Source::Default,
        false if SET_BY_ADMINISTRATOR.contains(&prop.name) => Source::Local,
        false => Source::None,
    }
}

/// An inherited mount point is followed by the path from where it was set to here.
fn mountpoint(name: &str, path: String, source: &Source) -> String {
    if !path.starts_with('/') {
        return path;
    }
    let set_at = match source {
        Source::Inherited(from) => from.as_str(),
        Source::Default => "",
        _ => name,
    };
    let below = name.strip_prefix(set_at).unwrap_or_default().trim_start_matches('/');
    match (path.as_str(), below) {
        (path, "") => path.into(),
        ("/", below) => format!("/{below}"),
        (path, below) => format!("{path}/{below}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inherited_mountpoint_goes_on_below_where_it_was_set() {
        let from = |name: &str| Source::Inherited(name.into());
        assert_eq!(mountpoint("p/a/b", "/x".into(), &from("p/a")), "/x/b");
        assert_eq!(mountpoint("p/a/b", "/".into(), &from("p")), "/a/b");
        assert_eq!(mountpoint("p/a", "/".into(), &Source::Default), "/p/a");
        assert_eq!(mountpoint("p/a", "/x".into(), &Source::Local), "/x");
        assert_eq!(mountpoint("p/a", "legacy".into(), &from("p")), "legacy");
    }
}

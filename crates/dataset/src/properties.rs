//! Dataset properties with their sources, as in `zfs get all`.
//!
//! Idea: a value comes from one of three places. *Settings* are entries in the property ZAP of the dataset's
//! directory (for a snapshot, first of the snapshot itself), or of an ancestor if the property is
//! inheritable. *Facts* describe the dataset: space, times, identity, encryption. Everything else is the
//! default. `cenote_format::props` lists the properties.
//!
//! ```text
//!   name at this level         -> local                      NAME$inherit hides NAME$recvd here
//!   NAME$recvd at this level   -> received
//!   either, at a level above   -> inherited from that level  (if the property is inherited at all)
//! ```
//!
//! Like OpenZFS, a fact has no source (`-`), unless it equals the property's default or is an administrator's
//! setting (quotas, sizes).
//!
//! Source: OpenZFS `dsl_prop.c`, `dsl_dataset_stats`, `dsl_dir_stats`, libzfs `zfs_prop_get`.

mod bookmark;
mod facts;
mod settings;

use cenote_boxed::boxed;
use cenote_format::props::{AppliesTo, Prop, PropType, ZFS_PROPS};
use cenote_object::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dataset::{Dataset, DatasetKind};
use crate::properties::facts::Facts;
pub use crate::properties::facts::REDACTED_DATASETS;
use crate::properties::settings::Settings;

/// User property that only the daemon writes: the user who set `mountpoint` without the right to mount.
pub const PLACED_BY_PROPERTY: &str = "org.cenote:mountpoint-set-by";

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Fact.
    None,
    /// OpenZFS's default.
    Default,
    /// Set here.
    Local,
    /// Set on an ancestor.
    Inherited(String),
    /// Set by a receive.
    Received,
    /// In force while the dataset is mounted.
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

/// Stored value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Value {
    /// Bytes, seconds, a ratio in hundredths, or an index property's number.
    Number(u64),
    /// Text.
    Text(String),
}

/// Dataset property. As JSON, an index property's number is followed by its name (`word`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Told", into = "Told")]
pub struct Property {
    /// Name.
    pub name: String,
    /// Value.
    pub value: Value,
    /// Source of the value.
    pub source: Source,
    /// Received value, in force or not.
    pub received: Option<Value>,
}

/// A property as JSON.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Property")]
struct Told {
    /// Name.
    name: String,
    /// Value.
    value: Value,
    /// Name of an index property's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    word: Option<String>,
    /// Source of the value.
    source: Source,
    /// Received value, in force or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    received: Option<Value>,
}

impl From<Property> for Told {
    fn from(property: Property) -> Told {
        let number = property.number();
        let word = number.filter(|number| property.literal() != number.to_string());
        let word = word.filter(|_| !property.name.ends_with("ratio")).map(|_| property.literal());
        let Property { name, value, source, received } = property;
        Told { name, value, word, source, received }
    }
}

impl From<Told> for Property {
    fn from(Told { name, value, source, received, .. }: Told) -> Property {
        Property { name, value, source, received }
    }
}

impl Property {
    /// Value as in `zfs get -p`: exact numbers, index properties by name.
    pub fn literal(&self) -> String {
        literal(&self.name, &self.value)
    }

    /// Value as a number.
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
    /// All properties in the order of `zfs get all`, then user properties by name.
    ///
    /// # Errors
    /// Damage at the source of a property. A missing key is not an error.
    #[boxed]
    pub async fn properties(&self) -> Result<Vec<Property>> {
        self.properties_of(&|_| true).await
    }

    /// Selected properties: most are cheap, those of the content read a few blocks.
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

    /// A property or user property; `None` if this dataset does not have it.
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
    /// Effective value of a property that depends on settings only.
    #[boxed]
    pub async fn in_force(&self, name: &str) -> Result<Option<Value>> {
        let (settings, prop) = (Settings::load(self).await?, Prop::zfs(name));
        let set = settings.find(name, prop.is_none_or(Prop::is_inheritable)).map(|(value, _)| value);
        Ok(set.or_else(|| prop.and_then(default_of)))
    }

    /// Effective values of numeric properties that depend on settings only.
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

/// Value for this dataset; `None` if the property does not apply.
fn resolve(dataset: &Dataset, prop: &Prop, settings: &Settings, facts: &Facts) -> Option<Property> {
    if !prop.applies.overlaps(applies_to(facts.kind)) || !fits_head(prop, facts) {
        return None;
    }
    let setting = settings.find(prop.name, prop.is_inheritable());
    let (value, source) = match (facts.get(prop.name), setting) {
        // A setting is recorded in both places; the fact is in force.
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

/// Unless it is specific to snapshots, a snapshot's number must also apply to its head.
fn fits_head(prop: &Prop, facts: &Facts) -> bool {
    let of_heads = prop.applies.overlaps(AppliesTo::FS) || prop.applies.overlaps(AppliesTo::VOL);
    let is_text = matches!(prop.value, PropType::String { .. });
    facts.kind != DatasetKind::Snapshot
        || is_text
        || !of_heads
        || prop.applies.overlaps(applies_to(facts.head_kind))
}

fn default_of(prop: &Prop) -> Option<Value> {
    /// Read-only, but with a default where nothing is counted.
    const COUNTS: [&str; 2] = ["filesystem_count", "snapshot_count"];
    if prop.is_read_only() && !COUNTS.contains(&prop.name) || facts::is_fact_only(prop.name) {
        return None;
    }
    match prop.value {
        PropType::Number { default } | PropType::Index { default, .. } => Some(Value::Number(default)),
        PropType::String { default } => default.map(|text| Value::Text(text.into())),
    }
}

/// Facts that the administrator set count as local; values equal to the default count as default.
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

/// Appends the path below the dataset where the mount point was set.
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

//! How outputs are read: JSON of `zpool status -j`, `-Hp` tables of properties, kstats.

use std::collections::HashMap;

use serde_json::Value;

use super::Counters;

/// How a kstat marks a string.
const KSTAT_DATA_STRING: &str = "7";

/// A number of a JSON object, whether it was written as one (`--json-int`) or as a string.
pub(super) fn number(value: &Value, key: &str) -> Option<u64> {
    let value = value.get(key)?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// A string of a JSON object.
pub(super) fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key)?.as_str().map(str::to_owned)
}

/// Properties of things, from `zpool get -Hp all` or `zfs get -Hp all`: name, property, value, source, with tabs between.
#[derive(Debug, Default)]
pub(super) struct Properties {
    values: HashMap<(String, String), String>,
    /// Names of the things, in the order that they came.
    pub(super) names: Vec<String>,
}

impl Properties {
    pub(super) fn parse(table: &str) -> Properties {
        let mut properties = Properties::default();
        for line in table.lines() {
            let mut cells = line.split('\t');
            let (Some(name), Some(property), Some(value)) = (cells.next(), cells.next(), cells.next()) else {
                continue;
            };
            if properties.names.last().is_none_or(|last| last != name) {
                properties.names.push(name.to_owned());
            }
            properties.values.insert((name.to_owned(), property.to_owned()), value.to_owned());
        }
        properties
    }

    /// A value; `-`, as things without that property have it, is none.
    pub(super) fn text(&self, name: &str, property: &str) -> Option<&str> {
        let value = self.values.get(&(name.to_owned(), property.to_owned()))?;
        (value != "-").then_some(value)
    }

    pub(super) fn number(&self, name: &str, property: &str) -> Option<u64> {
        self.text(name, property)?.parse().ok()
    }
}

/// The counters of a named kstat, and its strings: two lines of heading, then `name type value` a line.
pub(super) fn kstat(table: &str) -> (Counters, HashMap<&str, &str>) {
    let (mut counters, mut words) = (Counters::default(), HashMap::new());
    for line in table.lines().skip(2) {
        let cells = || {
            let (name, rest) = line.split_once(char::is_whitespace)?;
            let (kind, value) = rest.trim_start().split_once(char::is_whitespace)?;
            Some((name, kind, value.trim()))
        };
        match cells() {
            Some((name, KSTAT_DATA_STRING, value)) => _ = words.insert(name, value),
            Some((name, _, value)) => {
                if let Ok(value) = value.parse() {
                    counters.0.insert(name.to_owned(), value);
                }
            }
            None => {}
        }
    }
    (counters, words)
}

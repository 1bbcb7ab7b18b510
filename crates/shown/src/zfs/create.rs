//! `zfs create -v` and `-P`: the new dataset and its properties.

use std::collections::HashMap;
use std::fmt::Write as _;

use cenote_control::answers::Value;
use cenote_control::zfs::properties::volume_size::DEFAULT_BLOCK_BYTES;
use cenote_control::zfs::tree::create::{Created, Stored};
use serde_json::json;

use crate::json::version;

/// How a new dataset is reported.
pub struct Report<'a> {
    /// Its name.
    pub name: &'a str,
    /// Nothing was created.
    pub dry_run: bool,
    /// Missing parents were created, too.
    pub parents: bool,
    /// In a form for scripts.
    pub parsable: bool,
    /// `PROPERTY=VALUE` as typed: such values are reported as they are.
    pub options: &'a [String],
}

impl Report<'_> {
    /// As JSON.
    pub fn json(&self, created: &Created) -> serde_json::Value {
        json!({
            "output_version": version("zfs create"),
            "dry_run": self.dry_run,
            "create_ancestors": self.parents,
            "create": self.name,
            "properties": self.properties(created).collect::<HashMap<_, _>>(),
        })
    }

    /// As text.
    pub fn text(&self, created: &Created) -> String {
        let mut out = String::new();
        let (verb, name) = (if self.dry_run { "would create" } else { "create" }, self.name);
        let _ = match (self.parsable, self.parents) {
            (true, true) => write!(out, "create_ancestors\t{name}\ncreate\t{name}\n"),
            (true, false) => writeln!(out, "create\t{name}"),
            (false, true) => write!(out, "{verb} ancestors of {name}\n{verb} {name}\n"),
            (false, false) => writeln!(out, "{verb} {name}"),
        };
        for (property, value) in self.properties(created) {
            let _ = match self.parsable {
                true => writeln!(out, "property\t{property}\t{value}"),
                false => writeln!(out, "\t{property}={value}"),
            };
        }
        out
    }

    fn properties<'c>(&'c self, created: &'c Created) -> impl Iterator<Item = (&'c str, String)> {
        let properties = created.settings.iter().filter(|Stored { property, value }| {
            // Blocks of the default size are not reported.
            property != "volblocksize" || *value != Value::Number(DEFAULT_BLOCK_BYTES)
        });
        properties.map(|Stored { property, value }| {
            let value = match value {
                Value::Number(number) => number.to_string(),
                Value::Text(text) => text.clone(),
            };
            (property.as_str(), self.typed(property).map_or(value, str::to_owned))
        })
    }

    fn typed(&self, property: &str) -> Option<&str> {
        let mut pairs = self.options.iter().filter_map(|option| option.split_once('='));
        pairs.find(|(name, _)| *name == property).map(|(_, value)| value)
    }
}

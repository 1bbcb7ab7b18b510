//! Property tables as printed by `zpool get -Hp all` and `zfs get -Hp all`: tab-separated name, property,
//! value, source.

use std::collections::HashMap;

/// Properties of named objects.
#[derive(Debug, Default)]
pub struct Properties {
    values: HashMap<String, HashMap<String, String>>,
    /// Objects in order of appearance.
    pub names: Vec<String>,
}

impl Properties {
    /// Parses a table, ignoring other lines.
    pub fn parse(table: &str) -> Properties {
        let mut properties = Properties::default();
        for line in table.lines() {
            let mut cells = line.split('\t');
            let (Some(name), Some(property), Some(value)) = (cells.next(), cells.next(), cells.next()) else {
                continue;
            };
            if !properties.values.contains_key(name) {
                properties.names.push(name.to_owned());
            }
            let of_it = properties.values.entry(name.to_owned()).or_default();
            of_it.insert(property.to_owned(), value.to_owned());
        }
        properties
    }

    /// A value; `-`, which marks an absent property, is None.
    pub fn text(&self, name: &str, property: &str) -> Option<&str> {
        let value = self.values.get(name)?.get(property)?;
        (value != "-").then_some(value)
    }

    /// A numeric value; some percentages keep their sign despite `-p`.
    pub fn number(&self, name: &str, property: &str) -> Option<u64> {
        self.text(name, property)?.trim_end_matches(['%', 'x']).parse().ok()
    }
}

//! Tables of properties, as `zpool get -Hp all` and `zfs get -Hp all` print them: name, property, value, source, with tabs between.

use std::collections::HashMap;

/// Properties of things.
#[derive(Debug, Default)]
pub struct Properties {
    values: HashMap<String, HashMap<String, String>>,
    /// Names of the things, in the order that they came.
    pub names: Vec<String>,
}

impl Properties {
    /// Reads such a table. What is no line of one is left out.
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

    /// A value; `-`, as things without that property have it, is none.
    pub fn text(&self, name: &str, property: &str) -> Option<&str> {
        let value = self.values.get(name)?.get(property)?;
        (value != "-").then_some(value)
    }

    /// A value that is a number; some percentages have their sign although `-p` was said.
    pub fn number(&self, name: &str, property: &str) -> Option<u64> {
        self.text(name, property)?.trim_end_matches(['%', 'x']).parse().ok()
    }
}

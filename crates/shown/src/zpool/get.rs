//! `zpool get`: properties and features of pools, or properties of vdevs, one per line.

use cenote_control::answers::Property;
use cenote_control::zpool::shown::get::{Found, PoolProperties, VdevProperties};
use serde_json::{Map, Value, json};

use super::head::{Keys, head};
use super::properties::{text, vdev_text};
use crate::json::{document, property};
use crate::numbers::Numbers;
use crate::property::PropertyLine;
use crate::table::Table;

/// How properties are printed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout {
    /// How numbers are printed.
    pub numbers: Numbers,
    /// The key of each pool in JSON.
    pub keys: Keys,
}

impl Layout {
    /// As a table with these columns.
    pub fn table(&self, found: &Found, columns: &[String]) -> Table {
        let lines: Vec<PropertyLine> = match found {
            Found::Pools(pools) => pools.iter().flat_map(|pool| self.of_pool(pool)).collect(),
            Found::Vdevs { vdevs, .. } => vdevs.iter().flat_map(|vdev| self.of_vdev(vdev)).collect(),
        };
        PropertyLine::table(&lines, columns)
    }

    /// As JSON.
    pub fn json(&self, found: &Found) -> Value {
        let numbers = self.numbers;
        match found {
            Found::Pools(pools) => {
                let entry = |PoolProperties { head: pool, properties }: &PoolProperties| {
                    let mut entry = head(pool, numbers);
                    entry.insert("properties".into(), self.values(properties, text));
                    (self.keys.key(&pool.name, pool.guid), entry.into())
                };
                document("zpool get", "pools", pools.iter().map(entry).collect())
            }
            Found::Vdevs { head: pool, vdevs } => {
                let entry = |vdev: &VdevProperties| {
                    let entry = json!({
                        "name": vdev.name,
                        "type": "VDEV",
                        "vdev_type": vdev.kind.name(),
                        "guid": numbers.value(&vdev.guid.to_string()),
                        "state": vdev.state.to_string(),
                        "properties": self.values(&vdev.properties, vdev_text),
                    });
                    (vdev.name.clone(), entry)
                };
                let mut whole = document("zpool get", "vdevs", vdevs.iter().map(entry).collect());
                whole["pool"] = Value::Object(head(pool, numbers));
                whole
            }
        }
    }

    fn of_pool(&self, PoolProperties { head, properties }: &PoolProperties) -> Vec<PropertyLine> {
        properties.iter().map(|shown| line(&head.name, shown, text(shown, self.numbers.exact))).collect()
    }

    fn of_vdev(&self, vdev: &VdevProperties) -> Vec<PropertyLine> {
        let line = |shown| line(&vdev.name, shown, vdev_text(shown, self.numbers.exact));
        vdev.properties.iter().map(line).collect()
    }

    fn values(&self, properties: &[Property], text: impl Fn(&Property, bool) -> String) -> Value {
        let value = |shown: &Property| {
            let value = property(&text(shown, self.numbers.exact), &shown.source, self.numbers);
            (shown.name.clone(), value)
        };
        properties.iter().map(value).collect::<Map<String, Value>>().into()
    }
}

fn line(name: &str, shown: &Property, value: String) -> PropertyLine {
    PropertyLine {
        name: name.to_owned(),
        property: shown.name.clone(),
        value,
        received: None,
        source: shown.source.to_string(),
    }
}

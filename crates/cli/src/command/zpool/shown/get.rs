//! `zpool get`: properties and features of pools, or properties of vdevs, one per line.

use cenote_control::zpool::shown::get::{Found, Get as Request, PoolProperties, VdevProperties};
use cenote_control::zpool::shown::list::Head;
use serde_json::{Map, Value, json};

use super::properties::{text, vdev_text};
use crate::command::form::PropertyLine;
use crate::command::json::{document, number_or_text, property};
use crate::command::zpool::{Get, head};
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

const COLUMNS: &str = "name,property,value,source";

impl Get {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let columns = PropertyLine::columns(&self.columns, COLUMNS)?;
        let properties = match self.properties.as_str() {
            "all" => None,
            names => Some(names.split(',').map(str::to_owned).collect()),
        };
        let request = Request { names: self.pools.clone(), properties };
        let answered = session.control().run(request).await?;
        let (lines, document) = match answered.answer {
            Found::Pools(pools) => self.of_pools(pools),
            Found::Vdevs { head, vdevs } => self.of_vdevs(&head, vdevs),
        };
        self.form.print(session, || PropertyLine::table(lines.iter(), &columns), || document)?;
        Ok(answered.outcome)
    }

    fn of_pools(&self, all: Vec<PoolProperties>) -> (Vec<PropertyLine>, Value) {
        let (exact, numbers) = (self.form.values.exact(), self.form.values.numbers());
        let (mut lines, mut pools) = (Vec::new(), Map::new());
        for PoolProperties { head: pool, properties } in all {
            let mut values = Map::new();
            for shown in properties {
                let value = text(&shown, exact);
                values.insert(shown.name.clone(), property(&value, &shown.source, numbers));
                lines.push(PropertyLine {
                    name: pool.name.clone(),
                    property: shown.name,
                    value,
                    received: None,
                    source: shown.source.to_string(),
                });
            }
            let mut entry = head(&pool, numbers);
            entry.insert("properties".into(), values.into());
            pools.insert(self.keys.key(&pool.name, pool.guid), entry.into());
        }
        (lines, document("zpool get", "pools", pools))
    }

    fn of_vdevs(&self, pool: &Head, all: Vec<VdevProperties>) -> (Vec<PropertyLine>, Value) {
        let (exact, numbers) = (self.form.values.exact(), self.form.values.numbers());
        let (mut lines, mut entries) = (Vec::new(), Map::new());
        for vdev in all {
            let mut values = Map::new();
            for shown in vdev.properties {
                let value = vdev_text(&shown, exact);
                values.insert(shown.name.clone(), property(&value, &shown.source, numbers));
                lines.push(PropertyLine {
                    name: vdev.name.clone(),
                    property: shown.name,
                    value,
                    received: None,
                    source: shown.source.to_string(),
                });
            }
            let entry = json!({
                "name": vdev.name,
                "type": "VDEV",
                "vdev_type": vdev.kind.name(),
                "guid": number_or_text(&vdev.guid.to_string(), numbers),
                "state": vdev.state.to_string(),
                "properties": values,
            });
            entries.insert(vdev.name, entry);
        }
        let mut whole = document("zpool get", "vdevs", entries);
        whole["pool"] = Value::Object(head(pool, numbers));
        (lines, whole)
    }
}

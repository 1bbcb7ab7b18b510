//! `zpool get`: properties and features, one per line.

use cenote_dataset::{Property, Source, Value};
use cenote_format::features::Feature;
use cenote_format::props::ZPOOL_PROPS;
use serde_json::Map;

use super::properties::{Properties, text};
use super::{Get, head};
use crate::command::form::PropertyLine;
use crate::command::json::{document, property};
use crate::outcome::{CliError, Outcome, Say};
use crate::session::Session;

const COLUMNS: &str = "name,property,value,source";

/// Resolves a name or column heading; features and user properties need their full name.
pub fn wanted(name: &str) -> Result<String, CliError> {
    if let Some(prop) = ZPOOL_PROPS.iter().find(|prop| prop.is_named(name)) {
        return Ok(prop.name.into());
    }
    let is_feature = name.strip_prefix("feature@").is_some_and(|name| Feature::by_name(name).is_some());
    if is_feature || name.contains(':') {
        return Ok(name.into());
    }
    Err(CliError::Usage(format!("invalid property '{name}'; `zpool get all` lists them")))
}

impl Get {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let columns = PropertyLine::columns(&self.columns, COLUMNS)?;
        if self.is_of_vdevs(session).await? {
            return self.of_vdevs(session, &columns).await;
        }
        let names = match self.properties.as_str() {
            "all" => None,
            names => Some(names.split(',').map(wanted).collect::<Result<Vec<_>, _>>()?),
        };
        let (exact, numbers) = (self.form.values.exact(), self.form.values.numbers());
        let (mut lines, mut pools) = (Vec::new(), Map::new());
        let (found_pools, mut outcome) = session.find_pools_to_show(&self.pools).await?;
        for found in found_pools {
            let opened = async {
                let mos = session.open_without_asking(&found).await?;
                let held = session.held(&found);
                let root = held.as_ref().and_then(|pool| pool.mounts.root());
                let properties = Properties::gather(&mos).await?.mounted_below(root);
                Ok::<_, CliError>((mos, properties))
            };
            let (mos, properties) = match opened.await {
                Ok(opened) => opened,
                Err(error) => {
                    outcome = outcome.and(error.tell(found.name()));
                    continue;
                }
            };
            let mut values = Map::new();
            for chosen in choose(&properties, names.as_deref()) {
                let value = text(&chosen, exact);
                values.insert(chosen.name.clone(), property(&value, &chosen.source, numbers));
                lines.push(PropertyLine {
                    name: found.name().to_owned(),
                    property: chosen.name,
                    value,
                    received: None,
                    source: chosen.source.to_string(),
                });
            }
            let mut entry = head(&mos, numbers);
            entry.insert("properties".into(), values.into());
            pools.insert(self.keys.key(&found), entry.into());
        }
        let table = || PropertyLine::table(lines.iter(), &columns);
        self.form.print(session, table, || document("zpool get", "pools", pools))?;
        Ok(outcome)
    }
}

fn choose(properties: &Properties, names: Option<&[String]>) -> Vec<Property> {
    let Some(names) = names else { return properties.all().cloned().collect() };
    let dash = |name: &String| Property {
        name: name.clone(),
        value: Value::Text("-".into()),
        source: if name.contains(':') { Source::Default } else { Source::None },
        received: None,
    };
    names.iter().map(|name| properties.get(name).cloned().unwrap_or_else(|| dash(name))).collect()
}

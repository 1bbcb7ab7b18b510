//! `zpool get PROPERTY POOL VDEV...`: properties of vdevs, one per line.
//!
//! Source: OpenZFS `get_callback_vdev`, `zpool_do_get`.

use serde_json::{Map, Value, json};

use super::vdev_properties::{Vdevs, check, named};
use super::{Get, head};
use crate::command::form::PropertyLine;
use crate::command::json::{document, number_or_text, property};
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

impl Get {
    /// Whether the names after the first pool are vdevs of it.
    ///
    /// # Errors
    /// A name is neither a pool nor such a vdev.
    pub(super) async fn is_of_vdevs(&self, session: &Session) -> Result<bool, CliError> {
        let [pool, others @ ..] = &*self.pools else { return Ok(false) };
        if others.is_empty() || session.find_pools(&self.pools).await.is_ok() {
            return Ok(false);
        }
        // The listing of pools reports missing ones.
        let Ok(found) = session.find_pool(pool).await else { return Ok(false) };
        let health = found.status();
        match others.iter().find(|name| named(&health, name).is_empty()) {
            None => Ok(true),
            Some(name) => Err(CliError::NotFound(format!(
                "'{name}' is neither a pool nor a vdev of '{pool}'; `zpool status {pool}` lists its vdevs"
            ))),
        }
    }

    /// Prints the properties of a pool's vdevs.
    pub(super) async fn of_vdevs(&self, session: &Session, columns: &[&str]) -> Result<Outcome, CliError> {
        let names: Vec<String> = self.properties.split(',').map(str::to_owned).collect();
        let names = if self.properties == "all" { None } else { Some(&*names) };
        names.unwrap_or_default().iter().try_for_each(|name| check(name))?;
        let (exact, numbers) = (self.form.values.exact(), self.form.values.numbers());
        let found = session.find_pool(&self.pools[0]).await?;
        let mos = session.open_without_asking(&found).await?;
        let (usage, health) = (mos.usage().await?, mos.pool().status());
        let vdevs = Vdevs { mos: &mos, usage: &usage, exact };
        let (mut lines, mut entries) = (Vec::new(), Map::new());
        for vdev in self.pools[1..].iter().flat_map(|name| named(&health, name)) {
            let mut values = Map::new();
            for found in vdevs.properties(&vdev, names).await? {
                let value = found.literal();
                values.insert(found.name.clone(), property(&value, &found.source, numbers));
                lines.push(PropertyLine {
                    name: vdev.name.clone(),
                    property: found.name,
                    value,
                    received: None,
                    source: found.source.to_string(),
                });
            }
            let entry = json!({
                "name": vdev.name,
                "type": "VDEV",
                "vdev_type": vdev.status().kind.name(),
                "guid": number_or_text(&vdev.status().guid.to_string(), numbers),
                "state": vdev.status().state.to_string(),
                "properties": values,
            });
            entries.insert(vdev.name, entry);
        }
        let mut whole = document("zpool get", "vdevs", entries);
        whole["pool"] = Value::Object(head(&mos, numbers));
        self.form.print(session, || PropertyLine::table(lines.iter(), columns), || whole)?;
        Ok(Outcome::Done)
    }
}

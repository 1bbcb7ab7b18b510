//! `volume clients`: clients of the volumes that the daemon serves.

use cenote_control::volume::clients::Client;
use serde_json::{Map, Value, json};

use crate::json::document;
use crate::table::{Align, Table};

/// As a table.
pub fn table(clients: &[Client]) -> Table {
    let mut table = Table::new([("VOLUME", Align::Left), ("CLIENT", Align::Left)]);
    clients.iter().for_each(|Client { volume, who }| table.row([volume, who]));
    table
}

/// As JSON.
pub fn json(clients: &[Client]) -> Value {
    let mut volumes = Map::new();
    for Client { volume, who } in clients {
        let entry = volumes.entry(volume.clone()).or_insert_with(|| json!({ "clients": [] }));
        if let Some(clients) = entry["clients"].as_array_mut() {
            clients.push(who.as_str().into());
        }
    }
    document("volume clients", "volumes", volumes)
}

//! `ha`: pools that move among machines.

use cenote_control::running::ha::Moving;
use serde_json::{Map, Value, json};

use crate::json::document;
use crate::table::{Align, Table};

/// As a table.
pub fn table(all: &[Moving]) -> Table {
    let columns = ["POOL", "HERE", "OWNER", "TENURES", "WITNESS", "LACKING", "NOTE"];
    let mut table = Table::new(columns.map(|name| (name, Align::Left)));
    for pool in all {
        let owner = pool.owner.clone().unwrap_or_else(|| "-".into());
        let witness = pool.witness_age_ms.map_or_else(|| "never".into(), |ms| format!("{ms} ms ago"));
        let lacking = match pool.lacking.len() {
            0 => "-".to_owned(),
            1 => "1 device".to_owned(),
            count => format!("{count} devices"),
        };
        let note = match (&pool.wanted_by, pool.is_paused) {
            (_, true) => "exported: `cenote ha switch` opens it".to_owned(),
            (Some(node), _) => format!("goes to {node}"),
            (None, _) => pool.why.clone().unwrap_or_else(|| "-".into()),
        };
        let role = format!("{} it", pool.role);
        table.row([pool.pool.clone(), role, owner, pool.tenures.to_string(), witness, lacking, note]);
    }
    table
}

/// As JSON.
pub fn json(all: &[Moving]) -> Value {
    let entry = |pool: &Moving| {
        let shown = json!({
            "node": pool.node,
            "role": pool.role,
            "owner": pool.owner,
            "tenures": pool.tenures,
            "wanted_by": pool.wanted_by,
            "paused": pool.is_paused,
            "lacking": pool.lacking.iter().map(u64::to_string).collect::<Vec<_>>(),
            "witness_age_ms": pool.witness_age_ms,
            "why": pool.why,
        });
        (pool.pool.clone(), shown)
    };
    document("ha status", "pools", all.iter().map(entry).collect::<Map<_, _>>())
}

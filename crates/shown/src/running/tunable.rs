//! `tunable`: settings of all pools of the daemon.

use cenote_control::running::tunable::Tuned;
use serde_json::{Value, json};

use crate::json::document;
use crate::table::{Align, Table};

/// As a table.
pub fn table(shown: &[Tuned]) -> Table {
    let mut table = Table::new([("NAME", Align::Left), ("VALUE", Align::Right), ("DEFAULT", Align::Right)]);
    for Tuned { name, value, default } in shown {
        table.row([name.clone(), value.clone(), default.clone()]);
    }
    table
}

/// As JSON.
pub fn json(shown: &[Tuned]) -> Value {
    let entry =
        |tunable: &Tuned| (tunable.name.clone(), json!({"value": tunable.value, "default": tunable.default}));
    document("tunable", "tunables", shown.iter().map(entry).collect())
}

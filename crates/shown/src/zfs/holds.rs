//! `zfs holds`: the holds that keep snapshots from being destroyed.

use cenote_control::text::{escape_terminal, short_time};
use cenote_control::zfs::points::holds::Held;
use serde_json::{Map, Value, json};

use crate::json::document;
use crate::numbers::Numbers;
use crate::table::{Align, Table};

/// As a table; exact times are seconds since 1970.
pub fn table(all: &[Held], numbers: Numbers) -> Table {
    let header = [("NAME", Align::Left), ("TAG", Align::Left), ("TIMESTAMP", Align::Left)];
    let mut table = Table::new(header);
    for Held { snapshot, holds } in all {
        for hold in holds {
            let time = match numbers.exact {
                true => hold.since_seconds.to_string(),
                false => short_time(hold.since_seconds.cast_signed()),
            };
            table.row([snapshot.clone(), escape_terminal(hold.tag.as_bytes()), time]);
        }
    }
    table
}

/// As JSON.
pub fn json(all: &[Held]) -> Value {
    let entry = |Held { snapshot, holds }: &Held| {
        let holds: Map<String, Value> =
            holds.iter().map(|hold| (hold.tag.clone(), json!(hold.since_seconds))).collect();
        (snapshot.clone(), json!({"name": snapshot, "holds": holds}))
    };
    document("zfs holds", "datasets", all.iter().map(entry).collect())
}

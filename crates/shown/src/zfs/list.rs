//! `zfs list`: datasets, one column per property.

use std::cmp::Ordering;

use cenote_control::answers::{Source, Value};
use cenote_control::text::escape_terminal;
use cenote_control::zfs::Shown;
use cenote_control::zfs::select::by_name;
use cenote_control::zfs::wanted::Wanted;
use cenote_format::props::Prop;
use serde_json::Map;

use super::head::head;
use super::value::{heading, least_width, text};
use crate::json::{document, property};
use crate::numbers::Numbers;
use crate::table::Table;

/// Sorts by these properties, each ascending or (true) descending, then by name.
pub fn sort(datasets: &mut [Shown], keys: &[(Wanted, bool)]) {
    datasets.sort_by(|a, b| compare(keys, a, b).then_with(|| by_name(a.order(), b.order())));
}

fn cell(row: &Shown, column: &Wanted, exact: bool) -> String {
    row.property(&column.name()).map_or_else(|| "-".into(), |property| text(property, exact))
}

/// As a table with these columns.
pub fn table(rows: &[Shown], columns: &[Wanted], numbers: Numbers) -> Table {
    let mut table = Table::new(columns.iter().map(heading));
    for (i, column) in columns.iter().enumerate() {
        table.widen(i, least_width(column));
    }
    for row in rows {
        let cells = columns.iter().map(|column| cell(row, column, numbers.exact));
        table.row(cells.map(|cell| escape_terminal(cell.as_bytes())));
    }
    table
}

/// As JSON, with the properties of these columns.
pub fn json(rows: &[Shown], columns: &[Wanted], numbers: Numbers) -> serde_json::Value {
    let mut datasets = Map::new();
    for row in rows {
        let mut properties = Map::new();
        for column in columns.iter().filter(|column| column.name() != "name") {
            let source = match column {
                // Like zfs: `list` knows no source of these.
                Wanted::WrittenSince(_) | Wanted::OfOwner(_) => Source::None,
                _ => row.property(&column.name()).map_or(Source::None, |found| found.source.clone()),
            };
            let value = cell(row, column, numbers.exact);
            properties.insert(column.name(), property(&value, &source, numbers));
        }
        let mut entry = head(row, numbers);
        entry.insert("properties".into(), properties.into());
        datasets.insert(row.name.clone(), entry.into());
    }
    document("zfs list", "datasets", datasets)
}

/// Orders numbers by value, text alphabetically; items without the property come last.
fn compare(keys: &[(Wanted, bool)], a: &Shown, b: &Shown) -> Ordering {
    for (key, down) in keys {
        let name = key.name();
        let order = match (a.property(&name), b.property(&name)) {
            (Some(a), Some(b)) => {
                // Properties that take one of a few words are sorted by the word.
                let word = |number: &u64| Prop::zfs(&name)?.index_name(*number);
                let order = match (&a.value, &b.value) {
                    (Value::Number(a), Value::Number(b)) => word(a).cmp(&word(b)).then(a.cmp(b)),
                    _ => a.literal().cmp(&b.literal()),
                };
                if *down { order.reverse() } else { order }
            }
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

//! Lines of `get`: one property of a pool, vdev or dataset each.

use cenote_control::text::escape_terminal;

use crate::table::{Align, Table};

/// A property.
pub struct PropertyLine {
    /// The pool, vdev or dataset.
    pub name: String,
    /// The property.
    pub property: String,
    /// Its value.
    pub value: String,
    /// The value received in a stream; pools have none.
    pub received: Option<String>,
    /// Where the value comes from.
    pub source: String,
}

impl PropertyLine {
    /// A table with these columns of the lines, among name, property, value, received and source.
    pub fn table<'a>(lines: impl IntoIterator<Item = &'a PropertyLine>, columns: &[String]) -> Table {
        let mut table = Table::new(columns.iter().map(|name| (name.to_uppercase(), Align::Left)));
        for line in lines {
            let cells = columns.iter().map(|column| match column.as_str() {
                "name" => &line.name,
                "property" => &line.property,
                "value" => &line.value,
                "received" => line.received.as_deref().unwrap_or("-"),
                _ => &line.source,
            });
            table.row(cells.map(|cell| escape_terminal(cell.as_bytes())));
        }
        table
    }
}

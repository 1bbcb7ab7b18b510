//! `zfs get`: properties, one per line, with the source of each value.

use cenote_control::zfs::Shown;
use cenote_control::zfs::wanted::Wanted;
use cenote_format::props::{Prop, PropType, ZFS_PROPS};
use serde_json::{Map, Value};

use super::head::head;
use super::value::{received_text, text};
use crate::json::{document, property};
use crate::numbers::Numbers;
use crate::property::PropertyLine;
use crate::table::Table;

/// As a table with these columns. `wanted`: the requested properties; none: all.
pub fn table(found: &[Shown], columns: &[String], wanted: Option<&[Wanted]>, numbers: Numbers) -> Table {
    let lines: Vec<PropertyLine> = found.iter().flat_map(|shown| lines(shown, numbers.exact)).collect();
    let mut table = PropertyLine::table(&lines, columns);
    if let Some(at) = columns.iter().position(|column| column == "value") {
        table.widen(at, least_width(wanted));
    }
    table
}

/// As JSON.
pub fn json(found: &[Shown], numbers: Numbers) -> Value {
    let mut datasets = Map::new();
    for shown in found.iter().filter(|shown| !shown.properties.is_empty()) {
        let mut properties = Map::new();
        for known in &shown.properties {
            let value = property(&text(known, numbers.exact), &known.source, numbers);
            properties.insert(known.name.clone(), value);
        }
        let mut entry = head(shown, numbers);
        entry.insert("properties".into(), properties.into());
        datasets.insert(shown.name.clone(), entry.into());
    }
    document("zfs get", "datasets", datasets)
}

/// Minimum width of the value column: the longest of the heading in `zfs list`, a rounded number, and any
/// value of an index property (`zprop_width`).
fn least_width(wanted: Option<&[Wanted]>) -> usize {
    let of_native = |prop: &Prop| match prop.value {
        PropType::Number { .. } => prop.column.len().max(5),
        PropType::Index { values, .. } => {
            values.iter().map(|(name, _)| name.len()).fold(prop.column.len(), usize::max)
        }
        PropType::String { .. } => prop.column.len(),
    };
    let of = |wanted: &Wanted| match wanted {
        Wanted::Native(prop) => of_native(prop),
        other => other.name().len(),
    };
    match wanted {
        Some(wanted) => wanted.iter().map(of).max().unwrap_or(0),
        None => ZFS_PROPS.iter().filter(|prop| prop.visible).map(of_native).max().unwrap_or(0),
    }
}

fn lines(shown: &Shown, exact: bool) -> impl Iterator<Item = PropertyLine> {
    shown.properties.iter().map(move |property| PropertyLine {
        name: shown.name.clone(),
        property: property.name.clone(),
        value: text(property, exact),
        received: received_text(property, exact),
        source: property.source.to_string(),
    })
}

//! `zfs list`: datasets, one column per property.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use cenote_dataset::{Property, Source, Value};
use cenote_format::props::{Prop, ZFS_PROPS};
use serde_json::{Map, json};

use super::select::{Item, Scope, Types, select};
use super::value::{Wanted, text};
use super::{List, Selection};
use crate::command::form::Form;
use crate::command::json::{document, number_or_text, property};
use crate::message::say_bare;
use crate::outcome::{CliError, Outcome, Say};
use crate::render::{Align, Table, escape_terminal};
use crate::session::Session;

/// An item and its properties.
struct Row {
    item: Item,
    properties: HashMap<String, Property>,
}

impl List {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let columns = columns(&self.columns)?;
        let sort = self.sort_keys()?;
        let selected = select(session, &self.names, self.scope()?).await?;
        if selected.items.is_empty() && session.pools().is_some_and(|pools| pools.all().is_empty()) {
            say_bare("no datasets available");
            return Ok(selected.outcome);
        }
        let mut outcome = selected.outcome;
        let mut rows = Vec::new();
        let all: Vec<&Wanted> = columns.iter().chain(sort.iter().map(|(key, _)| key)).collect();
        for item in selected.items {
            match gather(&item, &all).await {
                Ok(properties) => rows.push(Row { item, properties }),
                Err(error) => {
                    outcome = outcome.and(error.tell(&item.name));
                }
            }
        }
        rows.sort_by(|a, b| compare(&sort, a, b).then_with(|| a.item.order(&b.item)));
        let form = &self.selection.form;
        if rows.is_empty() && !form.script && !session.json() {
            if outcome == Outcome::Done {
                say_bare("no datasets available");
            }
            return Ok(outcome);
        }
        let table = || as_table(&rows, &columns, &form.values);
        form.print(session, table, || as_json(&rows, &columns, &form.values))?;
        Ok(outcome)
    }

    fn scope(&self) -> Result<Scope, CliError> {
        let types = match &self.selection.types {
            Some(types) => Types::parse(types)?,
            // Whatever is named is listed, even a snapshot.
            None => Types::HEADS,
        };
        let attached = self.selection.types.is_some() && types.only_attached() && !self.names.is_empty();
        Ok(self.selection.scope(types, &self.names, u32::from(attached)))
    }

    /// Sort keys. Clap loses the order between `-s` and `-S`, so ascending keys come first.
    fn sort_keys(&self) -> Result<Vec<(Wanted, bool)>, CliError> {
        let ascending = self.sort.iter().map(|name| (name, false));
        let descending = self.sort_descending.iter().map(|name| (name, true));
        ascending.chain(descending).map(|(name, down)| Ok((Wanted::parse(name)?, down))).collect()
    }
}

impl Selection {
    /// How far to descend: all levels with `-r` or if nothing is named, otherwise `least` levels below the
    /// names.
    pub(super) fn scope(&self, types: Types, names: &[String], least: u32) -> Scope {
        let depth = match self.depth {
            Some(depth) => Some(depth),
            None if self.recursive || names.is_empty() => None,
            None => Some(least),
        };
        Scope { types, depth }
    }
}

fn columns(text: &str) -> Result<Vec<Wanted>, CliError> {
    match text {
        "all" => {
            let all = ZFS_PROPS.iter().filter(|prop| prop.visible && prop.name != "name");
            Ok([Wanted::parse("name")?].into_iter().chain(all.map(Wanted::Native)).collect())
        }
        names => Wanted::parse_list(names),
    }
}

/// The properties of an item; reads nothing if only its name is wanted.
async fn gather(item: &Item, wanted: &[&Wanted]) -> Result<HashMap<String, Property>, CliError> {
    let fact =
        |name: &str, value| Property { name: name.into(), value, source: Source::None, received: None };
    let mut known = HashMap::from([("name".to_owned(), fact("name", Value::Text(item.name.clone())))]);
    if wanted.iter().all(|wanted| wanted.name() == "name") {
        return Ok(known);
    }
    let names: HashSet<String> = wanted.iter().map(|wanted| wanted.name()).collect();
    let properties = item.properties_of(&|name| names.contains(name)).await?;
    known.extend(properties.into_iter().map(|property| (property.name.clone(), property)));
    for wanted in wanted {
        let number = match wanted {
            Wanted::WrittenSince(since) => item.written_since(since).await?,
            Wanted::OfOwner(of_owner) => item.of_owner(of_owner).await?,
            _ => None,
        };
        if let Some(number) = number {
            known.insert(wanted.name(), fact(&wanted.name(), Value::Number(number)));
        }
    }
    Ok(known)
}

/// Orders numbers by value, text alphabetically; items without the property come last.
fn compare(keys: &[(Wanted, bool)], a: &Row, b: &Row) -> Ordering {
    for (key, down) in keys {
        let name = key.name();
        let order = match (a.properties.get(&name), b.properties.get(&name)) {
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

fn cell(row: &Row, column: &Wanted, exact: bool) -> String {
    row.properties.get(&column.name()).map_or_else(|| "-".into(), |property| text(property, exact))
}

fn as_table(rows: &[Row], columns: &[Wanted], form: &Form) -> Table {
    let mut table = Table::new(columns.iter().map(Wanted::column).collect::<Vec<(String, Align)>>());
    for (i, column) in columns.iter().enumerate() {
        table.widen(i, column.least_width());
    }
    for row in rows {
        let cells = columns.iter().map(|column| cell(row, column, form.exact()));
        table.row(cells.map(|cell| escape_terminal(cell.as_bytes())));
    }
    table
}

fn as_json(rows: &[Row], columns: &[Wanted], form: &Form) -> serde_json::Value {
    let mut datasets = Map::new();
    for row in rows {
        let mut properties = Map::new();
        for column in columns.iter().filter(|column| column.name() != "name") {
            let source = row.properties.get(&column.name()).map_or(Source::None, |p| p.source.clone());
            let value = cell(row, column, form.exact());
            properties.insert(column.name(), property(&value, &source, form.numbers()));
        }
        let mut entry = head(&row.item, form.numbers());
        entry.insert("properties".into(), properties.into());
        datasets.insert(row.item.name.clone(), entry.into());
    }
    document("zfs list", "datasets", datasets)
}

/// The JSON fields of every dataset other than its properties.
pub(super) fn head(item: &Item, numbers: bool) -> Map<String, serde_json::Value> {
    let mut head = Map::new();
    head.insert("name".into(), json!(item.name));
    head.insert("type".into(), json!(item.kind.json_name()));
    head.insert("pool".into(), json!(item.pool()));
    head.insert("createtxg".into(), number_or_text(&item.createtxg.to_string(), numbers));
    if let Some((dataset, snapshot)) = item.name.split_once('@') {
        head.insert("dataset".into(), json!(dataset));
        head.insert("snapshot_name".into(), json!(snapshot));
    }
    head
}

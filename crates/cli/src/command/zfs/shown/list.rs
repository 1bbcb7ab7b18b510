//! `zfs list`: datasets, one column per property.

use cenote_control::answers::{Source, Value};
use std::cmp::Ordering;

use cenote_control::zfs::list::List as Request;
use cenote_control::zfs::select::{Kind, Scope, Types, by_name};
use cenote_control::zfs::wanted::Wanted;
use cenote_control::zfs::{Datasets, Shown};
use cenote_format::props::{Prop, ZFS_PROPS};
use serde_json::{Map, json};

use super::value::{Column, text};
use crate::command::form::Form;
use crate::command::json::{document, number_or_text, property};
use crate::command::zfs::{List, Selection};
use crate::message::say_bare;
use crate::outcome::{CliError, Outcome};
use crate::render::{Align, Table, escape_terminal};
use crate::session::Session;

impl List {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let columns = columns(&self.columns)?;
        let sort = self.sort_keys()?;
        let all = columns.iter().chain(sort.iter().map(|(key, _)| key));
        let request = Request {
            names: self.names.clone(),
            scope: self.scope()?,
            properties: all.map(Wanted::name).collect(),
        };
        let answered = session.control().run(request).await?;
        let (Datasets { mut datasets, is_without_pools }, outcome) = (answered.answer, answered.outcome);
        if datasets.is_empty() && is_without_pools {
            say_bare("no datasets available");
            return Ok(outcome);
        }
        datasets.sort_by(|a, b| compare(&sort, a, b).then_with(|| by_name(a.order(), b.order())));
        let form = &self.selection.form;
        if datasets.is_empty() && !form.script && !session.json() {
            if outcome == Outcome::Done {
                say_bare("no datasets available");
            }
            return Ok(outcome);
        }
        let table = || as_table(&datasets, &columns, &form.values);
        form.print(session, table, || as_json(&datasets, &columns, &form.values))?;
        Ok(outcome)
    }

    fn scope(&self) -> Result<Scope, CliError> {
        let types = match &self.selection.types {
            Some(types) => Types::parse(types)?,
            // Every named dataset is listed, even a snapshot.
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

fn cell(row: &Shown, column: &Wanted, exact: bool) -> String {
    row.property(&column.name()).map_or_else(|| "-".into(), |property| text(property, exact))
}

fn as_table(rows: &[Shown], columns: &[Wanted], form: &Form) -> Table {
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

fn as_json(rows: &[Shown], columns: &[Wanted], form: &Form) -> serde_json::Value {
    let mut datasets = Map::new();
    for row in rows {
        let mut properties = Map::new();
        for column in columns.iter().filter(|column| column.name() != "name") {
            let source = match column {
                // Like zfs: `list` knows no source of these.
                Wanted::WrittenSince(_) | Wanted::OfOwner(_) => Source::None,
                _ => row.property(&column.name()).map_or(Source::None, |found| found.source.clone()),
            };
            let value = cell(row, column, form.exact());
            properties.insert(column.name(), property(&value, &source, form.numbers()));
        }
        let mut entry = head(row, form.numbers());
        entry.insert("properties".into(), properties.into());
        datasets.insert(row.name.clone(), entry.into());
    }
    document("zfs list", "datasets", datasets)
}

/// The JSON fields of every dataset other than its properties.
pub(super) fn head(shown: &Shown, numbers: bool) -> Map<String, serde_json::Value> {
    let kind = match shown.kind {
        Kind::Filesystem => "FILESYSTEM",
        Kind::Volume => "VOLUME",
        Kind::Snapshot => "SNAPSHOT",
        Kind::Bookmark => "BOOKMARK",
    };
    let mut head = Map::new();
    head.insert("name".into(), json!(shown.name));
    head.insert("type".into(), json!(kind));
    head.insert("pool".into(), json!(shown.pool()));
    head.insert("createtxg".into(), number_or_text(&shown.createtxg.to_string(), numbers));
    if let Some((dataset, snapshot)) = shown.name.split_once('@') {
        head.insert("dataset".into(), json!(dataset));
        head.insert("snapshot_name".into(), json!(snapshot));
    }
    head
}

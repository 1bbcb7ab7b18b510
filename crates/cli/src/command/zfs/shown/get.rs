//! `zfs get`: properties, one per line, with the source of each value.

use cenote_control::zfs::Shown;
use cenote_control::zfs::get::{Get as Request, SourceKind};
use cenote_control::zfs::select::Types;
use cenote_control::zfs::wanted::Wanted;
use cenote_format::props::{Prop, PropType, ZFS_PROPS};
use serde_json::Map;

use super::list::head;
use super::value::{received_text, text};
use crate::command::form::{Form, PropertyLine};
use crate::command::json::{document, property};
use crate::command::zfs::Get;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// The columns of `-o all`.
const ALL_COLUMNS: &str = "name,property,value,received,source";

impl Get {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let columns = PropertyLine::columns(&self.columns, ALL_COLUMNS)?;
        let sources = self.sources()?;
        let wanted = match self.properties.as_str() {
            "all" => None,
            names => Some(Wanted::parse_list(names)?),
        };
        let properties = wanted.as_ref().map(|wanted| wanted.iter().map(Wanted::name).collect());
        let types = self.selection.types.as_deref().map_or(Ok(Types::ALL), Types::parse)?;
        let scope = self.selection.scope(types, &self.names, 0);
        let request = Request { names: self.names, scope, properties, sources };
        let answered = session.control().run(request).await?;
        let (found, outcome) = (answered.answer.datasets, answered.outcome);
        if !session.json() && found.iter().all(|shown| shown.properties.is_empty()) {
            // Like zfs: the header comes with the first line.
            return Ok(outcome);
        }
        let form = &self.selection.form;
        let table = || {
            let lines: Vec<PropertyLine> =
                found.iter().flat_map(|shown| lines(shown, form.values.exact())).collect();
            let mut table = PropertyLine::table(lines.iter(), &columns);
            if let Some(at) = columns.iter().position(|column| *column == "value") {
                table.widen(at, least_width(wanted.as_deref()));
            }
            table
        };
        form.print(session, table, || as_json(&found, &form.values))?;
        Ok(outcome)
    }

    fn sources(&self) -> Result<Option<Vec<SourceKind>>, CliError> {
        let known = || SourceKind::ALL.map(|(word, _)| word).join(", ");
        let parse = |typed: &str| {
            let found = SourceKind::ALL.into_iter().find(|(word, _)| *word == typed);
            found.map(|(_, kind)| kind).ok_or_else(|| CliError::Usage(format!("-s {typed}: use {}", known())))
        };
        self.sources.as_deref().map(|sources| sources.split(',').map(parse).collect()).transpose()
    }
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

fn as_json(found: &[Shown], form: &Form) -> serde_json::Value {
    let mut datasets = Map::new();
    for shown in found.iter().filter(|shown| !shown.properties.is_empty()) {
        let mut properties = Map::new();
        for known in &shown.properties {
            let value = property(&text(known, form.exact()), &known.source, form.numbers());
            properties.insert(known.name.clone(), value);
        }
        let mut entry = head(shown, form.numbers());
        entry.insert("properties".into(), properties.into());
        datasets.insert(shown.name.clone(), entry.into());
    }
    document("zfs get", "datasets", datasets)
}

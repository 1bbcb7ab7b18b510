//! `zfs get`: properties, one per line, with the source of each value.

use cenote_dataset::{Property, Source, Value};
use serde_json::Map;

use super::Get;
use super::list::head;
use super::select::{Item, Types, select};
use super::value::{Wanted, received_text, text};
use crate::command::form::PropertyLine;
use crate::command::json::{document, property};
use crate::outcome::{CliError, Outcome, Say};
use crate::session::Session;

/// The columns of `-o all`.
const ALL_COLUMNS: &str = "name,property,value,received,source";
const SOURCES: [&str; 6] = ["local", "default", "inherited", "temporary", "received", "none"];

/// A line and the source of its value.
type Line = (PropertyLine, Source);

impl Get {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let columns = PropertyLine::columns(&self.columns, ALL_COLUMNS)?;
        let sources = self.sources()?;
        let wanted = match self.properties.as_str() {
            "all" => None,
            names => Some(Wanted::parse_list(names)?),
        };
        let types = self.selection.types.as_deref().map_or(Ok(Types::ALL), Types::parse)?;
        let scope = self.selection.scope(types, &self.names, 0);
        let selected = select(session, &self.names, scope).await?;
        let mut outcome = selected.outcome;
        let mut found = Vec::new();
        for item in selected.items {
            match self.lines(&item, wanted.as_deref()).await {
                Ok(mut lines) => {
                    lines.retain(|(_, source)| sources.is_none_or(|sources| sources.contains(word(source))));
                    found.push((item, lines));
                }
                Err(error) => {
                    outcome = outcome.and(error.tell(&item.name));
                }
            }
        }
        if !session.json() && found.iter().all(|(_, lines)| lines.is_empty()) {
            // Like zfs: the header comes with the first line.
            return Ok(outcome);
        }
        let lines = found.iter().flat_map(|(_, lines)| lines).map(|(line, _)| line);
        let form = &self.selection.form;
        let document = || as_json(&found, form.values.numbers());
        form.print(session, || PropertyLine::table(lines, &columns), document)?;
        Ok(outcome)
    }

    async fn lines(&self, item: &Item, wanted: Option<&[Wanted]>) -> Result<Vec<Line>, CliError> {
        let exact = self.selection.form.values.exact();
        let line = |property: &Property| {
            let line = PropertyLine {
                name: item.name.clone(),
                property: property.name.clone(),
                value: text(property, exact),
                received: received_text(property, exact),
                source: property.source.to_string(),
            };
            (line, property.source.clone())
        };
        let Some(wanted) = wanted else { return Ok(item.properties().await?.iter().map(line).collect()) };
        // Of thousands of datasets, what nobody asks for takes most of the time.
        let is_wanted = |name: &str| wanted.iter().any(|wanted| wanted.name() == name);
        let properties = item.properties_of(&is_wanted).await?;
        let mut lines = Vec::new();
        for wanted in wanted {
            let name = wanted.name();
            let own = |value, source| Property { name: name.clone(), value, source, received: None };
            let found = match wanted {
                Wanted::WrittenSince(since) => {
                    let bytes = item.written_since(since).await?;
                    bytes.map(|bytes| own(Value::Number(bytes), Source::Local))
                }
                Wanted::OfOwner(of_owner) => {
                    let number = item.of_owner(of_owner).await?;
                    number.map(|number| own(Value::Number(number), Source::Local))
                }
                _ if name == "name" => Some(own(Value::Text(item.name.clone()), Source::None)),
                _ => properties.iter().find(|property| property.name == name).cloned(),
            };
            lines.push(line(&found.unwrap_or_else(|| own(Value::Text("-".into()), Source::None))));
        }
        Ok(lines)
    }

    fn sources(&self) -> Result<Option<&str>, CliError> {
        let Some(text) = self.sources.as_deref() else { return Ok(None) };
        match text.split(',').find(|word| !SOURCES.contains(word)) {
            None => Ok(Some(text)),
            Some(word) => Err(CliError::Usage(format!("-s {word}: use {}", SOURCES.join(", ")))),
        }
    }
}

/// The word that `-s` uses for a source.
fn word(source: &Source) -> &'static str {
    match source {
        Source::None => "none",
        Source::Default => "default",
        Source::Local => "local",
        Source::Inherited(_) => "inherited",
        Source::Received => "received",
        Source::Temporary => "temporary",
    }
}

fn as_json(found: &[(Item, Vec<Line>)], numbers: bool) -> serde_json::Value {
    let mut datasets = Map::new();
    for (item, lines) in found.iter().filter(|(_, lines)| !lines.is_empty()) {
        let mut properties = Map::new();
        for (line, source) in lines {
            properties.insert(line.property.clone(), property(&line.value, source, numbers));
        }
        let mut entry = head(item, numbers);
        entry.insert("properties".into(), properties.into());
        datasets.insert(item.name.clone(), entry.into());
    }
    document("zfs get", "datasets", datasets)
}

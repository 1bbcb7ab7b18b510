//! Output formats of the `zpool` and `zfs` verbs: the shared options, and the printer that applies them.

use clap::Args;
use serde_json::Value;

use crate::outcome::CliError;
use crate::render::{Align, Table, escape_terminal};
use crate::session::{Session, print, print_json};

/// How numbers and JSON are printed, for all verbs.
#[derive(Debug, Clone, Args)]
pub struct Form {
    /// Print exact numbers
    #[arg(short = 'p')]
    parsable: bool,
    /// Print exact numbers, as numbers in JSON too
    #[arg(long)]
    json_int: bool,
}

/// The format of output that is a table unless it is JSON.
#[derive(Debug, Clone, Args)]
pub struct TableForm {
    /// No header, tabs between columns
    #[arg(short = 'H')]
    pub script: bool,
    /// How numbers and JSON are printed.
    #[command(flatten)]
    pub values: Form,
}

impl Form {
    /// Whether numbers are exact rather than rounded.
    pub fn exact(&self) -> bool {
        self.parsable || self.json_int
    }

    /// Whether numbers are JSON numbers rather than text.
    pub fn numbers(&self) -> bool {
        self.json_int
    }
}

impl TableForm {
    /// Prints the table, or with `--json` the document; only the printed one is built.
    pub fn print(
        &self,
        session: &Session,
        table: impl FnOnce() -> Table,
        document: impl FnOnce() -> Value,
    ) -> Result<(), CliError> {
        match session.json() {
            true => print_json(&document()),
            false => print(table().text(self.script)),
        }
    }
}

/// A line of `get`: one property of a pool or dataset.
pub struct PropertyLine {
    /// The pool or dataset.
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
    /// The columns selected by `-o` of `get`: a subset of `all`, or `all`.
    pub fn columns<'a>(option: &'a str, all: &'a str) -> Result<Vec<&'a str>, CliError> {
        let columns: Vec<&str> = if option == "all" { all } else { option }.split(',').collect();
        match columns.iter().find(|name| !all.split(',').any(|column| column == **name)) {
            None => Ok(columns),
            Some(name) => Err(CliError::Usage(format!("-o {name}: columns are {all}, all"))),
        }
    }

    /// A table with these columns of the lines.
    pub fn table<'a>(lines: impl Iterator<Item = &'a PropertyLine>, columns: &[&str]) -> Table {
        let mut table = Table::new(columns.iter().map(|name| (name.to_uppercase(), Align::Left)));
        for line in lines {
            let cells = columns.iter().map(|column| match *column {
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

//! How the verbs of `zpool` and `zfs` print: the options they share, and the printer that obeys them.

use clap::Args;
use serde_json::Value;

use crate::outcome::CliError;
use crate::render::{Align, Table, escape_terminal};
use crate::session::{Session, print, print_json};

/// Numbers and JSON, alike in all verbs.
#[derive(Debug, Clone, Args)]
pub struct Form {
    /// Exact numbers
    #[arg(short = 'p')]
    parsable: bool,
    /// JSON, as `--json`
    #[arg(short = 'j')]
    json: bool,
    /// Exact numbers that are numbers in JSON too
    #[arg(long)]
    json_int: bool,
}

/// The form of what is a table unless it is JSON.
#[derive(Debug, Clone, Args)]
pub struct TableForm {
    /// No header, tabs between columns
    #[arg(short = 'H')]
    pub script: bool,
    /// Numbers and JSON
    #[command(flatten)]
    pub values: Form,
}

impl Form {
    /// Exact numbers in place of rounded ones.
    pub fn exact(&self) -> bool {
        self.parsable || self.json_int
    }

    /// JSON was asked for, by this verb's option or the common one.
    pub fn json(&self, session: &Session) -> bool {
        self.json || session.json()
    }

    /// Numbers are numbers in JSON, not text.
    pub fn numbers(&self) -> bool {
        self.json_int
    }
}

impl TableForm {
    /// Prints a table, or the document that JSON has in its place.
    pub fn print(&self, session: &Session, table: &Table, document: &Value) -> Result<(), CliError> {
        match self.values.json(session) {
            true => print_json(document),
            false => print(table.text(self.script)),
        }
    }
}

/// A line of `get`: a property of a pool or dataset.
pub struct PropertyLine {
    /// Whose.
    pub name: String,
    /// Which.
    pub property: String,
    /// Its value.
    pub value: String,
    /// What was received for it in a stream; pools know of no such thing.
    pub received: Option<String>,
    /// Where the value comes from.
    pub source: String,
}

impl PropertyLine {
    /// What `-o` of `get` asks for: some of the columns in `all`, or `all` of them.
    pub fn columns<'a>(option: &'a str, all: &'a str) -> Result<Vec<&'a str>, CliError> {
        let columns: Vec<&str> = if option == "all" { all } else { option }.split(',').collect();
        match columns.iter().find(|name| !all.split(',').any(|column| column == **name)) {
            None => Ok(columns),
            Some(name) => Err(CliError::Usage(format!("-o {name}: there are {all}, all"))),
        }
    }

    /// These columns of the lines.
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

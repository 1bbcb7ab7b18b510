//! Options of the `zpool` and `zfs` verbs about the form of their output.

use cenote_shown::numbers::Numbers;
use clap::Args;

use crate::outcome::CliError;

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
    /// How numbers are printed.
    pub fn numbers(&self) -> Numbers {
        Numbers { exact: self.parsable || self.json_int, as_numbers: self.json_int }
    }
}

/// The columns selected by `-o` of `get`: a subset of `all`, or `all`.
pub fn columns(option: &str, all: &str) -> Result<Vec<String>, CliError> {
    let columns: Vec<String> =
        if option == "all" { all } else { option }.split(',').map(str::to_owned).collect();
    match columns.iter().find(|name| !all.split(',').any(|column| column == **name)) {
        None => Ok(columns),
        Some(name) => Err(CliError::Usage(format!("-o {name}: columns are {all}, all"))),
    }
}

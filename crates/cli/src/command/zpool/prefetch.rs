//! Command line of `zpool prefetch`.

use cenote_control::zpool::activity::prefetch::{Prefetch as Request, Tables};
use cenote_shown::json::version;
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::outcome::{CliError, Outcome, Printed};
use crate::session::{Session, print_json};

/// `zpool prefetch`
#[derive(Debug, Args)]
#[command(
    after_help = "Loads the tables of deduplicated (ddt) and cloned (brt) blocks into the daemon's cache, as \
        far as they fit, so that frees and deduplicated writes need not read them.\n\n\
        Example: cenote zpool prefetch -t ddt tank"
)]
pub struct Prefetch {
    /// Table to load [default: both]
    #[arg(short = 't', value_name = "TYPE")]
    table: Option<Table>,
    /// The pool
    pub pool: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Table {
    Ddt,
    Brt,
}

impl Prefetch {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let tables = self.table.map(|table| match table {
            Table::Ddt => Tables::Ddt,
            Table::Brt => Tables::Brt,
        });
        let answered = session.control().run(Request { pool: self.pool, tables }).await?;
        let shown = || match session.json() {
            true => print_json(&json!({
                "output_version": version("zpool prefetch"),
                "ddt_entries": answered.answer.ddt_entries,
                "brt_entries": answered.answer.brt_entries,
            })),
            false => Ok(()),
        };
        Ok(answered.outcome.printed(shown()))
    }
}

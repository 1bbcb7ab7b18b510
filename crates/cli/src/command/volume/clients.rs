//! Command line of `cenote volume clients`.

use cenote_control::volume::clients::Clients as Request;
use cenote_shown::volume;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote volume clients`
#[derive(Debug, Args)]
#[command(after_help = "`zpool export -f` disconnects them.\n\n\
    Example: cenote volume clients tank")]
pub struct VolumeClients {
    /// No header, tabs between columns
    #[arg(short = 'H', long)]
    pub script: bool,
    /// Only of these pools
    #[arg(value_name = "POOL")]
    pub pools: Vec<String>,
}

impl VolumeClients {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let clients = session.control().run(Request { pools: self.pools }).await?.answer;
        session.show(|| volume::table(&clients).text(self.script), || volume::json(&clients))?;
        Ok(Outcome::Done)
    }
}

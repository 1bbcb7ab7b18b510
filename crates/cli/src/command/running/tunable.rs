//! `cenote tunable`: settings of all pools of the daemon, changeable while they are open.

use cenote_control::running::tunable::{Setting, Tunable as Request};
use cenote_control::text::parse_bytes;
use cenote_shown::running::tunable;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote tunable`
#[derive(Debug, Args)]
#[command(
    after_help = "Needs a daemon (`cenote serve`). Values take effect at once, for all its pools, until it \
        ends. zfs(4) describes the tunables under OpenZFS's names.\n\n\
        Examples:\n  \
        cenote tunable\n  \
        cenote tunable zfs_arc_max=4G zfs_vdev_scrub_max_active=1"
)]
pub struct TunableCommand {
    /// No header, tabs between columns
    #[arg(short = 'H')]
    pub script: bool,
    /// Names to show [default: all], or values to set; sizes with their unit
    #[arg(value_name = "NAME[=VALUE]")]
    pub words: Vec<String>,
}

impl TunableCommand {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (mut names, mut settings) = (Vec::new(), Vec::new());
        for word in &self.words {
            match word.split_once('=') {
                None => names.push(word.clone()),
                Some((name, typed)) => {
                    let value =
                        parse_bytes(typed).map_or_else(|| typed.to_owned(), |bytes| bytes.to_string());
                    settings.push(Setting { name: name.to_owned(), value });
                }
            }
        }
        let shown = session.control().run(Request { names, settings }).await?.answer;
        if session.json() || !shown.is_empty() {
            session.show(|| tunable::table(&shown).text(self.script), || tunable::json(&shown))?;
        }
        Ok(Outcome::Done)
    }
}

//! `cenote tunable`: settings of all pools of the daemon, changeable while they are open.

use cenote_control::running::tunable::{Setting, Tunable as Request, Tuned};
use clap::Args;
use serde_json::{Value, json};

use crate::command::json::document;
use crate::outcome::{CliError, Outcome};
use crate::render::{Align, Table, parse_bytes};
use crate::session::{Session, print, print_json};

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
        match session.json() {
            true => print_json(&as_json(&shown))?,
            false if shown.is_empty() => {}
            false => print(self.as_text(&shown))?,
        }
        Ok(Outcome::Done)
    }

    fn as_text(&self, shown: &[Tuned]) -> String {
        let mut table =
            Table::new([("NAME", Align::Left), ("VALUE", Align::Right), ("DEFAULT", Align::Right)]);
        for Tuned { name, value, default } in shown {
            table.row([name.clone(), value.clone(), default.clone()]);
        }
        table.text(self.script)
    }
}

fn as_json(shown: &[Tuned]) -> Value {
    let entry =
        |tunable: &Tuned| (tunable.name.clone(), json!({"value": tunable.value, "default": tunable.default}));
    document("tunable", "tunables", shown.iter().map(entry).collect())
}

//! `cenote tunable`: what holds for all pools of the daemon and can be changed while they are open.

use cenote_host::tuning::Tunable;
use clap::Args;
use serde_json::{Value, json};

use super::json::document;
use crate::outcome::{CliError, Outcome};
use crate::render::{Align, Table, parse_bytes};
use crate::session::{Session, print, print_json};

/// `cenote tunable`
#[derive(Debug, Args)]
#[command(
    after_help = "A daemon (`cenote serve`) has to run. What is set holds at once, for all of its pools, \
        until it ends. zfs(4) describes the tunables that have OpenZFS's names.\n\n\
        Example: cenote tunable zfs_arc_max=4G zfs_vdev_scrub_max_active=1"
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
    /// Whether it sets nothing.
    pub fn only_looks(&self) -> bool {
        self.words.iter().all(|word| !word.contains('='))
    }

    /// Runs the command.
    pub fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Some(pools) = session.pools() else {
            let why = "no daemon runs (`cenote serve`), and nobody else keeps them";
            return Err(CliError::Refused(format!("cannot show tunables: {why}")));
        };
        let all = pools.tuning.list();
        for word in &self.words {
            let name = word.split_once('=').map_or(&word[..], |(name, _)| name);
            if all.iter().all(|tunable| tunable.name != name) {
                let why = "`cenote tunable` lists all";
                return Err(CliError::Refused(format!("no tunable '{name}'; {why}")));
            }
        }
        let settings: Vec<(&str, &str)> = self.words.iter().filter_map(|word| word.split_once('=')).collect();
        let set = settings.iter().try_for_each(|(name, typed)| {
            let value = parse_bytes(typed).map_or_else(|| (*typed).to_owned(), |bytes| bytes.to_string());
            pools.tuning.set(name, &value).map_err(|error| CliError::Refused(error.to_string()))
        });
        if !settings.is_empty() {
            // Those before the one that was refused are set.
            pools.tune();
        }
        set?;
        let named = |tunable: &Tunable| self.words.contains(&tunable.name);
        let shown: Vec<Tunable> = pools
            .tuning
            .list()
            .into_iter()
            .filter(|tunable| self.words.is_empty() || named(tunable))
            .collect();
        if shown.is_empty() && !session.json() {
            return Ok(Outcome::Done);
        }
        match session.json() {
            true => print_json(&as_json(&shown))?,
            false => print(self.as_text(&shown))?,
        }
        Ok(Outcome::Done)
    }

    fn as_text(&self, shown: &[Tunable]) -> String {
        let mut table =
            Table::new([("NAME", Align::Left), ("VALUE", Align::Right), ("DEFAULT", Align::Right)]);
        for Tunable { name, value, default } in shown {
            table.row([name.clone(), value.clone(), default.clone()]);
        }
        table.text(self.script)
    }
}

fn as_json(shown: &[Tunable]) -> Value {
    let entry = |tunable: &Tunable| {
        (tunable.name.clone(), json!({"value": tunable.value, "default": tunable.default}))
    };
    document("tunable", "tunables", shown.iter().map(entry).collect())
}

//! `cenote rebalance`: rewrites blocks that would lie elsewhere or take up less if they were written today.

use cenote_control::inspect::rebalance::{Aim, Rebalance as Request};
use cenote_shown::inspect::rebalance;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::outcome::{CliError, Outcome, Printed};
use crate::session::Session;

/// `cenote rebalance`
#[derive(Debug, Args)]
#[command(
    after_help = "Changes of vdevs and properties apply to blocks written later. This command applies them \
        to existing blocks: after `zpool add` of a special or another vdev, `zpool attach` to a RAID-Z, \
        `zfs set compression`. Files stay readable and writable, with their content and times. Blocks that \
        snapshots or clones have, too, are left alone unless --shared is given: they would take up space \
        twice.\n\n\
        Examples:\n  cenote rebalance -n tank\n  cenote rebalance --onto special tank/home"
)]
pub struct Rebalance {
    /// Only show what would be rewritten, and what for
    #[arg(short = 'n', long = "dry-run")]
    pub dry_run: bool,
    /// Rewrite only for these aims: special, new-width, compression, new-vdevs
    #[arg(long, value_name = "AIM", value_delimiter = ',', value_parser = aim())]
    pub onto: Vec<Aim>,
    /// Rewrite also blocks that snapshots or clones have, too
    #[arg(long)]
    pub shared: bool,
    /// Pool or dataset, with all descendants
    #[arg(value_name = "DATASET")]
    pub target: String,
}

fn aim() -> impl TypedValueParser<Value = Aim> {
    PossibleValuesParser::new(Aim::ALL.map(Aim::name)).try_map(|name| {
        Aim::ALL.into_iter().find(|aim| aim.name() == name).ok_or_else(|| format!("no aim '{name}'"))
    })
}

impl Rebalance {
    /// Runs the command. After Ctrl-C, another run continues.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Rebalance { dry_run, onto: aims, shared, target } = self;
        let answered = session.control().run(Request { target, aims, dry_run, shared }).await?;
        let answer = &answered.answer;
        Ok(answered.outcome.printed(session.show(|| rebalance::text(answer, shared), || answer)))
    }
}

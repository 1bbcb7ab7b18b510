//! Command line of `zpool iostat`: traffic of the devices in the daemon's pools.
//!
//! The first report covers the time since the pool was opened, each later one its interval.

use std::cell::RefCell;

use cenote_control::answers::PoolHealth;
use cenote_control::zpool::shown::iostat::Iostat as Request;
use cenote_shown::zpool::iostat::{Layout, Report};
use cenote_shown::zpool::scripts::{self, Chosen};
use clap::Args;

use super::repeat::{Repeat, Round, split};
use crate::command::zpool::DeviceNames;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print};

/// `zpool iostat`
#[derive(Debug, Args)]
#[command(
    after_help = "Needs a daemon (`cenote serve`) that holds the pool. Times are averages over the interval; \
        the total is the time in a queue plus the time on the disk.\n\n\
        Example: cenote zpool iostat -vy tank 5 3"
)]
pub struct Iostat {
    /// How devices are named
    #[command(flatten)]
    pub names: DeviceNames,
    /// Include each device
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Omit the first report, which covers the time since import
    #[arg(short = 'y')]
    pub skip_first: bool,
    /// Show average latencies
    #[arg(short = 'l', conflicts_with_all = ["latencies", "sizes"])]
    pub long: bool,
    /// Show operations waiting and in progress
    #[arg(short = 'q', conflicts_with_all = ["latencies", "sizes"])]
    pub queues: bool,
    /// Show histograms of latencies
    #[arg(short = 'w', conflicts_with = "sizes")]
    pub latencies: bool,
    /// Show histograms of request sizes
    #[arg(short = 'r')]
    pub sizes: bool,
    /// With -v, add the output of scripts, as in `zpool status -c`
    #[arg(short = 'c', value_name = "SCRIPTS", num_args = 0..=1)]
    pub scripts: Option<Option<String>>,
    /// No header, tabs between columns
    #[arg(short = 'H')]
    pub script: bool,
    /// Print exact numbers
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Print the header once, not for each report
    #[arg(short = 'n')]
    pub one_header: bool,
    /// Interval and count
    #[command(flatten)]
    pub repeat: Repeat,
    /// Pools [default: all], then an interval in seconds and a count [default: endless]
    pub pools: Vec<String>,
}

impl Iostat {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let chosen = match &self.scripts {
            Some(None) => return print(scripts::list("iostat")).map(|()| Outcome::Done),
            Some(Some(names)) => {
                // Histograms have no columns.
                let has_columns = self.verbose && !self.latencies && !self.sizes;
                Some(Chosen::of(names).map_err(CliError::Refused)?).filter(|_| has_columns)
            }
            None => None,
        };
        let layout = self.layout();
        let health: RefCell<Vec<(String, PoolHealth)>> = RefCell::default();
        let count = async |names: &[String]| -> Result<Report, CliError> {
            let counted = session.control().run(Request { pools: names.to_vec() }).await?.answer;
            if chosen.is_some() {
                health.replace(counted.iter().map(|one| (one.pool.clone(), one.health.clone())).collect());
            }
            Ok(layout.report(&counted))
        };
        let (names, schedule) = split(&self.pools)?;
        let first = count(names).await?;
        if first.is_empty() && !session.json() && !self.script {
            return print("no pools available\n").map(|()| Outcome::Done);
        }
        let (first, before) = if self.skip_first { (None, first) } else { (Some(first), Report::default()) };
        if let (None, Some((interval, _))) = (&first, schedule) {
            session.runtime().sleep(interval).await;
        }
        let (first, before) = (RefCell::new(first), RefCell::new(before));
        let show = async |names: &[String], round: Round| {
            let taken = first.take();
            let now = match taken {
                Some(first) => first,
                None => count(names).await?,
            };
            let shown = now.since(&before.borrow());
            before.replace(now);
            let scripts = match &chosen {
                Some(chosen) => {
                    let pools = health.take();
                    let pools = pools.iter().map(|(name, health)| (&**name, health));
                    Some(session.runtime().blocking(chosen.runs(pools)).await)
                }
                None => None,
            };
            let layout = Layout { scripts: scripts.as_ref(), ..layout };
            session.show(|| layout.text(&shown, round.is_first), || round.stamp(layout.json(&shown)))?;
            Ok(Outcome::Done)
        };
        self.repeat.run(session, &self.pools, show).await
    }

    fn layout(&self) -> Layout<'static> {
        Layout {
            names: self.names.into(),
            verbose: self.verbose,
            long: self.long,
            queues: self.queues,
            latencies: self.latencies,
            sizes: self.sizes,
            script: self.script,
            parsable: self.parsable,
            one_header: self.one_header,
            scripts: None,
        }
    }
}

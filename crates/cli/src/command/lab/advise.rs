//! `cenote lab advise`: gives advice about pools, and watches them.
//!
//! With a daemon, the facts are those of its open pools; without one, of the kernel module's pools.

mod metrics;
mod world;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cenote_agent::Webhook;
use cenote_control::running::advise::Advise as Request;
use cenote_lab::advice::facts::Look;
use cenote_lab::advice::watch::{Settings, watch};
use cenote_lab::advice::{Facts, Review, review, rules, text};
use cenote_lab::control::Control;
use cenote_lab::result::ResultFolder;
use cenote_lab::sample::smart::History;
use clap::Args;
use std::sync::Arc;

use super::failed;
use crate::args::common::HERE;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_bytes, print_json};

/// `cenote lab advise`
#[derive(Debug, Args)]
#[command(after_help = "Changes nothing: run the recommended commands yourself.\n\n\
    Exit status: 3 if something critical was found.\n\n\
    Examples:\n  \
    cenote lab advise                              # all imported pools of the daemon or the kernel\n  \
    cenote lab advise tank pools-20261122T101500Z  # a pool, and a result measured on its machine\n  \
    cenote lab advise --watch --state /var/lib/cenote/alerts.json --metrics 127.0.0.1:9134 --webhook \
    https://example.org/hook")]
pub struct Advise {
    /// Pools, folders of results, or folders of recorded outputs [default: all imported pools]
    pub subjects: Vec<String>,
    /// Show the reasons' sources, and the checks that passed
    #[arg(short, long)]
    pub verbose: bool,
    /// Observe latencies for this many seconds, instead of since the import
    #[arg(long, value_name = "SECONDS")]
    pub window: Option<u64>,
    /// Query the disks with smartctl, and keep a daily record in this folder
    #[arg(long, value_name = "DIR", help_heading = HERE)]
    pub smart: Option<PathBuf>,
    /// List the rules with their reasons and sources, and exit
    #[arg(long, help_heading = HERE)]
    pub rules: bool,
    /// Keep watching: report problems when they begin and end
    #[arg(long, help_heading = HERE)]
    pub watch: bool,
    #[command(flatten, next_help_heading = HERE)]
    watching: Watching,
}

/// How to watch.
#[derive(Debug, Args)]
struct Watching {
    /// Seconds between checks
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        requires = "watch",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    interval: u64,
    /// Seconds without the problem before its alert ends
    #[arg(long, value_name = "SECONDS", default_value_t = 600, requires = "watch")]
    clear_after: u64,
    /// Keep alerts in this file across restarts
    #[arg(long, value_name = "FILE", requires = "watch")]
    state: Option<PathBuf>,
    /// Serve Prometheus metrics at this address, as /metrics
    #[arg(long, value_name = "ADDRESS:PORT", requires = "watch", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,
    /// Post the start and end of each alert to this URL, as JSON
    #[arg(long, value_name = "URL", requires = "watch")]
    webhook: Option<String>,
}

impl Advise {
    /// Whether it asks only about open pools, which may be the daemon's.
    pub fn is_for_daemon(&self) -> bool {
        !self.rules && !self.watch && self.smart.is_none() && self.folders_and_pools().0.is_empty()
    }

    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.rules {
            return self.list_rules(session);
        }
        if self.watch {
            return self.go_on(session.json()).await;
        }
        let (reviews, outcome) = match session.control().is_with_daemon() {
            true => {
                let (pools, window_s) = (self.subjects.clone(), self.window);
                let answered = session.control().run(Request { pools, window_s }).await?;
                (vec![answered.answer], answered.outcome)
            }
            false => {
                let reviews: Vec<Review> = self.facts()?.iter().map(review).collect();
                let is_critical = reviews.iter().any(Review::is_critical);
                (reviews, if is_critical { Outcome::Damaged } else { Outcome::Done })
            }
        };
        if session.json() {
            print_json(&reviews)?
        } else {
            print_bytes(self.shown(&reviews))?
        }
        Ok(outcome)
    }

    /// Separates folders (a result or a recording) from pools.
    fn folders_and_pools(&self) -> (Vec<&String>, Vec<&String>) {
        self.subjects.iter().partition(|subject| Path::new(subject).is_dir())
    }

    /// The facts about each subject.
    fn facts(&self) -> Result<Vec<Facts>, CliError> {
        let (folders, pools) = self.folders_and_pools();
        let mut all = Vec::new();
        for folder in folders {
            let path = Path::new(folder);
            let recorded = path.join("status.json").exists();
            all.push(if recorded {
                Facts::recorded(path).map_err(failed)?
            } else {
                Facts::of_result(&ResultFolder::open(path).map_err(failed)?).map_err(failed)?
            });
        }
        if !pools.is_empty() || all.is_empty() {
            all.push(Facts::gather(&self.look(pools.into_iter().cloned().collect())?).map_err(failed)?);
        }
        Ok(all)
    }

    fn look(&self, pools: Vec<String>) -> Result<Look, CliError> {
        let smart = self.smart.as_deref().map(History::open).transpose().map_err(failed)?;
        Ok(Look { pools, window: self.window.map(Duration::from_secs), smart })
    }

    fn shown(&self, reviews: &[Review]) -> String {
        let layout = text::Layout {
            colour: std::io::stdout().is_terminal(),
            verbose: self.verbose,
            width: text::WIDTH,
        };
        reviews.iter().map(|review| text::text(review, layout)).collect::<Vec<_>>().join("\n")
    }

    fn list_rules(&self, session: &Session) -> Result<Outcome, CliError> {
        if session.json() {
            print_json(&rules::RULES)?
        } else {
            print(text::rules(text::WIDTH))?
        }
        Ok(Outcome::Done)
    }

    async fn go_on(self, json: bool) -> Result<Outcome, CliError> {
        if let Some(folder) = self.folders_and_pools().0.first() {
            let why = "is a folder: recorded results do not change; --watch observes pools";
            return Err(CliError::Usage(format!("{folder} {why}")));
        }
        let settings = Settings {
            interval: Duration::from_secs(self.watching.interval),
            clear_after: Duration::from_secs(self.watching.clear_after),
            state: self.watching.state.clone(),
            webhook: self.watching.webhook.is_some(),
        };
        let page = self.watching.metrics.map(metrics::serve).transpose()?;
        let webhook = self.watching.webhook.as_deref().map(Webhook::new).transpose()?;
        let mut world = world::Real { look: self.look(self.subjects.clone())?, webhook, page, json };
        let control = Arc::new(Control::default());
        let stop = control.clone();
        let signal = tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.stop();
            }
        });
        let done = tokio::task::spawn_blocking(move || watch(&settings, &mut world, &control)).await;
        signal.abort();
        done.map_err(|error| CliError::Refused(error.to_string()))?.map_err(failed)?;
        Ok(Outcome::Done)
    }
}

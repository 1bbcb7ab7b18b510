//! Command line of `cenote arcstat`: activity of the caches of the daemon's pools, per interval.
//!
//! The first line covers the time since the pools were opened, each later one its interval.

use std::cell::RefCell;

use cenote_control::running::arcstat::{Arcstat as Request, Sample};
use cenote_shown::numbers::Numbers;
use cenote_shown::running::arcstat::{self, Layout};
use clap::Args;

use crate::command::zpool::shown::repeat::{Repeat, Round};
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote arcstat`
#[derive(Debug, Args)]
#[command(after_help = "Needs a daemon (`cenote serve`) that holds pools.\n\n\
        Columns:\n  \
        read, h%       look-ups, and the share of hits\n  \
        ddread, ddh%   the same for blocks of files and volumes\n  \
        dmread, dmh%   the same for all other blocks\n  \
        pread, ph%     blocks to prefetch, and the share of them already cached\n  \
        used%          share of prefetched blocks that were used\n  \
        evicted        blocks evicted from memory\n  \
        blocks         blocks in memory\n  \
        size, c        size of the caches, and its limit\n  \
        l2read, l2h%   with cache devices: look-ups there, and the share of hits\n  \
        l2bytes        bytes read from cache devices\n  \
        l2asize        bytes that cache devices hold\n  \
        l2hdr          memory for their headers\n\n\
        Example: cenote arcstat -v 5 3")]
pub struct Arcstat {
    /// Report each pool's cache, the hit ratio of other sizes, and recommended changes
    #[arg(long)]
    pub report: bool,
    /// Show each pool, and the values that its policy adapts
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Print exact numbers
    #[arg(short = 'p')]
    pub parsable: bool,
    /// No header, tabs between columns
    #[arg(short = 'H')]
    pub script: bool,
    /// Interval and count
    #[command(flatten)]
    pub repeat: Repeat,
    /// An interval in seconds and a count [default: endless]
    #[arg(value_name = "INTERVAL [COUNT]")]
    pub schedule: Vec<String>,
}

impl Arcstat {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.report {
            let samples = session.control().run(Request { outlook: true }).await?.answer;
            session.show(|| arcstat::reports(&samples), || arcstat::reports_json(&samples))?;
            return Ok(Outcome::Done);
        }
        let numbers = Numbers { exact: self.parsable, ..Numbers::default() };
        let layout = Layout { verbose: self.verbose, numbers, script: self.script };
        let before = RefCell::new(Vec::<Sample>::new());
        let show = async |words: &[String], round: Round| {
            if let Some(word) = words.first() {
                return Err(CliError::Usage(format!("{word}: give an interval in seconds, then a count")));
            }
            let now = self.samples(session).await?;
            let shown: Vec<Sample> = now.iter().map(|now| now.since(&before.borrow())).collect();
            before.replace(now);
            let unix_seconds = (session.runtime().unix_time_ns() / 1_000_000_000).cast_signed();
            let text = || layout.text(&shown, unix_seconds, round.is_first);
            session.show(text, || round.stamp(arcstat::json(&shown)))?;
            Ok(Outcome::Done)
        };
        self.repeat.run(session, &self.schedule, show).await
    }

    async fn samples(&self, session: &Session) -> Result<Vec<Sample>, CliError> {
        let all = session.control().run(Request { outlook: false }).await?.answer;
        let total = Sample::sum("total", &all);
        Ok(if self.verbose { all.into_iter().chain([total]).collect() } else { vec![total] })
    }
}

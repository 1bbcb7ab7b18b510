//! Command line of `zpool wait`.

use std::ffi::OsStr;

use cenote_control::text::date;
use cenote_control::zpool::activity::wait::{Activity, Wait as Request};
use cenote_shown::numbers::Numbers;
use cenote_shown::zpool::wait;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Args, Command};

use super::shown::repeat::seconds;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print};

/// Reads an activity; an unknown one is refused in OpenZFS's words.
#[derive(Debug, Clone)]
struct ByName;

impl TypedValueParser for ByName {
    type Value = Activity;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, typed: &OsStr) -> Result<Activity, clap::Error> {
        let typed = typed.to_string_lossy();
        let found = Activity::ALL.into_iter().find(|(name, ..)| *name == typed);
        found.map(|(_, activity, _)| activity).ok_or_else(|| {
            let known = Activity::ALL.map(|(name, ..)| name).join(", ");
            let why = format!("invalid activity '{typed}'; known: {known}");
            command.clone().error(ErrorKind::InvalidValue, why)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Activity::ALL.into_iter().map(|(name, _, about)| PossibleValue::new(name).help(about))))
    }
}

/// `zpool wait`
#[derive(Debug, Args)]
#[command(after_help = "Needs a daemon (`cenote serve`) that holds the pool.\n\n\
    Example: cenote zpool wait -t free,scrub tank")]
pub struct Wait {
    /// With an interval, print no header
    #[arg(short = 'H')]
    pub script: bool,
    /// Print exact numbers
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Print the time first: `u` in seconds since 1970, `d` like date(1)
    #[arg(short = 'T', value_name = "u|d")]
    pub stamp: Option<String>,
    /// Activities to wait for, comma-separated [default: all]
    #[arg(short = 't', value_name = "ACTIVITY", value_delimiter = ',', value_parser = ByName)]
    pub activities: Vec<Activity>,
    /// The pool
    pub pool: String,
    /// Seconds between reports of the remaining work
    pub interval: Option<String>,
}

impl Wait {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Some(interval) = self.interval.as_deref().map(seconds).transpose()? else {
            return Ok(session.control().run(self.request(None)).await?.outcome);
        };
        let numbers = Numbers { exact: self.parsable, ..Numbers::default() };
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        let mut left = session.control().run(self.request(Some(0))).await?.answer;
        if !self.script {
            print(wait::header(&left))?;
        }
        loop {
            print(self.stamped(session) + &wait::row(&left, numbers, self.script))?;
            if left.iter().all(|left| left.bytes.is_none()) {
                return Ok(Outcome::Done);
            }
            let shown = session.runtime().now();
            left = session.control().run(self.request(Some(interval_ms))).await?.answer;
            // The work ended before the next report was due.
            if session.runtime().now().since(shown) < interval {
                return Ok(Outcome::Done);
            }
        }
    }

    fn request(&self, most_ms: Option<u64>) -> Request {
        Request { pool: self.pool.clone(), activities: self.activities.clone(), most_ms }
    }

    fn stamped(&self, session: &Session) -> String {
        let seconds = session.runtime().unix_time_ns() / 1_000_000_000;
        match self.stamp.as_deref() {
            Some("u") => format!("{seconds}\n"),
            Some(_) => format!("{}\n", date(seconds.cast_signed())),
            None => String::new(),
        }
    }
}

//! `zpool wait`: waits until work of the daemon's pools is done.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_wait`), zpool-wait(8).

use std::ffi::OsStr;
use std::time::Duration;

use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::Phys;
use cenote_format::dsl::names::pool as names;
use cenote_format::scan::{RebuildPhys, RemovingPhys, ScanPhys, ScanState};
use cenote_pool::{Pass, VdevKind};
use cenote_tasks::{ExpansionProgress, expansion, is_passing, rebuilding};
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, ValueEnum};

use super::repeat::seconds;
use crate::outcome::{CliError, Outcome};
use crate::render::{date, nice_bytes};
use crate::session::{Session, print};

/// How often it is looked whether the work is done.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Work that takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Activity {
    /// A checkpoint is being discarded.
    Discard,
    /// What was destroyed is being freed.
    Free,
    /// Devices are being initialized.
    Initialize,
    /// Devices are being replaced.
    Replace,
    /// A device is being removed.
    Remove,
    /// A resilver runs.
    Resilver,
    /// A scrub runs.
    Scrub,
    /// Devices are being trimmed.
    Trim,
    /// A RAID-Z vdev is being expanded.
    RaidzExpand,
}

/// Reads an activity; an unknown one is refused in OpenZFS's words.
#[derive(Debug, Clone)]
struct ByName;

impl TypedValueParser for ByName {
    type Value = Activity;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, typed: &OsStr) -> Result<Activity, clap::Error> {
        let typed = typed.to_string_lossy();
        Activity::from_str(&typed, false).map_err(|_| {
            let known: Vec<String> = Activity::value_variants().iter().copied().map(name).collect();
            let why = format!("invalid activity '{typed}'; known: {}", known.join(", "));
            command.clone().error(ErrorKind::InvalidValue, why)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Activity::value_variants().iter().filter_map(ValueEnum::to_possible_value)))
    }
}

/// `zpool wait`
#[derive(Debug, Args)]
#[command(after_help = "A daemon (`cenote serve`) has to hold the pool.\n\n\
        Example: cenote zpool wait -t free,scrub tank")]
pub struct Wait {
    /// With an interval: no header
    #[arg(short = 'H')]
    pub script: bool,
    /// Exact numbers
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Print the time first: `u` in seconds since 1970, `d` as date(1) does
    #[arg(short = 'T', value_name = "u|d")]
    pub stamp: Option<String>,
    /// Work to wait for, comma-separated [default: all]
    #[arg(short = 't', value_name = "ACTIVITY", value_delimiter = ',', value_parser = ByName)]
    pub activities: Vec<Activity>,
    /// The pool
    pub pool: String,
    /// Show every so many seconds what is left
    pub interval: Option<String>,
}

impl Wait {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let found = session.find_pool(&self.pool).await?;
        let Some(pool) = session.held(&found) else {
            let why = "no daemon has the pool open; without one, work is done when its command ends";
            return Err(CliError::Refused(format!("cannot wait for '{}': {why}", self.pool)));
        };
        let interval = self.interval.as_deref().map(seconds).transpose()?;
        let all = Activity::value_variants().to_vec();
        let wanted = if self.activities.is_empty() { all } else { self.activities.clone() };
        if interval.is_some() && !self.script {
            print(header(&wanted))?;
        }
        let mut shown = None;
        loop {
            let left = left(&pool.engine, &wanted).await?;
            let now = session.runtime().now();
            if interval.is_some_and(|interval| shown.is_none_or(|shown| now.since(shown) >= interval)) {
                shown = Some(now);
                print(self.stamped(session) + &self.row(&left))?;
            }
            if left.iter().all(|(_, left)| left.is_none()) {
                return Ok(Outcome::Done);
            }
            session.runtime().sleep(interval.unwrap_or(LOOK_INTERVAL).min(LOOK_INTERVAL)).await;
        }
    }

    fn stamped(&self, session: &Session) -> String {
        let seconds = session.runtime().unix_time_ns() / 1_000_000_000;
        match self.stamp.as_deref() {
            Some("u") => format!("{seconds}\n"),
            Some(_) => format!("{}\n", date(seconds.cast_signed())),
            None => String::new(),
        }
    }

    fn row(&self, left: &[(Activity, Option<u64>)]) -> String {
        let cell = |&(activity, left): &(Activity, Option<u64>)| {
            let left = match left {
                None => "-".into(),
                Some(bytes) if self.parsable => bytes.to_string(),
                Some(bytes) => nice_bytes(bytes),
            };
            if self.script { left } else { format!("{left:>width$}", width = name(activity).len()) }
        };
        let cells: Vec<String> = left.iter().map(cell).collect();
        cells.join(if self.script { "\t" } else { "  " }) + "\n"
    }
}

fn name(activity: Activity) -> String {
    activity.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn header(wanted: &[Activity]) -> String {
    let names: Vec<String> = wanted.iter().map(|activity| name(*activity)).collect();
    names.join("  ") + "\n"
}

/// Bytes that are left, as far as that is known; `None`: nothing is being done.
async fn left(engine: &Engine, wanted: &[Activity]) -> Result<Vec<(Activity, Option<u64>)>, CliError> {
    let (mos, mut all) = (&engine.mos().await?, Vec::new());
    for &activity in wanted {
        let bytes = match activity {
            Activity::Free => {
                let freeing = mos.freeing_bytes().await?;
                let destroys = !mos.pending_destroys().await?.is_empty();
                (freeing > 0 || destroys).then_some(freeing)
            }
            Activity::Scrub => {
                let errors = mos.error_scrub_status().await?;
                let errors = errors.filter(|scrub| scrub.is_running() && !scrub.is_paused());
                // How many bytes they are is not known.
                scan(mos, ScanPhys::is_scrub).await?.or(errors.map(|_| 0))
            }
            Activity::Resilver => resilver(mos).await?,
            Activity::Replace => has_kind(mos, VdevKind::Replacing).then_some(0),
            Activity::Remove => removing(mos).await?,
            // How much is left is not known.
            Activity::Initialize => is_passing(engine, Pass::Initialize).await?.then_some(0),
            Activity::Trim => is_passing(engine, Pass::Trim).await?.then_some(0),
            Activity::RaidzExpand => {
                let left = |it: ExpansionProgress| it.total_bytes.saturating_sub(it.done_bytes);
                expansion(engine, mos).await?.map(left)
            }
            // The engine does not do that in the background.
            Activity::Discard => None,
        };
        all.push((activity, bytes));
    }
    Ok(all)
}

async fn scan(mos: &Mos, is_it: impl Fn(&ScanPhys) -> bool) -> Result<Option<u64>, CliError> {
    let scan = mos.scan_status().await?;
    let scan = scan.filter(|scan| is_it(scan) && scan.is_running() && !scan.is_paused());
    Ok(scan.map(|scan| scan.to_examine_bytes.saturating_sub(scan.examined_bytes)))
}

/// Of either kind.
async fn resilver(mos: &Mos) -> Result<Option<u64>, CliError> {
    let left = |(_, state): &(_, RebuildPhys)| state.estimated_bytes.saturating_sub(state.scanned_bytes);
    match &rebuilding(mos).await?[..] {
        [] => scan(mos, ScanPhys::is_resilver).await,
        rebuilds => Ok(Some(rebuilds.iter().map(left).sum())),
    }
}

fn has_kind(mos: &Mos, kind: VdevKind) -> bool {
    let (health, mut found) = (mos.pool().status(), false);
    health.root.walk(&mut |vdev| found |= vdev.kind == kind);
    found
}

async fn removing(mos: &Mos) -> Result<Option<u64>, CliError> {
    let Some(words) = mos.directory()?.lookup(names::REMOVING.as_bytes()).await? else { return Ok(None) };
    let removing = RemovingPhys::from_words(&words.words().collect::<Vec<_>>());
    let removing = removing.ok().filter(|it| ScanState::from(it.state) == ScanState::Scanning);
    Ok(removing.map(|it| it.to_copy_bytes.saturating_sub(it.copied_bytes)))
}

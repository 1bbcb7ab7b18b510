//! `cenote trace record`: see [`cenote_study::trace::Recording`].

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use cenote_study::StudyError;
use cenote_study::trace::{Recorded, Recording};
use clap::Args;
use serde_json::json;

use crate::outcome::{CliError, Outcome};
use crate::session::{Session, interrupted, print, print_json};
use crate::streams::local;

/// How often what happened is written.
const EVERY: Duration = Duration::from_millis(200);

/// `cenote trace record`
#[derive(Debug, Args)]
#[command(
    after_help = "A daemon (`cenote serve`) has to hold the pool. Readers never wait for the recording: what \
        is not written in time is counted as lost. Replay it with other policies and sizes: `cenote trace \
        replay`, `cenote trace curve`.\n\n\
        With a command, the recording begins before it and ends with it; the exit status is the \
        command's.\n\n\
        Examples:\n  cenote trace record --seconds 600 tank evening.csv.zst\n  \
        cenote trace record tank build.csv.zst -- make -C /tank/src"
)]
pub struct Record {
    /// How long [default: until it is interrupted]
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// The pool
    pub pool: String,
    /// The file to write
    pub file: PathBuf,
    /// Record while this runs
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "seconds")]
    pub command: Vec<OsString>,
}

impl Record {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Some(pool) = session.pools().and_then(|pools| pools.get(&self.pool)) else {
            let why = "no daemon (`cenote serve`) holds it open";
            return Err(CliError::Refused(format!("cannot record '{}': {why}", self.pool)));
        };
        let shown = self.file.display().to_string();
        let failed = |error: StudyError| match error {
            StudyError::Io(error) => CliError::io(shown.clone())(error),
            StudyError::Dataset(error) => error.into(),
            error => CliError::Refused(error.to_string()),
        };
        let file = File::create_new(local(&self.file)).map_err(CliError::io(shown.clone()))?;
        let mut recording = Recording::begin(&pool.engine, file).map_err(failed)?;
        let runtime = session.runtime();
        let end = self.seconds.map(|seconds| runtime.now() + Duration::from_secs(seconds));
        loop {
            let left = end.map_or(EVERY, |end| (end - runtime.now()).min(EVERY));
            let is_over = tokio::select! {
                () = interrupted() => true,
                () = runtime.sleep(left) => end.is_some_and(|end| runtime.now() >= end),
            };
            recording.write().map_err(failed)?;
            if is_over {
                break;
            }
        }
        let Recorded { look_ups, transfers, lost } = recording.end().await.map_err(failed)?;
        match session.json() {
            true => print_json(
                &json!({"look_ups": look_ups, "transfers": transfers, "lost": lost, "file": shown}),
            )?,
            false => print(format!(
                "{look_ups} look-ups and {transfers} operations of devices in {shown}, {lost} lost\n"
            ))?,
        }
        Ok(Outcome::Done)
    }
}

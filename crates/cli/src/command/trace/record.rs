//! Command line of `cenote trace record`.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

use cenote_control::running::record::{Record as Request, Recorded};
use clap::Args;
use serde_json::json;

use super::around::Around;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

/// `cenote trace record`
#[derive(Debug, Args)]
#[command(after_help = "Needs a daemon (`cenote serve`) that holds the pool. I/O never waits for the \
        recording; events not written in time are counted as lost. To replay it with other policies and \
        sizes, use `cenote trace replay` and `cenote trace curve`.\n\n\
        With a command, the recording begins before it and ends with it; the exit status is the \
        command's.\n\n\
        Examples:\n  \
        cenote trace record --seconds 600 tank evening.csv.zst\n  \
        cenote trace record tank build.csv.zst -- make -C /tank/src")]
pub struct Record {
    /// Duration [default: until interrupted]
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// The pool
    pub pool: String,
    /// File to write
    pub file: PathBuf,
    /// Record while this command runs
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "seconds")]
    pub command: Vec<OsString>,
}

impl Record {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (path, shown) = (self.file.clone(), self.file.display().to_string());
        let failed = || CliError::io(shown.clone());
        let file = File::create_new(&path).map_err(failed())?;
        let watched = file.try_clone().map_err(failed())?;
        let around = Around::start(&self.command, watched, session.control().ender());
        let request = Request { pool: self.pool, seconds: self.seconds, file: shown.clone() };
        let recorded = session.control().run_with_files(request, vec![file.into()]).await;
        if let Some(status) = around.and_then(Around::status)
            && recorded.is_ok()
        {
            session.end_with(status);
        }
        if recorded.is_err() && path.metadata().is_ok_and(|file| file.len() == 0) {
            // It never began.
            std::fs::remove_file(&path).ok();
        }
        let Recorded { look_ups, transfers, lost } = recorded?.answer;
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

//! `trace record`: records a pool's cache look-ups and device operations to a file opened by the caller.
//!
//! It runs until the caller interrupts it, or for a given time. Readers never wait for it: lines not written
//! in time are counted as lost.

mod recording;

use std::fs::File;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use recording::{Recorded, Recording};

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Runs, Verb};

/// Interval between writes.
const EVERY: Duration = Duration::from_millis(200);
/// The longest duration, to avoid overflow of the clock: ten years.
const MOST_SECONDS: u64 = 10 * 365 * 86_400;

/// A `trace record` request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Pool's name.
    pub pool: String,
    /// Duration; none: until interrupted.
    #[serde(default)]
    pub seconds: Option<u64>,
    /// The file's name in messages. The file is the request's first, and empty.
    pub file: String,
}

impl Verb for Record {
    const NAME: &'static str = "trace record";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const RUNS: Runs = Runs::AtTerminal;
    const SEES_ALL: bool = true;
    type Answer = Recorded;

    /// # Errors
    /// No daemon holds the pool; the file can't be written.
    async fn carry_out(self, session: &Session) -> Result<Answered<Recorded>, ControlError> {
        let Some(pool) = session.held_by_name(&self.pool) else {
            let why = "no daemon (`cenote serve`) holds it open";
            return Err(ControlError::Refused(format!("cannot record '{}': {why}", self.pool)));
        };
        let failed = || ControlError::io(self.file.clone());
        let (caller, runtime) = (session.caller(), session.runtime());
        let file = File::from(caller.file(0)?);
        let mut recording = Recording::begin(&pool.engine, file).map_err(failed())?;
        let seconds = self.seconds.map(|seconds| Duration::from_secs(seconds.min(MOST_SECONDS)));
        let end = seconds.map(|time| runtime.now() + time);
        let all = async {
            let mut interrupted = std::pin::pin!(caller.interrupted());
            loop {
                let left = end.map_or(EVERY, |end| (end - runtime.now()).min(EVERY));
                let is_over = tokio::select! {
                    biased;
                    () = &mut interrupted => true,
                    () = runtime.sleep(left) => end.is_some_and(|end| runtime.now() >= end),
                };
                recording.write().map_err(failed())?;
                if is_over {
                    break;
                }
            }
            recording.end(&self.file).await
        };
        // An interrupt is the usual end.
        Ok(caller.whole(all).await?.into())
    }
}

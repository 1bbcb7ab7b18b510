//! `trace record`: what is looked up in a pool's cache and sent to its devices, to a file that the caller has
//! opened.
//!
//! It goes on until the caller interrupts it, or for some time. Readers never wait for it: what is not
//! written in time is counted as lost.

mod recording;

use std::fs::File;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use recording::{Recorded, Recording};

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Runs, Verb};

/// How often what happened is written.
const EVERY: Duration = Duration::from_millis(200);
/// The longest time, by which a clock can still be added up: ten years.
const MOST_SECONDS: u64 = 10 * 365 * 86_400;

/// Of which pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// By name.
    pub pool: String,
    /// How long; none: until it is interrupted.
    #[serde(default)]
    pub seconds: Option<u64>,
    /// The file's name in messages. It is the first that comes with the request, and empty.
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
        // An interrupt is how it usually ends.
        Ok(caller.whole(all).await?.into())
    }
}

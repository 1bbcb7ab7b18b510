//! `zpool scrub`: every block verified and repaired.
//!
//! In the daemon scans run in the background. Alone, a verb scans until it is done; what it leaves when it is
//! interrupted, the next one goes on with, and so does OpenZFS at import.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_scrub`), including the wording.

use cenote_engine::Engine;
use cenote_format::dsl::names::pool as names;
use cenote_format::units::Txg;
use cenote_tasks::{cancel_scrub, pause_scrub, start_error_scrub, start_scrub};
use serde::{Deserialize, Serialize};

use super::scans::scan;
use crate::error::{ControlError, Outcome};
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// What is to be verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrub {
    /// Pools.
    pub pools: Vec<String>,
    /// What is to become of the scrub.
    #[serde(default)]
    pub order: Order,
    /// Wait until it is done, as without a daemon.
    #[serde(default)]
    pub wait: bool,
}

/// What is to become of a scrub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// It begins, or goes on.
    #[default]
    Start,
    /// The same, for what was born after the last complete one.
    StartSinceLast,
    /// The same, for the blocks in the error log: what is mended leaves it.
    StartErrors,
    /// It pauses.
    Pause,
    /// It stops for good.
    Stop,
}

impl Verb for Scrub {
    const NAME: &'static str = "zpool scrub";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// A pool is not there: told of. Blocks that can't be repaired are an outcome.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let work = async |engine: &Engine, pool: &String| match self.order {
            Order::Pause => {
                let paused = pause_scrub(engine).await;
                paused.map_err(cannot(format!("pause scrubbing {pool}")))?;
                Ok(Outcome::Done)
            }
            Order::Stop => {
                let ended = cancel_scrub(engine).await;
                ended.map_err(cannot(format!("cancel scrubbing {pool}")))?;
                Ok(Outcome::Done)
            }
            Order::Start | Order::StartSinceLast | Order::StartErrors => {
                // Without a daemon nobody goes on with a scrub but this.
                let is_ours = session.pools().is_none() && self.is_running(engine).await?;
                if !is_ours {
                    let started = match self.order {
                        Order::StartErrors => start_error_scrub(engine).await.map(drop),
                        _ => start_scrub(engine, self.after(engine).await?).await,
                    };
                    started.map_err(cannot(format!("scrub {pool}")))?;
                }
                scan(session, engine, self.wait).await
            }
        };
        Ok(session.change_each(&self.pools, |pool| pool.as_str(), work).await?.into())
    }
}

impl Scrub {
    /// Whether such a scrub is in progress, and not paused.
    async fn is_running(&self, engine: &Engine) -> Result<bool, ControlError> {
        let mos = engine.mos().await?;
        if self.order == Order::StartErrors {
            let scrub = mos.error_scrub_status().await?;
            return Ok(scrub.is_some_and(|scrub| scrub.is_running() && !scrub.is_paused()));
        }
        let scan = mos.scan_status().await?;
        Ok(scan.is_some_and(|scan| scan.is_scrub() && scan.is_running() && !scan.is_paused()))
    }

    /// The txg after which what is to be verified was born.
    async fn after(&self, engine: &Engine) -> Result<Txg, ControlError> {
        let last = match self.order {
            Order::StartSinceLast => engine.mos().await?.directory_u64(names::LAST_SCRUBBED_TXG).await?,
            _ => None,
        };
        Ok(Txg(last.unwrap_or(0)))
    }
}

//! `zpool scrub`: verifies and repairs every block.
//!
//! In the daemon scans run in the background. Without one, the verb scans to the end; after an interrupt the
//! next verb resumes, as does OpenZFS at import.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_scrub`), including the wording.

use cenote_engine::Engine;
use cenote_format::dsl::names::pool as names;
use cenote_format::units::Txg;
use cenote_tasks::{cancel_scrub, pause_scrub, start_error_scrub, start_scrub};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scans::scan;
use crate::error::{ControlError, Outcome};
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Verify every block and repair damaged copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Scrub {
    /// Pools.
    pub pools: Vec<String>,
    /// Operation.
    #[serde(default)]
    pub order: Order,
    /// Wait for the end, as without a daemon.
    #[serde(default)]
    pub wait: bool,
}

/// An operation on a scrub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Start or resume.
    #[default]
    Start,
    /// The same, for blocks born after the last complete scrub.
    StartSinceLast,
    /// The same, for blocks in the error log: repaired blocks leave it.
    StartErrors,
    /// Pause.
    Pause,
    /// Stop for good.
    Stop,
}

impl Verb for Scrub {
    const NAME: &'static str = "zpool scrub";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// Missing pools are reported. Unrepaired blocks are an outcome.
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
                // Without a daemon only this command continues a scrub.
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

    /// The txg after which verified blocks were born.
    async fn after(&self, engine: &Engine) -> Result<Txg, ControlError> {
        let last = match self.order {
            Order::StartSinceLast => engine.mos().await?.directory_u64(names::LAST_SCRUBBED_TXG).await?,
            _ => None,
        };
        Ok(Txg(last.unwrap_or(0)))
    }
}

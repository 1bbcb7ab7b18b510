//! `zpool scrub`: verifies and repairs every block.
//!
//! In the daemon scans run in the background. Without one, the verb scans to the end; after an interrupt the
//! next verb resumes, as does OpenZFS at import.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_scrub`), including the wording.

use cenote_engine::Engine;
use cenote_format::dsl::names::pool as names;
use cenote_format::units::Txg;
use cenote_tasks::{ScrubDepth, cancel_scrub, pause_scrub, start_error_scrub, start_scrub_between};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::named_or_all;
use super::scans::scan;
use crate::error::{ControlError, Outcome};
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Verify every block and repair damaged copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Scrub {
    /// Pools; none: all.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Operation.
    #[serde(default)]
    pub order: Order,
    /// With `start`: only blocks born in this time, as far as the times of txgs are known.
    #[serde(default)]
    pub dates: Dates,
    /// Wait for the end, as without a daemon.
    #[serde(default)]
    pub wait: bool,
    /// With `start` or `start_since_last`: also decrypt, where keys are loaded, and decompress.
    #[serde(default)]
    pub thorough: bool,
}

/// A range of dates, in seconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dates {
    /// From this time on; none: from the pool's creation.
    #[serde(default)]
    pub from_s: Option<u64>,
    /// Up to this time; none: up to the present.
    #[serde(default)]
    pub until_s: Option<u64>,
}

impl Dates {
    /// Whether it has any limit.
    pub fn are_given(&self) -> bool {
        self.from_s.is_some() || self.until_s.is_some()
    }

    /// Refuses dates that no scrub can have.
    ///
    /// # Errors
    /// The end is before the start; the operation has no dates.
    pub fn check(&self, order: Order) -> Result<(), ControlError> {
        if self.are_given() && order != Order::Start {
            let why = "invalid option combination: start/end date is available only with normal scrub";
            return Err(ControlError::Usage(why.into()));
        }
        if self.until_s.is_some() && self.from_s > self.until_s {
            let why = "invalid arguments: end date has to be later than start date";
            return Err(ControlError::Usage(why.into()));
        }
        Ok(())
    }
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
        self.dates.check(self.order)?;
        if self.thorough && !matches!(self.order, Order::Start | Order::StartSinceLast) {
            let why = "invalid option combination: -t is available only with normal scrub";
            return Err(ControlError::Usage(why.into()));
        }
        let (pools, listed) = named_or_all(session, &self.pools, "scan").await?;
        let work = async |engine: &Engine, pool: &String| self.order(session, engine, pool).await;
        let ordered = session.change_each(&pools, |pool| pool.as_str(), work).await?;
        let mut outcome = listed.and(ordered);
        if self.wait && outcome == Outcome::Done {
            for pool in &pools {
                if let Some(held) = session.held(&session.find_pool(pool).await?) {
                    outcome = outcome.and(scan(session, &held.engine, true).await?);
                }
            }
        }
        Ok(outcome.into())
    }
}

impl Scrub {
    /// Carries out the operation; without a daemon, also scans to the end.
    async fn order(&self, session: &Session, engine: &Engine, pool: &str) -> Result<Outcome, ControlError> {
        match self.order {
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
                        _ => {
                            let (after, upto) = self.births(engine).await?;
                            let depth = if self.thorough { ScrubDepth::Thorough } else { ScrubDepth::Normal };
                            start_scrub_between(engine, after, upto, depth).await
                        }
                    };
                    started.map_err(cannot(format!("scrub {pool}")))?;
                }
                scan(session, engine, false).await
            }
        }
    }

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

    /// Births of the blocks to verify: after a txg, up to another [default: the present]. Dates between two
    /// noted txgs take in both: rather more blocks than fewer.
    async fn births(&self, engine: &Engine) -> Result<(Txg, Option<Txg>), ControlError> {
        if self.order == Order::StartSinceLast {
            let last = engine.mos().await?.directory_u64(names::LAST_SCRUBBED_TXG).await?;
            return Ok((Txg(last.unwrap_or(0)), None));
        }
        if !self.dates.are_given() {
            return Ok((Txg(0), None));
        }
        let noted = engine.txg_log().await?;
        let after = self.dates.from_s.and_then(|time_s| noted.floor(time_s));
        Ok((after.unwrap_or(Txg(0)), self.dates.until_s.and_then(|time_s| noted.ceiling(time_s))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_go_with_a_plain_scrub_and_end_after_their_start() {
        let dates = |from_s, until_s| Dates { from_s, until_s };
        for order in [Order::StartSinceLast, Order::StartErrors, Order::Pause, Order::Stop] {
            let refused = dates(Some(1), None).check(order).unwrap_err().to_string();
            assert!(refused.contains("only with normal scrub"), "{order:?}: {refused}");
            assert!(Dates::default().check(order).is_ok());
        }
        for (from_s, until_s, is_fine) in [
            (Some(5), Some(5), true),
            (Some(6), Some(5), false),
            (Some(6), None, true),
            (None, Some(0), true),
        ] {
            assert_eq!(dates(from_s, until_s).check(Order::Start).is_ok(), is_fine, "{from_s:?} {until_s:?}");
        }
    }
}

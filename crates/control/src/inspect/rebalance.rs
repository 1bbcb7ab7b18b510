//! `rebalance`: rewrites blocks that would lie elsewhere or take up less if written today.
//!
//! Ctrl-C ends the work; rewritten blocks stay, and the next run continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_dataset::{Dataset, Mos};
use cenote_engine::Engine;
use cenote_inspect::rebalance::{Options, Plan, Work, fills, rebalance, survey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ControlError, Outcome};
use crate::progress::telling;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};

pub use cenote_inspect::rebalance::{Aim, Fill, Gain, Survey};

/// Store blocks again where, and as small as, they would be stored today.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rebalance {
    /// Pool or dataset, with all descendants.
    pub target: String,
    /// Aims; empty: all.
    #[serde(default)]
    pub aims: Vec<Aim>,
    /// Only survey.
    #[serde(default)]
    pub dry_run: bool,
    /// Also blocks that snapshots or clones have, too; these then take up space twice.
    #[serde(default)]
    pub shared: bool,
}

/// A survey, and what was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rebalanced {
    /// Before.
    pub survey: Survey,
    /// What was done; none for a dry run.
    pub done: Option<Done>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Stored bytes of rewritten blocks.
    pub rewritten_bytes: u64,
    /// Objects left alone: immutable or unreadable.
    pub left: u64,
    /// Vdevs that store data, afterwards.
    pub vdevs: Vec<Fill>,
}

impl Verb for Rebalance {
    const NAME: &'static str = "rebalance";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Sometimes;
    const SEES_ALL: bool = true;
    type Answer = Rebalanced;

    fn only_looks(&self) -> bool {
        self.dry_run
    }

    /// # Errors
    /// No such dataset; the pool can't be changed, or is full; an interrupt.
    async fn carry_out(self, session: &Session) -> Result<Answered<Rebalanced>, ControlError> {
        let pool = pool_of(&self.target).to_owned();
        if self.dry_run {
            let mos = session.open_pool(&pool).await?;
            let (survey, _) = self.look(session, &mos).await?;
            return Ok(Rebalanced { survey, done: None }.into());
        }
        let mut answer = None;
        let outcome = session.change_pool(&pool, async |engine| {
            let (survey, plans) = self.look(session, &engine.mos().await?).await?;
            let done = self.work(session, engine, plans).await?;
            answer = Some(Rebalanced { survey, done: Some(done) });
            Ok(Outcome::Done)
        });
        let outcome = outcome.await?;
        let answer = answer.ok_or_else(|| ControlError::Refused(format!("{pool}: nothing was done")))?;
        Ok(Answered { answer, outcome })
    }
}

impl Rebalance {
    fn options(&self) -> Options {
        let is_asked = |aim: &Aim| self.aims.is_empty() || self.aims.contains(aim);
        Options { aims: Aim::ALL.into_iter().filter(is_asked).collect(), shared: self.shared }
    }

    async fn look(&self, session: &Session, mos: &Mos) -> Result<(Survey, Vec<Plan>), ControlError> {
        let found: Dataset = dataset(mos, &self.target).await?;
        if found.is_snapshot() {
            return Err(ControlError::Usage(format!("{}: a snapshot can't be rewritten", self.target)));
        }
        let datasets = found.descendants().await?;
        let (done, total) = (AtomicU64::new(0), AtomicU64::new(0));
        let tell = |now: u64, all: u64| {
            done.store(now, Ordering::Relaxed);
            total.store(all, Ordering::Relaxed);
        };
        let options = self.options();
        let look = async { Ok(survey(mos, &datasets, &options, &tell).await?) };
        let look = session.caller().unless_interrupted(look, || "nothing is changed".into());
        let now = || ("looked at".into(), done.load(Ordering::Relaxed), total.load(Ordering::Relaxed));
        telling(session, look, now).await
    }

    async fn work(&self, session: &Session, engine: &Engine, plans: Vec<Plan>) -> Result<Done, ControlError> {
        let (options, work) = (self.options(), Arc::<Work>::default());
        let total = plans.iter().map(Plan::bytes).sum();
        let rewrite = async {
            let mut rewriting = std::pin::pin!(rebalance(engine, plans, &options, &work));
            tokio::select! {
                biased;
                () = session.caller().interrupted() => work.stop(),
                done = &mut rewriting => return done,
            }
            rewriting.await
        };
        let now = || ("rewritten".into(), work.bytes(), total);
        telling(session, rewrite, now).await?;
        if work.is_stopped() {
            return Err(ControlError::Stopped(format!(
                "interrupted; {} are rewritten, and another run continues",
                crate::text::nice_bytes(work.bytes())
            )));
        }
        let vdevs = fills(&engine.mos().await?).await?;
        Ok(Done { rewritten_bytes: work.bytes(), left: work.left(), vdevs })
    }
}

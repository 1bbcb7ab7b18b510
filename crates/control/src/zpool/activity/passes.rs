//! Passes over the free space of devices: `initialize` and `trim`.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_initialize`, `zpool_do_trim`), `libzfs_pool.c`
//! (`zpool_initialize`, `zpool_trim`), including the wording.

use std::sync::atomic::{AtomicU64, Ordering};

use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_pool::{Pass, VdevConfig};
use cenote_tasks::{PassOrder, is_passing, order_pass, run_passes};

use super::{LOOK_INTERVAL, named_or_all};
use crate::caller::Progress;
use crate::error::{ControlError, Outcome};
use crate::refusal::cannot;
use crate::session::Session;
use crate::zpool::leaves::meant::leaf;

/// An order for a pass.
pub struct Ordered {
    /// As messages word it.
    pub verb: &'static str,
    /// Which pass.
    pub pass: Pass,
    /// Start, suspend or cancel.
    pub order: PassOrder,
    /// Wait for the end, as without a daemon.
    pub wait: bool,
}

impl Ordered {
    /// Orders the pass for some devices of a pool, or for all; without a pool, for all pools.
    ///
    /// # Errors
    /// Of one pool; those of several are reported.
    pub async fn run(
        &self,
        session: &Session,
        pool: Option<&str>,
        devices: &[String],
    ) -> Result<Outcome, ControlError> {
        if let Some(pool) = pool {
            return self.run_in(session, pool, devices).await;
        }
        if !devices.is_empty() {
            let why = "-a cannot be combined with individual pools or vdevs";
            return Err(ControlError::Usage(why.into()));
        }
        let (pools, mut outcome) = named_or_all(session, &[], self.verb).await?;
        for pool in pools {
            outcome = outcome.and(match self.run_in(session, &pool, &[]).await {
                Err(error @ ControlError::Stopped(_)) => return Err(error),
                Err(error) => session.caller().tell(&pool, &error),
                Ok(done) => done,
            });
        }
        Ok(outcome)
    }

    async fn run_in(
        &self,
        session: &Session,
        pool: &str,
        devices: &[String],
    ) -> Result<Outcome, ControlError> {
        let work = async |engine: &Engine| {
            let refused = self.order(engine, self.leaves(session, engine, devices).await?).await?;
            let ended = match (self.order, session.pools().is_some()) {
                (PassOrder::Start { .. }, false) => self.finish(session, engine).await?,
                (PassOrder::Start { .. }, true) if self.wait => self.wait(session, engine).await?,
                _ => Outcome::Done,
            };
            refused.iter().for_each(|refusal| session.caller().note(refusal.to_string()));
            Ok(if refused.is_empty() { ended } else { Outcome::Failed })
        };
        session.change_pool(pool, work).await
    }

    /// Orders it for each leaf that can; returns the reasons of the others.
    ///
    /// # Errors
    /// None can.
    async fn order(
        &self,
        engine: &Engine,
        leaves: Vec<(Guid, String)>,
    ) -> Result<Vec<ControlError>, ControlError> {
        let (count, mut refused) = (leaves.len(), Vec::new());
        for (leaf, name) in leaves {
            let ordered = order_pass(engine, leaf, self.pass, self.order).await;
            refused.extend(ordered.err().map(cannot(format!("{} '{name}'", self.verb))));
        }
        match refused.len() == count {
            true => refused.pop().map_or_else(|| Ok(Vec::new()), Err),
            false => Ok(refused),
        }
    }

    async fn leaves(
        &self,
        session: &Session,
        engine: &Engine,
        devices: &[String],
    ) -> Result<Vec<(Guid, String)>, ControlError> {
        let mos = engine.mos().await?;
        if devices.is_empty() {
            let vdevs = mos.pool().tree().vdevs();
            let leaves = vdevs.tops().flat_map(VdevConfig::leaves);
            return Ok(leaves.map(|leaf| (leaf.guid, leaf.path.clone().unwrap_or_default())).collect());
        }
        let named = |typed: &String| {
            let missing = || format!("cannot {} '{typed}': no such device in pool", self.verb);
            leaf(session.caller(), mos.pool(), typed)?
                .map(|leaf| (leaf, typed.clone()))
                .ok_or_else(|| ControlError::Refused(missing()))
        };
        devices.iter().map(named).collect()
    }

    /// Without a daemon, runs the pass to its end here.
    async fn finish(&self, session: &Session, engine: &Engine) -> Result<Outcome, ControlError> {
        let caller = session.caller();
        let done = AtomicU64::new(0);
        let shown = |more: u64| {
            let done_bytes = done.fetch_add(more, Ordering::Relaxed) + more;
            // The total is unknown.
            caller.console.progress(Some(Progress { what: "", done_bytes, total_bytes: 0 }));
        };
        let failed = run_passes(engine, &shown).await;
        caller.console.progress(None);
        let failed = failed?;
        let mut outcome = Outcome::Done;
        for leaf in engine.pool().tree().config().vdevs.iter().flat_map(VdevConfig::leaves) {
            if failed.contains(&leaf.guid) {
                let path = leaf.path.clone().unwrap_or_default();
                let why = "the device fails, or does not support it";
                caller.note(format!("cannot {} '{path}': {why}", self.verb));
                outcome = Outcome::Failed;
            }
        }
        Ok(outcome)
    }

    async fn wait(&self, session: &Session, engine: &Engine) -> Result<Outcome, ControlError> {
        while is_passing(engine, self.pass).await? {
            session.runtime().sleep(LOOK_INTERVAL).await;
        }
        Ok(Outcome::Done)
    }
}

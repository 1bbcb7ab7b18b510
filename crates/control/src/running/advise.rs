//! `lab advise`: what the lab's rules say about the daemon's pools.
//!
//! Idea: the facts are the answers of other verbs, run for the same caller; [`facts`] states them in the
//! lab's terms. Rules, and facts about the machine, are the lab's.

mod facts;

use std::collections::BTreeMap;
use std::time::Duration;

use cenote_lab::advice::{Facts, review};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kstat::{Counted, Counters, Kstat};
use crate::error::{ControlError, Outcome};
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Runs, Verb};
use crate::zpool::shown::iostat::{Counted as Traffic, Iostat};

pub use cenote_lab::advice::Review;

/// The longest observation of latencies.
const WINDOW_MAX: Duration = Duration::from_secs(3600);

/// Recommend changes to pools, with reasons.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Advise {
    /// Pools; empty: all of the daemon's.
    pub pools: Vec<String>,
    /// Observe latencies for this many seconds, up to an hour; none: since each pool was opened.
    pub window_s: Option<u64>,
}

impl Verb for Advise {
    const NAME: &'static str = "lab advise";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    const RUNS: Runs = Runs::AsWordsSay;
    type Answer = Review;

    /// # Errors
    /// No daemon; a named pool is missing; a pool can't be read.
    async fn carry_out(self, session: &Session) -> Result<Answered<Review>, ControlError> {
        let Some(pools) = session.pools() else {
            return Err(ControlError::Refused(
                "no daemon runs (`cenote serve`), so no pool is in use".into(),
            ));
        };
        if let Some(name) = self.pools.iter().find(|name| pools.get(name).is_none()) {
            let open = pools.all().iter().map(|pool| pool.name.clone()).collect::<Vec<_>>().join(", ");
            return Err(ControlError::NotFound(format!(
                "{name}: no pool of that name is open; there are: {open}"
            )));
        }
        let traffic = self.traffic(session).await?;
        let pools = facts::pools(session, &self.pools, &traffic).await?;
        let (kstats, counted_s) = counters(session).await?;
        // Reads files of the machine, such as those of its disks.
        let facts = session.runtime().blocking(move || Facts::of_daemon(pools, &kstats, counted_s)).await;
        let review = review(&facts);
        let outcome = if review.is_critical() { Outcome::Damaged } else { Outcome::Done };
        Ok(Answered { answer: review, outcome })
    }
}

impl Advise {
    /// I/O of the pools, in the window or since they were opened.
    async fn traffic(&self, session: &Session) -> Result<Vec<Traffic>, ControlError> {
        let ask = || session.run(Iostat { pools: self.pools.clone() });
        let first = ask().await?.answer;
        let Some(window) = self.window_s.map(Duration::from_secs) else { return Ok(first) };
        if window > WINDOW_MAX {
            return Err(ControlError::Usage("a window has at most 3600 seconds".into()));
        }
        session.runtime().sleep(window).await;
        let mut last = ask().await?.answer;
        for now in &mut last {
            if let Some(before) = first.iter().find(|before| before.pool == now.pool) {
                now.open_ns = now.open_ns.saturating_sub(before.open_ns);
                for (guid, traffic) in &mut now.traffic {
                    if let Some(before) = before.traffic.get(guid) {
                        traffic.read = traffic.read.since(&before.read);
                        traffic.write = traffic.write.since(&before.write);
                    }
                }
            }
        }
        Ok(last)
    }
}

/// The daemon's counters as texts, and the seconds that they cover: the daemon's clock begins at its start.
async fn counters(session: &Session) -> Result<(BTreeMap<String, String>, f64), ControlError> {
    let answer = session.run(Kstat { name: None, all: true }).await?.answer;
    let all = if let Counted::All(all) = answer { all } else { Vec::new() };
    let now_ns = all.iter().find_map(|(_, counters)| match counters {
        Counters::Counts { now_ns, .. } => Some(*now_ns),
        _ => None,
    });
    let texts = all.iter().map(|(name, counters)| (name.clone(), counters.to_string())).collect();
    Ok((texts, now_ns.unwrap_or(0) as f64 / 1e9))
}

//! `ha status`, `ha switch`, `ha fence`: pools that move among machines (`cenote_ha`).
//!
//! The keepers do the work; a verb gives an order and waits for its end. An interrupted wait takes no order
//! back.

use std::sync::Arc;
use std::time::Duration;

use cenote_ha::{Nodes, PoolStatus, Role};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::caller::Progress;
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Runs, Verb};

/// How long an order is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Show pools that move among machines, and who has them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Status {
    /// Pools by name; empty: all that move.
    pub pools: Vec<String>,
}

/// The state of a pool, as this machine sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moving {
    /// Its name.
    pub pool: String,
    /// This machine's name.
    pub node: String,
    /// What this machine does: `watches`, `takes`, `has` or `leaves` the pool.
    pub role: String,
    /// The machine that has the pool.
    pub owner: Option<String>,
    /// Number of its tenures so far.
    pub tenures: u64,
    /// The machine that shall have it next.
    pub wanted_by: Option<String>,
    /// It was exported, so no machine takes it.
    pub is_paused: bool,
    /// Guids of devices that lack data.
    pub lacking: Vec<u64>,
    /// Milliseconds since the witness answered last.
    pub witness_age_ms: Option<u64>,
    /// The last failure.
    pub why: Option<String>,
}

/// Move a pool that moves among machines: to this machine, or from it to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Switch {
    /// Pool.
    pub pool: String,
    /// Machine. None: this one, or any other if the pool is here.
    #[serde(default)]
    pub to: Option<String>,
}

/// Take a pool to this machine even if the machine that has it does not let it go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fence {
    /// Pool.
    pub pool: String,
}

impl Verb for Status {
    const NAME: &'static str = "ha status";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Always;
    const RUNS: Runs = Runs::InDaemon;
    type Answer = Vec<Moving>;

    /// # Errors
    /// No daemon; it has no such pools.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Moving>>, ControlError> {
        let nodes = nodes(session, "show pools that move among machines")?;
        if let Some(unknown) = self.pools.iter().find(|pool| !nodes.manages(pool)) {
            return Err(ControlError::NotFound(format!("pool '{unknown}' does not move among machines")));
        }
        let mut all = nodes.status();
        all.retain(|status| self.pools.is_empty() || self.pools.contains(&status.pool));
        Ok(all.into_iter().map(|status| moving(nodes.node(), status)).collect::<Vec<_>>().into())
    }
}

impl Verb for Switch {
    const NAME: &'static str = "ha switch";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const RUNS: Runs = Runs::InDaemon;
    type Answer = Moving;

    /// # Errors
    /// No such pool; it can't be moved from here, or is in use where it is.
    async fn carry_out(self, session: &Session) -> Result<Answered<Moving>, ControlError> {
        let nodes = nodes(session, &format!("move '{}'", self.pool))?;
        let before = status(&nodes, &self.pool);
        let refused = |error: cenote_ha::OrderError| ControlError::Refused(error.to_string());
        nodes.switch(&self.pool, self.to.as_deref()).map_err(refused)?;
        let leaves = before.as_ref().is_some_and(|before| before.role == Role::Has);
        let is_done = |now: &PoolStatus| match leaves {
            true => now.role == Role::Watches && (now.owner.is_some() || self.to.is_none()),
            false => now.role == Role::Has,
        };
        Ok(moved(session, &nodes, &self.pool, before, is_done).await?.into())
    }
}

impl Verb for Fence {
    const NAME: &'static str = "ha fence";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const RUNS: Runs = Runs::InDaemon;
    type Answer = Moving;

    /// # Errors
    /// No such pool; it is here; its devices can't be used.
    async fn carry_out(self, session: &Session) -> Result<Answered<Moving>, ControlError> {
        let nodes = nodes(session, &format!("take '{}'", self.pool))?;
        let before = status(&nodes, &self.pool);
        nodes.fence(&self.pool).map_err(|error| ControlError::Refused(error.to_string()))?;
        let is_done = |now: &PoolStatus| now.role == Role::Has;
        Ok(moved(session, &nodes, &self.pool, before, is_done).await?.into())
    }
}

fn nodes(session: &Session, what: &str) -> Result<Arc<Nodes>, ControlError> {
    let refused = |why: &str| Err(ControlError::Refused(format!("cannot {what}: {why}")));
    let Some(pools) = session.pools() else { return refused("no daemon runs (`cenote serve`)") };
    match pools.ha.get() {
        Some(nodes) => Ok(nodes.clone()),
        None => refused("the daemon was started without --ha; docs/ha.md says how"),
    }
}

fn status(nodes: &Nodes, pool: &str) -> Option<PoolStatus> {
    nodes.status().into_iter().find(|status| status.pool == pool)
}

/// Waits for the end of an order. A witness that does not answer is asked again meanwhile.
async fn moved(
    session: &Session,
    nodes: &Nodes,
    pool: &str,
    before: Option<PoolStatus>,
    is_done: impl Fn(&PoolStatus) -> bool,
) -> Result<Moving, ControlError> {
    let why = |status: &Option<PoolStatus>| status.as_ref().and_then(|status| status.why.clone());
    let (begun, old) = (session.runtime().now(), why(&before));
    let waiting = async {
        loop {
            session.runtime().sleep(LOOK_INTERVAL).await;
            let now = status(nodes, pool);
            if let Some(now) = now.clone().filter(&is_done) {
                return Ok(moving(nodes.node(), now));
            }
            let may_pass = now.as_ref().is_some_and(|now| now.may_pass);
            let failed = why(&now).filter(|why| Some(why) != old.as_ref());
            let is_late = session.runtime().now().since(begun) >= PATIENCE;
            let late = is_late.then(|| failed.clone().unwrap_or_else(|| "it has not happened yet".into()));
            if let Some(why) = failed.filter(|_| !may_pass).or(late) {
                return Err(ControlError::Refused(format!("pool '{pool}': {why}")));
            }
            let what = format!("pool '{pool}': moving");
            session.caller().console.progress(Some(Progress { what: &what, done_bytes: 0, total_bytes: 0 }));
        }
    };
    let done = session.caller().until_cancelled(waiting).await;
    session.caller().console.progress(None);
    done
}

fn moving(node: &str, status: PoolStatus) -> Moving {
    let role = match status.role {
        Role::Watches => "watches",
        Role::Takes => "takes",
        Role::Has => "has",
        Role::Leaves => "leaves",
    };
    Moving {
        pool: status.pool,
        node: node.into(),
        role: role.into(),
        owner: status.owner,
        tenures: status.epoch,
        wanted_by: status.wanted_by,
        is_paused: status.is_paused,
        lacking: status.lacking,
        witness_age_ms: status.age.map(|age| age.as_millis() as u64),
        why: status.why,
    }
}

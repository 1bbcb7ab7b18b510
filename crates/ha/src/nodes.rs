//! The keepers of all pools of this machine, for the daemon and its verbs.

use std::sync::Arc;
use std::time::Duration;

use cenote_runtime::{AbortOnDrop, Runtime};
use futures::future::join_all;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::head::Head;
use crate::keeper::{Keeper, Say, Shared};
use crate::record::is_node_name;
use crate::settings::{PoolSettings, Settings};
use crate::witness::Witness;

/// The part of this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It would take the pool.
    #[default]
    Watches,
    /// It opens the pool.
    Takes,
    /// It has the pool.
    Has,
    /// It closes the pool.
    Leaves,
}

/// The state of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStatus {
    /// Its name.
    pub pool: String,
    /// The part of this machine.
    pub role: Role,
    /// The machine that has it, by its record.
    pub owner: Option<String>,
    /// Number of its tenures.
    pub epoch: u64,
    /// The machine that shall have it next.
    pub wanted_by: Option<String>,
    /// It was exported: nobody takes it.
    pub is_paused: bool,
    /// Guids of leaves that lack data.
    pub lacking: Vec<u64>,
    /// Time since the record was last seen, or renewed here; `None`: never.
    pub age: Option<Duration>,
    /// The last failure.
    pub why: Option<String>,
    /// It was the witness's: the next look may succeed.
    pub may_pass: bool,
}

/// Why an order is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// No such pool.
    #[error("pool '{0}' is not one that moves among machines; those are: {1}")]
    NoPool(String, String),
    /// Not a machine's name.
    #[error("'{0}' is no name of a machine")]
    NoNode(String),
    /// Only its owner can hand it to a third machine.
    #[error("pool '{pool}' is not open here; run it on {owner}, or without a machine to have the pool here")]
    NotHere {
        /// The pool.
        pool: String,
        /// Its owner.
        owner: String,
    },
    /// It is here.
    #[error("this machine has pool '{0}'")]
    Here(String),
}

/// All keepers.
pub struct Nodes {
    node: Arc<str>,
    runtime: Runtime,
    keepers: Vec<(Arc<str>, Arc<Shared>)>,
    running: Mutex<Vec<AbortOnDrop<()>>>,
}

impl Nodes {
    /// Starts a keeper for each pool.
    pub fn start(
        settings: &Settings,
        witness: &Arc<dyn Witness>,
        runtime: &Runtime,
        head_of: impl Fn(&PoolSettings) -> Arc<dyn Head>,
        say: &Say,
    ) -> Nodes {
        let node: Arc<str> = settings.node.as_str().into();
        let (mut keepers, mut running) = (Vec::new(), Vec::new());
        for pool in &settings.pools {
            let (name, shared): (Arc<str>, Arc<Shared>) = (pool.name.as_str().into(), Arc::default());
            let keeper = Keeper {
                runtime: runtime.clone(),
                node: node.clone(),
                pool: name.clone(),
                lease: settings.lease,
                suspended: pool.suspended,
                witness: witness.clone(),
                head: head_of(pool),
                shared: shared.clone(),
                say: say.clone(),
            };
            running.push(runtime.spawn(keeper.keep()).abort_on_drop());
            keepers.push((name, shared));
        }
        Nodes { node, runtime: runtime.clone(), keepers, running: Mutex::new(running) }
    }

    /// This machine's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Whether a pool moves among machines.
    pub fn manages(&self, pool: &str) -> bool {
        self.keepers.iter().any(|(name, _)| **name == *pool)
    }

    /// All pools.
    pub fn status(&self) -> Vec<PoolStatus> {
        let now = self.runtime.now();
        let status = |(pool, shared): &(Arc<str>, Arc<Shared>)| {
            let view = shared.view.lock().clone();
            let record = view.record;
            PoolStatus {
                pool: pool.to_string(),
                role: view.role,
                owner: record.as_ref().and_then(|record| record.owner.clone()),
                epoch: record.as_ref().map_or(0, |record| record.epoch),
                wanted_by: record.as_ref().and_then(|record| record.wanted_by.clone()),
                is_paused: record.as_ref().is_some_and(|record| record.is_paused),
                lacking: record.map_or_else(Vec::new, |record| record.lacking.into_iter().collect()),
                age: view.seen.map(|seen| now.since(seen)),
                why: view.why,
                may_pass: view.may_pass,
            }
        };
        self.keepers.iter().map(status).collect()
    }

    /// Moves a pool: from here to another machine (`None`: any), or from another machine to this one.
    ///
    /// # Errors
    /// It is not one of the pools, or has no business here.
    pub fn switch(&self, pool: &str, to: Option<&str>) -> Result<(), OrderError> {
        let shared = self.of(pool)?;
        if let Some(node) = to.filter(|node| !is_node_name(node)) {
            return Err(OrderError::NoNode(node.into()));
        }
        let (is_here, owner) = {
            let view = shared.view.lock();
            let owner = view.record.as_ref().and_then(|record| record.owner.clone());
            (view.role == Role::Has, owner)
        };
        let is_to_here = to.is_some_and(|node| *node == *self.node);
        match (is_here, to) {
            (true, _) if is_to_here => return Err(OrderError::Here(pool.into())),
            (true, to) => shared.order(|orders| orders.switch = Some(to.map(str::to_owned))),
            (false, Some(_)) if !is_to_here => {
                let owner = owner.unwrap_or_else(|| "another machine".into());
                return Err(OrderError::NotHere { pool: pool.into(), owner });
            }
            (false, _) => shared.order(|orders| orders.come = true),
        }
        Ok(())
    }

    /// Takes a pool even if its owner does not let it go.
    ///
    /// # Errors
    /// It is not one of the pools, or is here.
    pub fn fence(&self, pool: &str) -> Result<(), OrderError> {
        let shared = self.of(pool)?;
        if shared.view.lock().role == Role::Has {
            return Err(OrderError::Here(pool.into()));
        }
        shared.order(|orders| orders.fence = true);
        Ok(())
    }

    /// Lets all pools go, for other machines to take them.
    pub async fn end(&self) {
        self.keepers.iter().for_each(|(_, shared)| shared.order(|orders| orders.stop = true));
        let running = std::mem::take(&mut *self.running.lock());
        drop(join_all(running).await);
    }

    fn of(&self, pool: &str) -> Result<&Arc<Shared>, OrderError> {
        let found = self.keepers.iter().find(|(name, _)| **name == *pool);
        let names = || self.keepers.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(", ");
        found.map(|(_, shared)| shared).ok_or_else(|| OrderError::NoPool(pool.into(), names()))
    }
}

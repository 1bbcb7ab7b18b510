//! Who has the pool: what labels say while it is in use, and afterwards.
//!
//! Idea: a pool that is being changed says so in its labels, with the machine's id and name; one that was closed in order says that it is
//! exported, so that the next machine takes it without being forced to.
//!
//! Source: OpenZFS `spa.c` (`spa_import`, `spa_export_common`).

use cenote_format::label::PoolState;

use super::{Engine, SyncContext};
use crate::error::Result;

/// A machine, as pools remember who had them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its hostid; 0 if it has none.
    pub id: u64,
    /// Its name.
    pub name: String,
}

impl Engine {
    /// Writes a group whose labels say that `host` has the pool in this state. A pool that is given up has no intent logs any more.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn set_state(&self, state: PoolState, host: Host) -> Result<()> {
        if state != PoolState::Active {
            self.end_logs().await?;
        }
        self.run(move |context| Box::pin(async move { context.set_state(state, host).await })).await
    }
}

impl SyncContext {
    async fn set_state(&mut self, state: PoolState, host: Host) -> Result<()> {
        {
            let mut config = self.engine.config.lock();
            config.state = state;
            config.hostid = (host.id != 0).then_some(host.id);
            config.hostname = Some(host.name);
        }
        if state != PoolState::Active {
            self.engine.space_maps.lock().await.log.flush_all();
        }
        self.config_changed = true;
        // Now, since a group in which nothing else changes needs no pass.
        self.write_config().await
    }
}

//! `zfs wait`: waits for background work of a file system.
//!
//! Source: OpenZFS `dsl_dir.c` (`dsl_dir_wait`), zfs-wait(8).

use std::time::Duration;

use cenote_dataset::DatasetKind;
use cenote_fs::Filesystem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};

const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Background work of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// Freeing of removed files, including those still open.
    DeleteQ,
}

impl Activity {
    /// All of them.
    pub const ALL: [Activity; 1] = [Activity::DeleteQ];

    /// As typed.
    pub fn name(self) -> &'static str {
        match self {
            Activity::DeleteQ => "deleteq",
        }
    }
}

/// Wait until removed files are freed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wait {
    /// File system.
    pub filesystem: String,
    /// Kinds of work; empty: all.
    #[serde(default)]
    pub activities: Vec<Activity>,
}

impl Verb for Wait {
    const NAME: &'static str = "zfs wait";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    type Answer = ();

    /// # Errors
    /// No such file system, or its pool is not open in a daemon and thus has no background work.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let name = &self.filesystem;
        let refused = |why: &str| ControlError::Refused(format!("cannot wait for '{name}': {why}"));
        let Some(pool) = session.held_by_name(pool_of(name)) else {
            // Fails without such a pool.
            session.find_pool(pool_of(name)).await?;
            return Err(refused("no daemon has its pool open; without one, work ends with its command"));
        };
        let kinds = if self.activities.is_empty() { &Activity::ALL[..] } else { &self.activities };
        if dataset(&pool.engine.mos().await?, name).await?.kind().await? != DatasetKind::Filesystem {
            return Err(refused("it is not a file system"));
        }
        loop {
            let live = Filesystem::open(pool.engine.dataset(name).await?.view()).await?;
            let mut is_done = true;
            for kind in kinds {
                is_done &= match kind {
                    Activity::DeleteQ => live.unlinked().await?.is_empty(),
                };
            }
            if is_done {
                return Ok(().into());
            }
            session.runtime().sleep(LOOK_INTERVAL).await;
        }
    }
}

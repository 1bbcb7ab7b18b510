//! `zpool checkpoint`: saves the state of the whole pool to rewind to.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_checkpoint`), `libzfs_pool.c` (`zpool_checkpoint`), including
//! the wording.

use cenote_engine::Engine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Save the pool's state to rewind to, or discard the saved state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// Pool.
    pub pool: String,
    /// Discard the checkpoint, and free its space.
    #[serde(default)]
    pub discard: bool,
}

impl Verb for Checkpoint {
    const NAME: &'static str = "zpool checkpoint";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// A checkpoint exists already, or none exists; the pool is missing.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let pool = &self.pool;
        let work = async |engine: &Engine| match self.discard {
            true => {
                let what = format!("discard checkpoint in '{pool}'");
                cenote_tasks::discard_checkpoint(engine).await.map_err(cannot(what))
            }
            false => {
                cenote_tasks::take_checkpoint(engine).await.map_err(cannot(format!("checkpoint '{pool}'")))
            }
        };
        Ok(session.change_pool(pool, work).await?.into())
    }
}

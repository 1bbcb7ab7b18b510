//! `zfs release`: removes holds of snapshots.

use cenote_engine::Engine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tagged::{permissions, snapshots};
use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};

/// Remove holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Release {
    /// Tag of the hold.
    pub tag: String,
    /// Full names.
    pub snapshots: Vec<String>,
    /// Include descendants' snapshots of that name with the hold.
    #[serde(default)]
    pub recursive: bool,
}

impl Verb for Release {
    const NAME: &'static str = "zfs release";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let what = "release hold from snapshot";
        permissions(session, what, &self.snapshots, self.recursive, "release").await
    }

    /// # Errors
    /// A snapshot is missing, or lacks the hold.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let release = async |engine: &Engine, names: &[String]| self.release(engine, names).await;
        Ok(session.change_together(&self.snapshots, pool_of, release).await?.into())
    }
}

impl Release {
    async fn release(&self, engine: &Engine, names: &[String]) -> Result<(), ControlError> {
        let what = format!("release hold from snapshot '{}'", names[0]);
        let mos = engine.mos().await?;
        let mut all = Vec::new();
        for name in names {
            let before = all.len();
            for snapshot in snapshots(&mos, name, self.recursive).await? {
                // Descendants' snapshots may lack the hold.
                if !self.recursive || snapshot.holds().await?.iter().any(|(tag, _)| *tag == self.tag) {
                    all.push(snapshot.name().to_owned());
                }
            }
            if all.len() == before {
                return Err(ControlError::Refused(format!("cannot {what}: no such tag on this dataset")));
            }
        }
        cenote_tasks::release_snapshots(engine, &all, &self.tag).await.map_err(cannot(&what))
    }
}

//! `zfs hold`: keeps snapshots from being destroyed.

use cenote_engine::Engine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tagged::{permissions, snapshots};
use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};

/// Hold snapshots, so that they can't be destroyed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hold {
    /// Tag of the hold.
    pub tag: String,
    /// Full names.
    pub snapshots: Vec<String>,
    /// Include descendants' snapshots of that name.
    #[serde(default)]
    pub recursive: bool,
}

impl Verb for Hold {
    const NAME: &'static str = "zfs hold";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        permissions(session, "hold snapshot", &self.snapshots, self.recursive, "hold").await
    }

    /// # Errors
    /// A snapshot is missing, or has this hold already.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let Hold { tag, snapshots: names, recursive } = self;
        if tag.starts_with('.') {
            return Err(ControlError::Usage("tag may not start with '.'".into()));
        }
        let hold = async |engine: &Engine, names: &[String]| {
            let mos = engine.mos().await?;
            let mut all = Vec::new();
            for name in names {
                let meant = snapshots(&mos, name, recursive).await?;
                all.extend(meant.iter().map(|snapshot| snapshot.name().to_owned()));
            }
            let held = cenote_tasks::hold_snapshots(engine, &all, &tag).await;
            held.map_err(cannot(format!("hold snapshot '{}'", names[0])))
        };
        Ok(session.change_together(&names, pool_of, hold).await?.into())
    }
}

//! `zfs holds`: the holds that keep snapshots from being destroyed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tagged::snapshots_or_none;
use crate::error::{ControlError, Outcome};
use crate::session::{Session, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};

/// List user holds of snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Holds {
    /// Full names.
    pub snapshots: Vec<String>,
    /// Include descendants' snapshots of that name.
    #[serde(default)]
    pub recursive: bool,
}

/// A snapshot and its holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Held {
    /// Full name.
    pub snapshot: String,
    /// By tag.
    pub holds: Vec<Tagged>,
}

/// A hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tagged {
    /// Tag.
    pub tag: String,
    /// Creation, in seconds since 1970.
    pub since_seconds: u64,
}

impl Verb for Holds {
    const NAME: &'static str = "zfs holds";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    type Answer = Vec<Held>;

    /// # Errors
    /// The only named snapshot is missing.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Held>>, ControlError> {
        let (mut held, mut outcome) = (Vec::new(), Outcome::Done);
        for name in &self.snapshots {
            let found = async {
                let mos = session.open_pool_without_asking(pool_of(name)).await?;
                snapshots_or_none(&mos, name, self.recursive).await
            };
            let found = match found.await {
                Ok(found) => found,
                Err(error) if self.snapshots.len() > 1 => {
                    outcome = outcome.and(session.caller().tell(name, &error.of_dataset(name)));
                    continue;
                }
                Err(error) => return Err(error),
            };
            for snapshot in found {
                let holds = snapshot.holds().await?;
                let holds = holds.into_iter().map(|(tag, since_seconds)| Tagged { tag, since_seconds });
                held.push(Held { snapshot: snapshot.name().into(), holds: holds.collect() });
            }
        }
        Ok(Answered { answer: held, outcome })
    }
}

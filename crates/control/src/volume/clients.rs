//! `volume clients`: clients of the volumes that the daemon serves.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Show clients of the daemon's volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clients {
    /// Pools by name; empty: all of the daemon's.
    #[serde(default)]
    pub pools: Vec<String>,
}

/// A client of a volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Client {
    /// Volume.
    pub volume: String,
    /// Client's description.
    pub who: String,
}

impl Verb for Clients {
    const NAME: &'static str = "volume clients";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Always;
    const SEES_ALL: bool = true;
    type Answer = Vec<Client>;

    /// # Errors
    /// No daemon; a named pool is missing.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Client>>, ControlError> {
        let Some(open) = session.pools() else {
            let why = "no daemon runs (`cenote serve`), so nothing is served";
            return Err(ControlError::Refused(format!("cannot show clients: {why}")));
        };
        if let Some(name) = self.pools.iter().find(|name| open.get(name).is_none()) {
            return Err(ControlError::NotFound(format!("cannot open '{name}': no such pool")));
        }
        let mut clients = Vec::new();
        for pool in open.all() {
            if self.pools.is_empty() || self.pools.contains(&pool.name) {
                let of_pool = pool.clients.list().into_iter();
                clients.extend(of_pool.map(|client| Client { volume: client.volume, who: client.who }));
            }
        }
        clients.sort();
        Ok(clients.into())
    }
}

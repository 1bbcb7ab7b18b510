//! `zfs load-key`: loads keys of encrypted datasets into the daemon, or checks them.

use cenote_dataset::{KeySource, UserKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::roots::{Keys, each, permissions};
use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Load keys of encrypted datasets into the daemon, or check them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoadKey {
    /// An encryption root; none: all.
    #[serde(default)]
    pub name: Option<String>,
    /// Include the encryption roots below.
    #[serde(default)]
    pub recursive: bool,
    /// Only check the keys.
    #[serde(default)]
    pub check_only: bool,
    /// Source of the keys.
    #[serde(default)]
    pub place: Place,
}

/// Source of keys not in the request.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Dataset's `keylocation`.
    #[default]
    Stored,
    /// Prompt or pipe.
    Prompt,
    /// A file read by the caller; null if that failed.
    Read(Option<Vec<u8>>),
}

/// Hides the key.
impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Place::Stored => "Stored",
            Place::Prompt => "Prompt",
            Place::Read(_) => "Read",
        })
    }
}

impl Verb for LoadKey {
    const NAME: &'static str = "zfs load-key";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = Keys;

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        permissions(session, "load", self.name.as_deref(), self.recursive).await
    }

    /// # Errors
    /// No encryption root; a wrong or unavailable key.
    async fn carry_out(self, session: &Session) -> Result<Answered<Keys>, ControlError> {
        if !self.check_only && session.pools().is_none() {
            let instead = "No daemon runs, and without one no key stays loaded after a command ends: start \
                `cenote serve`, give the key to each command with --key, or set keylocation=file:///PATH; \
                `zfs load-key -n` checks it";
            return Err(ControlError::Refused(format!("cannot load keys: {instead}.")));
        }
        let source = match self.place {
            Place::Stored => session.keys_to_load(None),
            Place::Prompt => session.keys_to_load(Some("prompt")),
            Place::Read(key) => {
                let given = session.options().keys.given();
                KeySource::new(move |info| given.ask(info).or_else(|| key.clone().map(UserKey)))
            }
        };
        each(session, self.name.as_deref(), self.recursive, "load", async |found, domain| {
            match session.held(found).filter(|_| !self.check_only) {
                Some(pool) => domain.load(&pool.engine, &source).await,
                None => domain.check(&session.open_without_asking(found).await?, &source).await,
            }
        })
        .await
    }
}

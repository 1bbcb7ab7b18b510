//! `tunable`: settings for all of the daemon's pools that can change while open.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::permissions::{ONLY_ADMINS, Permissions};
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Runs, Verb};

pub use cenote_host::tuning::Tunable as Tuned;

/// Show or set tunables of open pools: memory, policies, queues. With neither names nor settings, shows all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tunable {
    /// Names to show.
    pub names: Vec<String>,
    /// Values to set, in this order.
    pub settings: Vec<Setting>,
}

/// A value to set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Tunable.
    pub name: String,
    /// A number without a unit, or a policy's name.
    pub value: String,
}

impl Verb for Tunable {
    const NAME: &'static str = "tunable";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Sometimes;
    const RUNS: Runs = Runs::InDaemon;
    /// The tunables shown, by name.
    type Answer = Vec<Tuned>;

    fn only_looks(&self) -> bool {
        self.settings.is_empty()
    }

    /// Setting is for administrators: it can't be delegated.
    async fn permissions(&self, _session: &Session) -> Result<Permissions, ControlError> {
        match self.settings.is_empty() {
            true => Ok(Permissions::to("show tunables")),
            false => Err(ControlError::Refused(ONLY_ADMINS.into())),
        }
    }

    /// # Errors
    /// No daemon; an unknown tunable, with nothing set; an invalid value, with earlier ones set.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Tuned>>, ControlError> {
        let Some(pools) = session.pools() else {
            let why = "no daemon runs (`cenote serve`), and nobody else keeps them";
            return Err(ControlError::Refused(format!("cannot show tunables: {why}")));
        };
        let Tunable { names, settings } = self;
        let known = pools.tuning.list();
        let mut asked = names.iter().chain(settings.iter().map(|setting| &setting.name));
        if let Some(name) = asked.find(|name| known.iter().all(|tunable| tunable.name != **name)) {
            return Err(ControlError::Refused(format!("no tunable '{name}'; `cenote tunable` lists all")));
        }
        let set = settings.iter().try_for_each(|Setting { name, value }| {
            pools.tuning.set(name, value).map_err(|error| ControlError::Refused(error.to_string()))
        });
        if !settings.is_empty() {
            pools.tune();
        }
        set?;
        let mut shown = pools.tuning.list();
        let is_all = names.is_empty() && settings.is_empty();
        shown.retain(|tunable| is_all || names.contains(&tunable.name));
        Ok(shown.into())
    }
}

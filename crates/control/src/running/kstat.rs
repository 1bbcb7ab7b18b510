//! `kstat`: the daemon's counters, under OpenZFS's names.

use cenote_host::kstat;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Runs, Verb};

pub use cenote_host::kstat::Kstat as Counters;

/// Show counters under OpenZFS's names, as in /proc/spl/kstat/zfs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Kstat {
    /// A name such as `arcstats` or `tank/txgs`; none: list names.
    #[serde(default)]
    pub name: Option<String>,
    /// All counters instead.
    #[serde(default)]
    pub all: bool,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// Names.
    Names(Vec<String>),
    /// Counters of the requested name.
    Counters(Counters),
    /// All counters, by name.
    All(Vec<(String, Counters)>),
}

impl Verb for Kstat {
    const NAME: &'static str = "kstat";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    const RUNS: Runs = Runs::InDaemon;
    const SEES_ALL: bool = true;
    type Answer = Counted;

    /// # Errors
    /// No daemon; no counters of that name.
    async fn carry_out(self, session: &Session) -> Result<Answered<Counted>, ControlError> {
        let Some(pools) = session.pools() else {
            let why = "no daemon runs (`cenote serve`), so nothing is counted";
            return Err(ControlError::Refused(format!("cannot show counters: {why}")));
        };
        if self.all {
            return Ok(Counted::All(kstat::all(pools).await).into());
        }
        let Some(name) = self.name else { return Ok(Counted::Names(kstat::names(pools)).into()) };
        let none = || ControlError::Refused(format!("no counters '{name}'; `cenote kstat` lists all"));
        Ok(Counted::Counters(kstat::of(pools, &name).await.ok_or_else(none)?).into())
    }
}

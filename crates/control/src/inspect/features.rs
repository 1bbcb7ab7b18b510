//! `features`: the feature flags that Cenote knows, or those of a pool with their state.
//!
//! Idea: a feature answers three questions: can this program read and write a pool that uses it, which other
//! programs can, and when does it become active. A pool adds its state and how many structures use it.

use std::collections::BTreeMap;

use cenote_dataset::Mos;
use cenote_format::dsl::names::pool as names;
use cenote_format::features::{Feature, SPA_FEATURES, Support};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zpool::properties::compatibility;

/// Show the feature flags that Cenote knows, or those of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Features {
    /// Pool; none: only what is known about each feature.
    #[serde(default)]
    pub pool: Option<String>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Known {
    /// Those known here, in OpenZFS's order, then others of the pool.
    pub features: Vec<Flag>,
    /// The pool that was named.
    pub pool: Option<Reach>,
}

/// The versions of OpenZFS on Linux that can use a pool, as far as its active features decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reach {
    /// Name.
    pub pool: String,
    /// The first that can read it; none: no version up to now.
    pub readable_since: Option<String>,
    /// The first that can write it.
    pub writable_since: Option<String>,
}

/// A feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Flag {
    /// Guid.
    pub guid: String,
    /// Name after `feature@`; none for features that no version of OpenZFS up to now has.
    pub name: Option<String>,
    /// Description.
    pub description: Option<String>,
    /// Programs without it can read a pool in which it is active.
    pub read_only_compatible: bool,
    /// Datasets use it, each for itself.
    pub per_dataset: bool,
    /// The support here of pools in which it is active.
    pub support: Ability,
    /// The first version of OpenZFS on Linux whose set of `compatibility` has it.
    pub since: Option<String>,
    /// Features that it needs.
    pub depends_on: Vec<String>,
    /// Cause of activation: active from the first of these on.
    pub active_from_first: Option<String>,
    /// `zpool create` enables it by default.
    pub in_new_pools: bool,
    /// `zpool upgrade` enables it.
    pub upgraded: bool,
    /// In the pool that was named.
    pub state: Option<State>,
}

/// The support of a feature here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ability {
    /// Pools are read and written.
    ReadsAndWrites,
    /// Pools are opened read-only.
    Reads,
    /// Pools are refused.
    Refuses,
}

/// A feature of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Not enabled.
    Disabled,
    /// Enabled, not in use.
    Enabled {
        /// Txg in which it was enabled, if recorded.
        txg: Option<u64>,
    },
    /// In use.
    Active {
        /// Number of uses, such as datasets.
        uses: u64,
        /// Txg in which it was enabled, if recorded.
        txg: Option<u64>,
    },
}

impl Verb for Features {
    const NAME: &'static str = "features";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    type Answer = Known;

    /// # Errors
    /// The pool is missing or can't be opened.
    async fn carry_out(self, session: &Session) -> Result<Answered<Known>, ControlError> {
        let new_pools = compatibility::features(compatibility::DEFAULT).map_err(ControlError::Refused)?;
        let mut flags: Vec<Flag> = SPA_FEATURES.iter().map(|feature| known(feature, &new_pools)).collect();
        let Some(pool) = self.pool else {
            flags.extend(Feature::later().map(|feature| known(feature, &new_pools)));
            return Ok(Known { features: flags, pool: None }.into());
        };
        let mos = session.open_pool_without_asking(&pool).await?;
        with_states(&mos, &mut flags).await?;
        let reach = Reach {
            pool: mos.pool().name().into(),
            readable_since: since(flags.iter().filter(|flag| !flag.read_only_compatible)),
            writable_since: since(flags.iter()),
        };
        Ok(Known { features: flags, pool: Some(reach) }.into())
    }
}

fn known(feature: &Feature, new_pools: &[&'static Feature]) -> Flag {
    Flag {
        guid: feature.guid.into(),
        name: Some(feature.name.into()),
        description: Some(feature.description.into()),
        read_only_compatible: feature.readonly_compatible,
        per_dataset: feature.per_dataset,
        support: feature.support().into(),
        since: compatibility::since(feature).map(str::to_owned),
        depends_on: feature.depends.iter().map(|&name| name.to_owned()).collect(),
        active_from_first: Some(feature.first_use.into()),
        in_new_pools: new_pools.iter().any(|new| new.guid == feature.guid),
        upgraded: feature.support() == Support::ReadsAndWrites && !feature.no_upgrade,
        state: None,
    }
}

/// Adds the states, and the features of the pool that are not known here.
async fn with_states(mos: &Mos, flags: &mut Vec<Flag>) -> Result<(), ControlError> {
    let enabled = mos.directory_zap(names::FEATURE_ENABLED_TXG).await?;
    let mut states = BTreeMap::new();
    for table in [names::FEATURES_FOR_READ, names::FEATURES_FOR_WRITE] {
        let Some(zap) = mos.directory_zap(table).await? else { continue };
        for entry in zap.to_vec().await? {
            let guid = entry.name_text();
            let txg = match &enabled {
                Some(zap) => zap.get_u64(&guid).await?,
                None => None,
            };
            let state = match entry.value.as_u64().unwrap_or_default() {
                0 => State::Enabled { txg },
                uses => State::Active { uses, txg },
            };
            states.insert(guid, (state, table == names::FEATURES_FOR_WRITE));
        }
    }
    for flag in &mut *flags {
        flag.state = Some(states.remove(&flag.guid).map_or(State::Disabled, |(state, _)| state));
    }
    for (guid, (state, read_only_compatible)) in states {
        let flag = match Feature::of_later_version(&guid) {
            Some(later) => known(later, &[]),
            None => unknown(guid, read_only_compatible),
        };
        flags.push(Flag { state: Some(state), ..flag });
    }
    Ok(())
}

/// The first version with all of these that are active; none: no version has.
fn since<'a>(flags: impl Iterator<Item = &'a Flag>) -> Option<String> {
    let active = flags.filter(|flag| matches!(flag.state, Some(State::Active { .. })));
    let mut all =
        active.map(|flag| compatibility::VERSIONS.iter().position(|(v, _)| flag.since.as_deref() == Some(v)));
    let latest = all.try_fold(0, |latest, at| at.map(|at| latest.max(at)));
    latest.map(|at| compatibility::VERSIONS[at].0.to_owned())
}

fn unknown(guid: String, read_only_compatible: bool) -> Flag {
    Flag {
        guid,
        name: None,
        description: None,
        read_only_compatible,
        per_dataset: false,
        support: if read_only_compatible { Ability::Reads } else { Ability::Refuses },
        since: None,
        depends_on: Vec::new(),
        active_from_first: None,
        in_new_pools: false,
        upgraded: false,
        state: None,
    }
}

impl From<Support> for Ability {
    fn from(support: Support) -> Ability {
        match support {
            Support::ReadsAndWrites => Ability::ReadsAndWrites,
            Support::Reads => Ability::Reads,
            Support::Refuses => Ability::Refuses,
        }
    }
}

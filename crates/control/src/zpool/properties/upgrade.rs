//! `zpool upgrade`: lists or enables the features that pools lack.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_upgrade`), including the wording.

use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::features::{Feature, SPA_FEATURES, SPA_VERSION_FEATURES};
use cenote_tasks::PoolSetting;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compatibility;
use crate::error::{ControlError, Outcome};
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Enable all features, or list the missing ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Upgrade {
    /// Pools to upgrade to all features that `compatibility` allows; empty: all pools. None: list missing
    /// features.
    #[serde(default)]
    pub pools: Option<Vec<String>>,
}

/// Missing or newly enabled features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Features {
    /// Missing features.
    Lacking(Vec<Lacking>),
    /// Newly enabled features.
    Enabled {
        /// Pools with all features enabled now.
        pools: Vec<Upgraded>,
        /// Number of failed pools.
        failed: u64,
    },
}

/// Missing features of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lacking {
    /// Pool.
    pub pool: String,
    /// Its version; legacy versions have no features.
    pub version: u64,
    /// Features.
    pub features: Vec<Lacked>,
}

/// A missing feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lacked {
    /// Name.
    pub name: String,
    /// Not enabled by an upgrade, only by name.
    pub by_name_only: bool,
}

/// Newly enabled features of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Upgraded {
    /// Pool.
    pub pool: String,
    /// Its version before, if it was legacy.
    pub from_version: Option<u64>,
    /// Features.
    pub enabled: Vec<String>,
}

impl Verb for Upgrade {
    const NAME: &'static str = "zpool upgrade";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Sometimes;
    type Answer = Features;

    fn only_looks(&self) -> bool {
        self.pools.is_none()
    }

    /// # Errors
    /// A pool is missing. Failed upgrades are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<Features>, ControlError> {
        let Some(names) = &self.pools else { return Ok(list(session).await?.into()) };
        let (mut pools, mut failed, mut outcome) = (Vec::new(), 0, Outcome::Done);
        for found in session.pools_to_change(names).await? {
            let (name, mut done) = (found.name(), None);
            let work = async |engine: &Engine| {
                done = Some(upgrade(engine, name).await?);
                Ok(())
            };
            outcome = outcome.and(match session.change_unused(&found, work).await {
                Ok(changed) => changed,
                Err(error) => session.caller().tell(name, &error),
            });
            failed += u64::from(done.is_none());
            pools.extend(done);
        }
        Ok(Answered { answer: Features::Enabled { pools, failed }, outcome })
    }
}

async fn list(session: &Session) -> Result<Features, ControlError> {
    let mut all = Vec::new();
    for found in session.pools_to_change(&[]).await? {
        let mos = session.open_without_asking(&found).await?;
        let version = mos.uberblock().version;
        let features = match version < SPA_VERSION_FEATURES {
            true => Vec::new(),
            false => lacking(&mos, SPA_FEATURES.iter().collect()).await?,
        };
        let features = features.into_iter();
        let lacked =
            |feature: &Feature| Lacked { name: feature.name.into(), by_name_only: feature.no_upgrade };
        all.push(Lacking { pool: found.name().into(), version, features: features.map(lacked).collect() });
    }
    Ok(Features::Lacking(all))
}

async fn upgrade(engine: &Engine, name: &str) -> Result<Upgraded, ControlError> {
    let mut mos = engine.mos().await?;
    let compatibility = mos.pool().tree().config().compatibility.clone().unwrap_or_else(|| "off".into());
    let mut wanted = compatibility::features(&compatibility).map_err(ControlError::Refused)?;
    wanted.retain(|feature| !feature.no_upgrade);
    let version = mos.uberblock().version;
    let from = Some(version).filter(|version| *version < SPA_VERSION_FEATURES);
    if from.is_some() {
        if compatibility == "legacy" {
            let why = "Upgrade not performed because 'compatibility' property set to 'legacy'.";
            return Err(ControlError::Refused(why.into()));
        }
        let begun = cenote_tasks::set_pool(engine, PoolSetting::FeatureFlags).await;
        begun.map_err(cannot(format!("upgrade '{name}'")))?;
        mos = engine.mos().await?;
    }
    let enabled = lacking(&mos, wanted).await?;
    for feature in &enabled {
        let set = cenote_tasks::set_pool(engine, PoolSetting::Feature(feature)).await;
        set.map_err(cannot(format!("set property for '{name}'")))?;
    }
    let enabled = enabled.iter().map(|feature| feature.name.to_owned()).collect();
    Ok(Upgraded { pool: name.into(), from_version: from, enabled })
}

async fn lacking(mos: &Mos, wanted: Vec<&'static Feature>) -> Result<Vec<&'static Feature>, ControlError> {
    let enabled = mos.enabled_features().await?;
    Ok(wanted.into_iter().filter(|feature| !enabled.contains(feature.name)).collect())
}

//! `zpool upgrade`: lists or enables the features that pools lack.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_upgrade`), including the wording.

use std::fmt::Write as _;

use cenote_control::refusal::cannot;
use cenote_dataset::{FeatureState, Mos};
use cenote_engine::Engine;
use cenote_format::features::{Feature, SPA_FEATURES, SPA_VERSION_FEATURES};
use cenote_tasks::PoolSetting;
use clap::Args;
use serde_json::{Map, Value, json};

use super::create::compatibility;
use crate::command::json::document;
use crate::outcome::{CliError, Outcome, Printed, Say};
use crate::session::{Session, print, print_json};

/// `zpool upgrade`
#[derive(Debug, Args)]
// -V is a pool version.
#[command(
    disable_version_flag = true,
    after_help = "Without pools, lists the features they lack. The property `compatibility` limits the \
        features of a pool.\n\n\
        Example: cenote zpool upgrade tank"
)]
pub struct Upgrade {
    /// All pools
    #[arg(short = 'a', conflicts_with_all = ["pools", "features"])]
    pub all: bool,
    /// List the supported features
    #[arg(short = 'v', conflicts_with = "pools")]
    pub features: bool,
    /// Accepted for compatibility: version 5000, which means feature flags
    #[arg(short = 'V', value_name = "VERSION", value_parser = ["5000"])]
    pub version: Option<String>,
    /// Pools whose features are all enabled
    pub pools: Vec<String>,
}

/// The features that a pool lacks.
struct Lacking {
    pool: String,
    version: u64,
    features: Vec<&'static Feature>,
}

/// The features that a pool gained.
struct Upgraded {
    /// Its version before feature flags.
    from: Option<u64>,
    enabled: Vec<&'static Feature>,
}

impl Upgrade {
    /// Whether it only lists features.
    pub fn only_looks(&self) -> bool {
        self.features || self.pools.is_empty() && !self.all
    }

    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if !session.json() {
            print("This system supports ZFS pool feature flags.\n\n")?;
        }
        match () {
            () if self.features && session.json() => print_json(&known_json()).map(|()| Outcome::Done),
            () if self.features => print(known()).map(|()| Outcome::Done),
            () if self.pools.is_empty() && !self.all => list(session).await,
            () => self.upgrade(session).await,
        }
    }

    async fn upgrade(&self, session: &Session) -> Result<Outcome, CliError> {
        let (mut outcome, mut entries, mut had_all) = (Outcome::Done, Map::new(), true);
        for found in session.pools_to_change(&self.pools).await? {
            let (name, mut done) = (found.name(), None);
            let work = async |engine: &Engine| {
                done = Some(upgrade(engine, name).await?);
                Ok(())
            };
            match session.change_unused(&found, work).await {
                Ok(changed) => outcome = outcome.and(changed),
                Err(error) => outcome = outcome.and(error.tell(name)),
            }
            match done {
                Some(upgraded) if session.json() => _ = entries.insert(name.into(), upgraded.json(name)),
                // Of all pools, only those are named that get something.
                Some(upgraded) if self.all && upgraded.is_nothing() => {}
                Some(upgraded) => {
                    had_all = false;
                    outcome = outcome.printed(print(upgraded.text(name)));
                }
                None => had_all = false,
            }
        }
        if self.all && had_all && !session.json() {
            outcome = outcome.printed(print(
                "All pools are already formatted using feature flags.\n\n\
                 Every feature flags pool already has all supported and requested features enabled.\n",
            ));
        }
        match session.json() {
            true => Ok(outcome.printed(print_json(&document("zpool upgrade", "pools", entries)))),
            false => Ok(outcome),
        }
    }
}

async fn list(session: &Session) -> Result<Outcome, CliError> {
    let mut all = Vec::new();
    for found in session.pools_to_change(&[]).await? {
        let mos = session.open_without_asking(&found).await?;
        let version = mos.uberblock().version;
        let features = match version < SPA_VERSION_FEATURES {
            true => Vec::new(),
            false => lacking(&mos, SPA_FEATURES.iter().collect()).await?,
        };
        all.push(Lacking { pool: found.name().into(), version, features });
    }
    match session.json() {
        true => print_json(&list_json(&all))?,
        false => print(list_text(&all))?,
    }
    Ok(Outcome::Done)
}

fn list_json(all: &[Lacking]) -> Value {
    let entry = |Lacking { pool, version, features }: &Lacking| {
        let names: Vec<&str> = features.iter().map(|feature| feature.name).collect();
        (pool.clone(), json!({"name": pool, "version": version, "disabled_features": names}))
    };
    document("zpool upgrade", "pools", all.iter().map(entry).collect())
}

fn list_text(all: &[Lacking]) -> String {
    let (mut lacking, mut older) = (String::new(), String::new());
    for Lacking { pool, version, features } in all {
        if *version < SPA_VERSION_FEATURES {
            let _ = writeln!(older, "{version:2}   {pool}");
        } else if !features.is_empty() {
            let _ = writeln!(lacking, "{pool}");
        }
        for feature in features {
            let mark = if feature.no_upgrade { "(*)" } else { "" };
            let _ = writeln!(lacking, "      {}{mark}", feature.name);
        }
    }
    let formats = match older.is_empty() {
        true => "All pools are formatted using feature flags.\n\n".into(),
        false => format!(
            "The following pools are formatted with legacy version numbers and can\n\
             be upgraded to use feature flags.  After being upgraded, these pools\n\
             will no longer be accessible by software that does not support feature\n\
             flags.\n\nVER  POOL\n---  ------------\n{older}\n"
        ),
    };
    formats
        + &match lacking.is_empty() {
            true => "Every feature flags pool has all supported and requested features enabled.\n".to_owned(),
            false => format!(
                "Some supported features are not enabled on the following pools. Once a\n\
                 feature is enabled the pool may become incompatible with software\n\
                 that does not support the feature. See zpool-features(7) for details.\n\n\
                 Note that the pool 'compatibility' feature can be used to inhibit\n\
                 feature upgrades.\n\n\
                 Features marked with (*) are not applied automatically on upgrade, and\n\
                 must be applied explicitly with zpool-set(7).\n\n\
                 POOL  FEATURE\n---------------\n{lacking}\n"
            ),
        }
}

impl Upgraded {
    fn is_nothing(&self) -> bool {
        self.from.is_none() && self.enabled.is_empty()
    }

    fn text(&self, name: &str) -> String {
        let mut out = String::new();
        if let Some(version) = self.from {
            let _ = writeln!(out, "Successfully upgraded '{name}' from version {version} to feature flags.");
        }
        if self.enabled.is_empty() {
            return format!("Pool '{name}' already has all supported and requested features enabled.\n");
        }
        let _ = writeln!(out, "Enabled the following features on '{name}':");
        self.enabled.iter().for_each(|feature| _ = writeln!(out, "  {}", feature.name));
        out + "\n"
    }

    fn json(&self, name: &str) -> Value {
        let enabled: Vec<&str> = self.enabled.iter().map(|feature| feature.name).collect();
        json!({"name": name, "upgraded_from": self.from, "enabled_features": enabled})
    }
}

/// Enables the features that the pool should have but lacks.
async fn upgrade(engine: &Engine, name: &str) -> Result<Upgraded, CliError> {
    let mut mos = engine.mos().await?;
    let compatibility = mos.pool().config().compatibility.clone().unwrap_or_else(|| "off".into());
    let mut wanted = compatibility::features(&compatibility).map_err(CliError::Refused)?;
    wanted.retain(|feature| !feature.no_upgrade);
    let version = mos.uberblock().version;
    let from = Some(version).filter(|version| *version < SPA_VERSION_FEATURES);
    if from.is_some() {
        if compatibility == "legacy" {
            let why = "Upgrade not performed because 'compatibility' property set to 'legacy'.";
            return Err(CliError::Refused(why.into()));
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
    Ok(Upgraded { from, enabled })
}

async fn lacking(mos: &Mos, wanted: Vec<&'static Feature>) -> Result<Vec<&'static Feature>, CliError> {
    let states = mos.features().await?;
    let is_disabled = |feature: &&'static Feature| {
        states.iter().any(|(other, state)| other.name == feature.name && *state == FeatureState::Disabled)
    };
    Ok(wanted.into_iter().filter(is_disabled).collect())
}

/// All features and their descriptions.
fn known() -> String {
    let rule = "-------------------------------------------------------------";
    let mut out = format!("The following features are supported:\n\nFEAT DESCRIPTION\n{rule}\n");
    for feature in SPA_FEATURES.iter() {
        let read_only = if feature.readonly_compatible { " (read-only compatible)" } else { "" };
        let _ = writeln!(out, "{:<37}{read_only}\n     {}", feature.name, feature.description);
    }
    out + "\n"
}

fn known_json() -> Value {
    let entry = |feature: &Feature| {
        let about = json!({
            "guid": feature.guid,
            "description": feature.description,
            "readonly_compatible": feature.readonly_compatible,
            "depends": feature.depends,
            "active_from": format!("the first {}", feature.first_use),
            "upgraded": !feature.no_upgrade,
        });
        (feature.name.to_owned(), about)
    };
    document("zpool upgrade", "features", SPA_FEATURES.iter().map(entry).collect())
}

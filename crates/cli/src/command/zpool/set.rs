//! `zpool set`, `upgrade`: properties and features of a pool.
//!
//! Source: OpenZFS `libzfs_pool.c` (`zpool_valid_proplist`), `zpool_main.c` (`zpool_do_upgrade`), whose words these are.

use std::fmt::Write as _;

use cenote_dataset::engine::{Engine, PoolSetting};
use cenote_dataset::{FeatureState, Mos};
use cenote_format::features::{Feature, SPA_FEATURES, SPA_VERSION_FEATURES};
use cenote_format::props::Prop;
use clap::Args;

use super::create::compatibility;
use super::create::properties::{comment, pool_switch};
use crate::command::zfs::refusal::cannot;
use crate::command::zfs::settings;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, dataset, print};

/// `zpool set`
#[derive(Debug, Args)]
#[command(
    after_help = "Example: cenote zpool set comment='the attic' tank; cenote zpool set feature@zstd_compress=enabled tank"
)]
pub struct Set {
    /// comment, compatibility, bootfs, ashift, autoexpand, autotrim, failmode..., feature@NAME, or one of your own with a colon
    #[arg(value_name = "PROPERTY=VALUE")]
    pub option: String,
    /// Pools
    #[arg(required = true)]
    pub pools: Vec<String>,
}

/// `zpool upgrade`
#[derive(Debug, Args)]
// -V is a version of the pool.
#[command(
    disable_version_flag = true,
    after_help = "Without pools: which features they lack. The property `compatibility` says which ones a pool is to have.\n\n\
    Example: cenote zpool upgrade tank"
)]
pub struct Upgrade {
    /// All pools
    #[arg(short = 'a', conflicts_with_all = ["pools", "features"])]
    pub all: bool,
    /// The features that there are
    #[arg(short = 'v', conflicts_with = "pools")]
    pub features: bool,
    /// Accepted for habit: the version 5000, that of feature flags
    #[arg(short = 'V', value_name = "VERSION", value_parser = ["5000"])]
    pub version: Option<String>,
    /// Pools to enable all features of
    pub pools: Vec<String>,
}

impl Set {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (name, value) = settings::split(&self.option).map_err(CliError::Usage)?;
        let work = async |engine: &Engine, pool: &String| {
            let what = format!("set property for '{pool}'");
            let refused = |why: String| CliError::Refused(format!("cannot {what}: {why}"));
            let setting = setting(&engine.mos().await?, name, value).await?.map_err(refused)?;
            engine.set_pool(setting).await.map_err(cannot(&what))
        };
        session.change_each(&self.pools, String::as_str, work).await
    }
}

/// What a text means; or why it can't be.
async fn setting(mos: &Mos, name: &str, value: &str) -> Result<Result<PoolSetting, String>, CliError> {
    if name == "bootfs" {
        let id = match value {
            "" => 0,
            root => dataset(mos, root).await?.id().0,
        };
        return Ok(Ok(PoolSetting::Number("bootfs".into(), id)));
    }
    Ok(plain_setting(name, value))
}

fn plain_setting(name: &str, value: &str) -> Result<PoolSetting, String> {
    if let Some(feature) = name.strip_prefix("feature@") {
        let feature = Feature::by_name(feature).ok_or_else(|| format!("feature '{feature}' unsupported"))?;
        return match value {
            "enabled" => Ok(PoolSetting::Feature(feature)),
            "disabled" => Err(format!("property '{name}' can only be set to 'disabled' at creation time")),
            _ => Err(format!("property '{name}' can only be set to 'enabled' or 'disabled'")),
        };
    }
    match name {
        "comment" => comment(value).map(PoolSetting::Comment),
        "compatibility" => {
            compatibility::features(value)?;
            Ok(PoolSetting::Compatibility(value.into()))
        }
        "ashift" => match value.parse() {
            Ok(ashift @ (0 | 9..=16)) => Ok(PoolSetting::Number("ashift".into(), ashift)),
            _ => Err(format!(
                "property 'ashift' number {value} is invalid, only values between 9 and 16 are allowed."
            )),
        },
        "altroot" | "readonly" => {
            Err(format!("property '{name}' can only be set during pool creation or import"))
        }
        "cachefile" | "multihost" | "version" => Err(format!("'{name}' can't be set here")),
        _ if name.contains(':') => Ok(PoolSetting::Text(name.into(), value.into())),
        _ => match Prop::zpool(name) {
            None => Err(format!("invalid property '{name}'")),
            Some(prop) if prop.is_read_only() => Err(format!("'{name}' is readonly")),
            Some(_) => {
                pool_switch(name, value).map(|(name, number)| PoolSetting::Number(name.into(), number))
            }
        },
    }
}

impl Upgrade {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        print("This system supports ZFS pool feature flags.\n\n")?;
        if self.features {
            return print(known()).map(|()| Outcome::Done);
        }
        if self.pools.is_empty() && !self.all {
            return self.list(session).await;
        }
        for found in session.pools_to_change(&self.pools).await? {
            let work = async |engine: &Engine| print(upgrade(engine, found.name()).await?);
            session.change_unused(&found, work).await?;
        }
        Ok(Outcome::Done)
    }

    async fn list(&self, session: &Session) -> Result<Outcome, CliError> {
        let (mut out, mut older) = (String::new(), String::new());
        for found in session.pools_to_change(&[]).await? {
            let mos = session.open_without_asking(&found).await?;
            let version = mos.uberblock().version;
            if version < SPA_VERSION_FEATURES {
                let _ = writeln!(older, "{version:2}   {}", found.name());
                continue;
            }
            let lacking = lacking(&mos, SPA_FEATURES.iter().collect()).await?;
            if !lacking.is_empty() {
                let _ = writeln!(out, "{}", found.name());
            }
            lacking.iter().for_each(|feature| _ = writeln!(out, "      {}", feature.name));
        }
        match older.is_empty() {
            true => print("All pools are formatted using feature flags.\n\n")?,
            false => print(format!(
                "The following pools are formatted with legacy version numbers and can\n\
                 be upgraded to use feature flags.  After being upgraded, these pools\n\
                 will no longer be accessible by software that does not support feature\n\
                 flags.\n\nVER  POOL\n---  ------------\n{older}\n"
            ))?,
        }
        if out.is_empty() {
            print("Every feature flags pool has all supported and requested features enabled.\n")?;
        } else {
            print(format!(
                "Some supported features are not enabled on the following pools. Once a\n\
                 feature is enabled the pool may become incompatible with software\n\
                 that does not support the feature. See zpool-features(7) for details.\n\n\
                 POOL  FEATURE\n---------------\n{out}\n"
            ))?;
        }
        Ok(Outcome::Done)
    }
}

/// Enables what the pool is to have and has not; answers what to say.
async fn upgrade(engine: &Engine, name: &str) -> Result<String, CliError> {
    let mut mos = engine.mos().await?;
    let compatibility = mos.pool().config().compatibility.clone().unwrap_or_else(|| "off".into());
    let wanted = compatibility::features(&compatibility).map_err(CliError::Refused)?;
    let (mut out, version) = (String::new(), mos.uberblock().version);
    if version < SPA_VERSION_FEATURES {
        if compatibility == "legacy" {
            let why = "Upgrade not performed because 'compatibility' property set to 'legacy'.";
            return Err(CliError::Refused(why.into()));
        }
        let begun = engine.set_pool(PoolSetting::FeatureFlags).await;
        begun.map_err(cannot(format!("upgrade '{name}'")))?;
        let _ = writeln!(out, "Successfully upgraded '{name}' from version {version} to feature flags.");
        mos = engine.mos().await?;
    }
    let lacking = lacking(&mos, wanted).await?;
    if lacking.is_empty() {
        return Ok(format!("Pool '{name}' already has all supported and requested features enabled.\n"));
    }
    let _ = writeln!(out, "Enabled the following features on '{name}':");
    for feature in lacking {
        let enabled = engine.set_pool(PoolSetting::Feature(feature)).await;
        enabled.map_err(cannot(format!("set property for '{name}'")))?;
        let _ = writeln!(out, "  {}", feature.name);
    }
    Ok(out + "\n")
}

async fn lacking(mos: &Mos, wanted: Vec<&'static Feature>) -> Result<Vec<&'static Feature>, CliError> {
    let states = mos.features().await?;
    let is_disabled = |feature: &&'static Feature| {
        states.iter().any(|(other, state)| other.name == feature.name && *state == FeatureState::Disabled)
    };
    Ok(wanted.into_iter().filter(is_disabled).collect())
}

/// All features, with what they are.
fn known() -> String {
    let rule = "-------------------------------------------------------------";
    let mut out = format!("The following features are supported:\n\nFEAT DESCRIPTION\n{rule}\n");
    for feature in SPA_FEATURES.iter() {
        let read_only = if feature.readonly_compatible { " (read-only compatible)" } else { "" };
        let _ = writeln!(out, "{:<37}{read_only}\n     {}", feature.name, feature.description);
    }
    out + "\n"
}

//! `zpool set`: properties of pools, and of vdevs (`set_vdev`).
//!
//! Source: OpenZFS `libzfs_pool.c` (`zpool_valid_proplist`), including the wording.

use cenote_dataset::{DatasetKind, Mos};
use cenote_engine::{Engine, Host};
use cenote_format::features::Feature;
use cenote_format::props::Prop;
use cenote_tasks::PoolSetting;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compatibility;
use super::options::{comment, own_name, pool_switch};
use super::set_vdev::set_vdev;
use crate::error::ControlError;
use crate::refusal::cannot;
use crate::session::{Session, dataset, this_host};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::properties::settings::Setting;
use crate::zpool::shown::vdev_properties::named;

/// Set a property or enable a feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Set {
    /// The property and its value.
    pub setting: Setting,
    /// Pools; or a pool and one of its vdevs.
    pub pools: Vec<String>,
}

impl Verb for Set {
    const NAME: &'static str = "zpool set";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// A vdev can't have the value. Pools that can't are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        if let Some((pool, vdev)) = self.vdev(session).await? {
            return Ok(set_vdev(session, &self.setting, pool, vdev).await?.into());
        }
        let Setting { property, value } = &self.setting;
        let work = async |engine: &Engine, pool: &String| {
            let what = format!("set property for '{pool}'");
            let refused = |why: String| ControlError::Refused(format!("cannot {what}: {why}"));
            let setting = setting(&engine.mos().await?, property, value).await?.map_err(refused)?;
            cenote_tasks::set_pool(engine, setting).await.map_err(cannot(&what))
        };
        Ok(session.change_each(&self.pools, String::as_str, work).await?.into())
    }
}

impl Set {
    /// As in OpenZFS, a vdev's name after the pool's asks for that vdev's property.
    async fn vdev(&self, session: &Session) -> Result<Option<(&str, &str)>, ControlError> {
        let [pool, others @ ..] = &*self.pools else { return Ok(None) };
        if others.is_empty() {
            return Ok(None);
        }
        let health = session.find_pool(pool).await?.status();
        match others {
            _ if others.iter().all(|name| named(&health, name).is_empty()) => Ok(None),
            [vdev] => Ok(Some((pool, vdev))),
            _ => Err(ControlError::Usage("a property is set on one vdev at a time".into())),
        }
    }
}

/// The parsed value, or why it is invalid.
pub async fn setting(
    mos: &Mos,
    name: &str,
    value: &str,
) -> Result<Result<PoolSetting, String>, ControlError> {
    let name = own_name(name);
    if name == "bootfs" {
        let id = match value {
            "" => 0,
            root => {
                let root = dataset(mos, root).await?;
                if root.kind().await? != DatasetKind::Filesystem {
                    return Ok(Err("property 'bootfs' must be a file system".into()));
                }
                root.id().0
            }
        };
        return Ok(Ok(PoolSetting::Number("bootfs".into(), id)));
    }
    Ok(plain_setting(name, value, &this_host(mos.pool().runtime())))
}

fn plain_setting(name: &str, value: &str, host: &Host) -> Result<PoolSetting, String> {
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
        "cachefile" | "version" => Err(format!("'{name}' can't be set here")),
        _ if name.contains(':') => Ok(PoolSetting::Text(name.into(), value.into())),
        _ => match Prop::zpool(name) {
            None => Err(format!("invalid property '{name}'")),
            Some(prop) if prop.is_read_only() => Err(format!("'{name}' is readonly")),
            Some(_) => {
                pool_switch(name, value, host).map(|(name, number)| PoolSetting::Number(name.into(), number))
            }
        },
    }
}

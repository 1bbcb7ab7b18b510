//! `zfs inherit`: clears properties, so that inherited values apply.

use cenote_format::props::AppliesTo;
use cenote_tasks::Instead;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::settings::find;
use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::permitted::to_set_one;

/// Clear properties, so that inherited values apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Inherit {
    /// Property.
    pub property: String,
    /// Datasets or snapshots.
    pub names: Vec<String>,
    /// Include everything below.
    #[serde(default)]
    pub recursive: bool,
    /// Revert to the received value, if any.
    #[serde(default)]
    pub received: bool,
}

impl Verb for Inherit {
    const NAME: &'static str = "zfs inherit";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let mut permissions = Permissions::to("set properties");
        for name in &self.names {
            permissions.and_to(format!("set property for '{name}'"));
            let head = dataset(&session.pool_to_ask(name).await?, name).await?;
            let all = if self.recursive { head.descendants().await? } else { vec![head] };
            let property = to_set_one(&self.property)?;
            all.iter().for_each(|dataset| permissions.need(dataset, &[&property]));
        }
        Ok(permissions)
    }

    /// # Errors
    /// The property is unknown or can't be inherited.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let prop = find(&self.property).map_err(ControlError::Usage)?;
        let property = prop.map_or(self.property.as_str(), |prop| prop.name);
        if let Some(prop) = prop {
            if prop.is_read_only() || prop.is_one_time() {
                return Err(ControlError::Refused(format!("{property} property is read-only")));
            }
            if !prop.is_inheritable() && !self.received {
                return Err(ControlError::Refused(not_inherited(property)));
            }
            if self.received && matches!(property, "volsize" | "version") {
                let why = format!("'{property}' property cannot be reverted to a received value");
                return Err(ControlError::Refused(why));
            }
        }
        let instead = if self.received { Instead::Received } else { Instead::Inherited };
        let outcome = session
            .change_each(&self.names, pool_of, async |engine, name| {
                let top = dataset(&engine.mos().await?, name).await?;
                let all = if self.recursive { top.descendants().await? } else { vec![top] };
                for dataset in all {
                    let is_volume = dataset.property("volsize").await?.is_some();
                    let applies = if is_volume { AppliesTo::VOL } else { AppliesTo::FS };
                    let what = format!("inherit {property} for '{}'", dataset.name());
                    if prop.is_some_and(|prop| !prop.applies.overlaps(applies)) {
                        if self.recursive {
                            continue;
                        }
                        let why = "property doesn't apply to datasets of this type";
                        return Err(ControlError::Refused(format!("cannot {what}: {why}")));
                    }
                    cenote_tasks::inherit(engine, dataset.name(), property, instead)
                        .await
                        .map_err(cannot(what))?;
                }
                Ok(())
            })
            .await?;
        match property {
            "mountpoint" => Ok(outcome.and(session.mount_where_set(&self.names).await?).into()),
            _ => Ok(outcome.into()),
        }
    }
}

fn not_inherited(property: &str) -> String {
    let how = match cenote_tasks::SIZES.contains(&property) {
        true => format!("\nuse 'zfs set {property}=none' to clear"),
        false => String::new(),
    };
    format!("'{property}' property cannot be inherited{how}")
}

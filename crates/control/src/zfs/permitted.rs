//! Permissions for changes of datasets: setting properties, making datasets, destroying them.
//!
//! Only administrators set key locations, which the daemon reads as root when it starts, and properties that
//! control the daemon itself.
//!
//! Source: OpenZFS `zfs_ioctl.c` (`zfs_secpolicy_*`), `zfs_main.c` (`zfs_mount_delegation_check`).

use cenote_dataset::{Dataset, Mos};

use super::properties::settings::{Setting, find};
use super::tree::above::nearest_above;
use crate::error::ControlError;
use crate::permissions::{FOR_ADMINS, Permissions};

/// Also needed to make or remove a name in a directory.
pub const MOUNT: &str = "mount";
/// Refusal to store a file as a key location.
const FILES_FOR_ADMINS: &str = "permission denied: the daemon reads this file with its own rights later, so \
    only root and its user may set it; let it prompt, or use --key and -L file:///PATH each time";
/// Prefix of properties for which `userprop` is not enough.
const OWN_PROPERTIES: &str = "org.cenote:";

impl Permissions {
    /// To set properties.
    ///
    /// # Errors
    /// One is unknown, or for administrators only.
    pub fn set(&mut self, dataset: &Dataset, settings: &[Setting]) -> Result<(), ControlError> {
        let permissions = to_set(settings)?;
        permissions.iter().for_each(|permission| self.need(dataset, &[permission]));
        Ok(())
    }

    /// To make a dataset and its missing parents, with properties.
    ///
    /// # Errors
    /// As [`Permissions::set`].
    pub async fn make(&mut self, mos: &Mos, name: &str, settings: &[Setting]) -> Result<(), ControlError> {
        let above = nearest_above(mos, name).await?;
        let missing = name.strip_prefix(above.name()).unwrap_or_default().matches('/').count();
        self.need(&above, &["create", MOUNT]);
        if missing > 1 {
            self.need_below(&above, &["create", MOUNT]);
        }
        for permission in to_set(settings)? {
            // Properties that define the dataset, rather than configure it, need no further permission.
            let is_of_creation =
                cenote_tasks::KEPT_ELSEWHERE.contains(&permission.as_str()) || permission == "keylocation";
            if !is_of_creation {
                self.need_below(&above, &[&permission]);
            }
        }
        Ok(())
    }

    /// To destroy datasets and snapshots.
    pub fn destroy(&mut self, datasets: &[Dataset]) {
        datasets.iter().for_each(|dataset| self.need(dataset, &[MOUNT, "destroy"]));
    }
}

/// The dataset of a snapshot or bookmark.
pub fn head_of(name: &str) -> &str {
    name.split(['@', '#']).next().unwrap_or(name)
}

/// The permissions for settings. Refuses values that would make the daemon read a file as root later.
pub fn to_set(settings: &[Setting]) -> Result<Vec<String>, ControlError> {
    let mut permissions = Vec::new();
    for Setting { property, value } in settings {
        let permission = to_set_one(property)?;
        // A property has several spellings: this one is stored.
        if permission == "keylocation" && value != "prompt" {
            return Err(ControlError::Refused(format!("keylocation={value}: {FILES_FOR_ADMINS}")));
        }
        permissions.push(permission);
    }
    Ok(permissions)
}

/// The permission to set a property.
pub fn to_set_one(typed: &str) -> Result<String, ControlError> {
    Ok(match find(typed).map_err(ControlError::Usage)? {
        Some(prop) => prop.name.to_owned(),
        // Properties that control the daemon: served volumes, their LUNs, their reservations.
        None if typed.to_ascii_lowercase().starts_with(OWN_PROPERTIES) => {
            return Err(ControlError::Refused(format!("{typed}: {FOR_ADMINS}")));
        }
        None if typed.contains(':') => "userprop".to_owned(),
        None => typed.split('@').next().unwrap_or(typed).to_owned(),
    })
}

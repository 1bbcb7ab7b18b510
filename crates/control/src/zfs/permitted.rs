//! The permissions that changes of datasets need: to set properties, make datasets, destroy them.
//!
//! Nobody but administrators sets places of keys, which the daemon reads as root when it starts, or the
//! properties that the daemon itself goes by.
//!
//! Source: OpenZFS `zfs_ioctl.c` (`zfs_secpolicy_*`), `zfs_main.c` (`zfs_mount_delegation_check`).

use cenote_dataset::{Dataset, Mos};

use super::properties::settings::{Setting, find};
use super::tree::above::nearest_above;
use crate::error::ControlError;
use crate::permissions::{FOR_ADMINS, Permissions};

/// Who makes or removes a name in a directory needs this too.
pub const MOUNT: &str = "mount";
/// Why a dataset may not remember a file.
const FILES_FOR_ADMINS: &str = "permission denied: the daemon reads this file with its own rights later, so \
    only root and its user may set it; let it prompt, or use --key and -L file:///PATH each time";
/// What names of properties begin with that `userprop` is not enough for.
const OWN_PROPERTIES: &str = "org.cenote:";

impl Permissions {
    /// To set properties.
    ///
    /// # Errors
    /// One is not to be set by others than administrators, or there is none of this name.
    pub fn set(&mut self, dataset: &Dataset, settings: &[Setting]) -> Result<(), ControlError> {
        let permissions = to_set(settings)?;
        permissions.iter().for_each(|permission| self.need(dataset, &[permission]));
        Ok(())
    }

    /// To make a dataset, and those above it that are missing, with properties.
    ///
    /// # Errors
    /// As of [`Permissions::set`].
    pub async fn make(&mut self, mos: &Mos, name: &str, settings: &[Setting]) -> Result<(), ControlError> {
        let above = nearest_above(mos, name).await?;
        let missing = name.strip_prefix(above.name()).unwrap_or_default().matches('/').count();
        self.need(&above, &["create", MOUNT]);
        if missing > 1 {
            self.need_below(&above, &["create", MOUNT]);
        }
        for permission in to_set(settings)? {
            // What a dataset is, rather than a setting, whoever makes it may say without further permission.
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

/// The file system or volume that a snapshot or bookmark is of.
pub fn head_of(name: &str) -> &str {
    name.split(['@', '#']).next().unwrap_or(name)
}

/// The permissions that settings take. A value for which the daemon would read a file as root later is not to
/// be had.
pub fn to_set(settings: &[Setting]) -> Result<Vec<String>, ControlError> {
    let mut permissions = Vec::new();
    for Setting { property, value } in settings {
        let permission = to_set_one(property)?;
        // Names of properties may be typed in several ways: this is the one that is stored.
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
        // What the daemon itself goes by: which volumes it serves, as which units, who has reserved them.
        None if typed.to_ascii_lowercase().starts_with(OWN_PROPERTIES) => {
            return Err(ControlError::Refused(format!("{typed}: {FOR_ADMINS}")));
        }
        None if typed.contains(':') => "userprop".to_owned(),
        None => typed.split('@').next().unwrap_or(typed).to_owned(),
    })
}

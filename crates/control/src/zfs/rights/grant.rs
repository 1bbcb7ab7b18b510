//! Grants: the grantee, the permissions, and their reach.

use std::collections::BTreeSet;

use cenote_dataset::Delegated;
use cenote_format::deleg::{self, DelegKey, Who};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;

/// The holder of permissions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum To {
    /// User.
    User(u64),
    /// Group.
    Group(u64),
    /// All users.
    Everyone,
    /// The creator of a dataset below, in that dataset.
    Creator,
    /// A set, `@NAME`, usable as a permission.
    Set(String),
}

/// Where permissions hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// In the dataset itself.
    Local,
    /// In its descendants.
    Descendent,
    /// Not applicable: a creator or a set.
    Any,
}

/// A holder, and the reach.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Grantee {
    /// Holder.
    pub to: To,
    /// Reach.
    pub reach: Reach,
}

/// The permissions of one grantee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grant {
    /// Grantee.
    pub grantee: Grantee,
    /// Verbs, properties and sets.
    pub permissions: BTreeSet<String>,
}

impl From<&To> for Who {
    fn from(to: &To) -> Who {
        match to {
            To::User(id) => Who::User(*id),
            To::Group(id) => Who::Group(*id),
            To::Everyone => Who::Everyone,
            To::Creator => Who::Creator,
            To::Set(name) => Who::Set(name.clone()),
        }
    }
}

impl From<Who> for To {
    fn from(who: Who) -> To {
        match who {
            Who::User(id) => To::User(id),
            Who::Group(id) => To::Group(id),
            Who::Everyone => To::Everyone,
            Who::Creator => To::Creator,
            Who::Set(name) => To::Set(name),
        }
    }
}

impl Grantee {
    /// # Errors
    /// Its permissions can't have this reach.
    pub(super) fn check(&self) -> Result<(), ControlError> {
        let is_of_all = matches!(self.to, To::Creator | To::Set(_));
        match is_of_all == (self.reach == Reach::Any) {
            true => Ok(()),
            false => Err(ControlError::Usage("users and groups have permissions locally or below".into())),
        }
    }

    /// The storage key of its permissions, or of its sets.
    pub(super) fn key(&self, of_sets: bool) -> DelegKey {
        let reach = match self.reach {
            Reach::Local => deleg::Reach::Local,
            Reach::Descendent => deleg::Reach::Descendent,
            Reach::Any => deleg::Reach::Any,
        };
        DelegKey { who: (&self.to).into(), reach, of_sets }
    }

    /// Permissions and sets, each under its own key.
    pub(super) fn stored(&self, permissions: &BTreeSet<String>) -> Vec<Delegated> {
        let (sets, others): (BTreeSet<String>, BTreeSet<String>) =
            permissions.iter().cloned().partition(|name| name.starts_with('@'));
        let both = [(false, others), (true, sets)].into_iter().filter(|(_, names)| !names.is_empty());
        both.map(|(of_sets, names)| (self.key(of_sets), names)).collect()
    }
}

impl From<Delegated> for Grant {
    fn from((key, permissions): Delegated) -> Grant {
        let reach = match key.reach {
            deleg::Reach::Local => Reach::Local,
            deleg::Reach::Descendent => Reach::Descendent,
            deleg::Reach::Any => Reach::Any,
        };
        Grant { grantee: Grantee { to: key.who.into(), reach }, permissions }
    }
}

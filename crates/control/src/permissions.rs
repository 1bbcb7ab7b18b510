//! Permissions that a request needs from a delegated caller (`zfs allow`).
//!
//! Idea: before such a caller's verb runs, its plan lists the changes, and each is checked against the
//! delegations. All fails closed: requests that name no permissions are refused, as are requests about pools
//! that no daemon holds.
//!
//! Source: OpenZFS `zfs_ioctl.c` (`zfs_secpolicy_*`).

use std::collections::BTreeSet;

use cenote_dataset::{Credentials, Dataset, Mos, Subject};

use crate::error::ControlError;
use crate::session::{Session, pool_of};

/// Refusal of an operation that can't be delegated.
pub const FOR_ADMINS: &str = "permission denied: only root and the daemon's user may do that";

/// Refusal of a verb for administrators.
pub const ONLY_ADMINS: &str = "permission denied: only root and the daemon's user may change pools or read \
    files; others may list them, show their properties and state, and do what `zfs allow` delegates to them";

/// The operations of a request, and the permissions they need.
pub struct Permissions {
    what: String,
    needed: Vec<(Dataset, Subject, String)>,
    /// Of each, one is enough.
    alternatives: Vec<(Dataset, &'static [&'static str])>,
}

impl Permissions {
    /// No permissions yet. `what`: the operation as messages word it, `create 'tank/a'`.
    pub fn to(what: impl Into<String>) -> Permissions {
        Permissions { what: what.into(), needed: Vec::new(), alternatives: Vec::new() }
    }

    /// Starts the next operation.
    pub fn and_to(&mut self, what: impl Into<String>) {
        self.what = what.into();
    }

    /// Adds permissions on a dataset or snapshot.
    pub fn need(&mut self, dataset: &Dataset, permissions: &[&str]) {
        let subject = if dataset.is_snapshot() { Subject::Snapshot } else { Subject::Head };
        self.need_as(dataset, subject, permissions);
    }

    /// Adds permissions on a head of which one is enough.
    pub fn need_one_of(&mut self, dataset: &Dataset, permissions: &'static [&'static str]) {
        self.alternatives.push((dataset.clone(), permissions));
    }

    /// Adds permissions in a dataset to be made below this one.
    pub fn need_below(&mut self, above: &Dataset, permissions: &[&str]) {
        self.need_as(above, Subject::NewChild, permissions);
    }

    fn need_as(&mut self, dataset: &Dataset, subject: Subject, permissions: &[&str]) {
        self.needed.extend(permissions.iter().map(|&name| (dataset.clone(), subject, name.to_owned())));
    }

    /// The refusal of an operation that can't be delegated.
    pub fn denied(&self) -> ControlError {
        self.refused("permission denied")
    }

    fn refused(&self, why: &str) -> ControlError {
        ControlError::Refused(format!("cannot {}: {why}", self.what))
    }

    /// Whether nothing is needed: the request names nothing to do.
    pub fn is_empty(&self) -> bool {
        self.needed.is_empty() && self.alternatives.is_empty()
    }

    /// # Errors
    /// Some were not delegated to this caller.
    pub async fn check(self, who: &Credentials) -> Result<(), ControlError> {
        // Thousands of snapshots of one dataset need the dataset's permissions: check them once.
        let mut asked = BTreeSet::new();
        for (dataset, subject, permission) in &self.needed {
            let pool = dataset.mos().pool().tree().guid();
            if !asked.insert((pool, dataset.dir().id(), *subject, permission)) {
                continue;
            }
            if !dataset.mos().heeds_delegation().await? {
                return Err(self.refused("delegated administration is disabled on pool"));
            }
            if !dataset.dir().is_allowed(*subject, permission, who).await? {
                return Err(self.denied());
            }
        }
        for (dataset, permissions) in &self.alternatives {
            if !dataset.mos().heeds_delegation().await? {
                return Err(self.refused("delegated administration is disabled on pool"));
            }
            let mut is_allowed = false;
            for permission in *permissions {
                is_allowed |= dataset.dir().is_allowed(Subject::Head, permission, who).await?;
            }
            if !is_allowed {
                return Err(self.denied());
            }
        }
        Ok(())
    }
}

impl Session {
    /// The current state of a name's pool, for a delegated caller.
    ///
    /// # Errors
    /// No daemon holds it; the caller learns nothing else.
    pub async fn pool_to_ask(&self, name: &str) -> Result<Mos, ControlError> {
        let missing = || ControlError::NotFound(format!("cannot open '{name}': dataset does not exist"));
        let pool = self.held_by_name(pool_of(name)).ok_or_else(missing)?;
        self.note_names(&pool);
        Ok(pool.engine.mos().await?)
    }
}

//! Permissions that a request needs of a caller who may not do all: `zfs allow` delegates them.
//!
//! Idea: before such a caller's verb runs, its own plan says what it would change, and each change is looked
//! up in what was delegated. All fails closed: a verb whose request names no permissions is refused, and so
//! is one about a pool that no daemon holds.
//!
//! Source: OpenZFS `zfs_ioctl.c` (`zfs_secpolicy_*`).

use std::collections::BTreeSet;

use cenote_dataset::{Credentials, Dataset, Mos, Subject};

use crate::error::ControlError;
use crate::session::{Session, pool_of};

/// Why something is refused that nobody can be given.
pub const FOR_ADMINS: &str = "permission denied: only root and the daemon's user may do that";

/// Why a verb is refused that is for administrators.
pub const ONLY_ADMINS: &str = "permission denied: only root and the daemon's user may change pools or read \
    files; others may list them, show their properties and state, and do what `zfs allow` delegates to them";

/// What a request would do, and the permissions that it needs for that.
pub struct Permissions {
    what: String,
    needed: Vec<(Dataset, Subject, String)>,
}

impl Permissions {
    /// None as yet. `what` is what would be done, as messages say it: `create 'tank/a'`.
    pub fn to(what: impl Into<String>) -> Permissions {
        Permissions { what: what.into(), needed: Vec::new() }
    }

    /// What follows is to do this.
    pub fn and_to(&mut self, what: impl Into<String>) {
        self.what = what.into();
    }

    /// Adds those that a dataset or snapshot is needed with.
    pub fn need(&mut self, dataset: &Dataset, permissions: &[&str]) {
        let subject = if dataset.is_snapshot() { Subject::Snapshot } else { Subject::Head };
        self.need_as(dataset, subject, permissions);
    }

    /// Adds those that are needed in a dataset that is made below this one.
    pub fn need_below(&mut self, above: &Dataset, permissions: &[&str]) {
        self.need_as(above, Subject::NewChild, permissions);
    }

    fn need_as(&mut self, dataset: &Dataset, subject: Subject, permissions: &[&str]) {
        self.needed.extend(permissions.iter().map(|&name| (dataset.clone(), subject, name.to_owned())));
    }

    /// The refusal of what nobody can delegate.
    pub fn denied(&self) -> ControlError {
        self.refused("permission denied")
    }

    fn refused(&self, why: &str) -> ControlError {
        ControlError::Refused(format!("cannot {}: {why}", self.what))
    }

    /// # Errors
    /// Not all of them were delegated to this caller.
    pub async fn check(self, who: &Credentials) -> Result<(), ControlError> {
        // Snapshots of one dataset, of which there may be thousands, need what it needs: asked once.
        let mut asked = BTreeSet::new();
        for (dataset, subject, permission) in &self.needed {
            let pool = dataset.mos().pool().guid();
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
        Ok(())
    }
}

impl Session {
    /// The pool that a name is in, as it is now, for a caller who may not do all.
    ///
    /// # Errors
    /// No daemon holds it: a caller learns no more of it.
    pub async fn pool_to_ask(&self, name: &str) -> Result<Mos, ControlError> {
        let missing = || ControlError::NotFound(format!("cannot open '{name}': dataset does not exist"));
        Ok(self.held_by_name(pool_of(name)).ok_or_else(missing)?.engine.mos().await?)
    }
}

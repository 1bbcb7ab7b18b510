//! Targets, their units, and the accounts that may use them.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use cenote_disk::{Disk, Failure};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

/// Identity of a disk, independent of its target and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Unique number.
    pub id: u64,
    /// Unit serial number: printable ASCII, at most 32 characters.
    pub serial: String,
    /// Human-readable name.
    pub name: String,
}

impl Identity {
    /// Derives an identity from two numbers unique together.
    pub fn new(first: u64, second: u64, name: &str) -> Identity {
        let both = [first.to_be_bytes(), second.to_be_bytes()].concat();
        let hash = digest(&SHA256, &both);
        let id = hash.as_ref().iter().take(8).fold(0, |id, &byte| id << 8 | u64::from(byte));
        Identity { id, serial: format!("{id:016x}"), name: name.into() }
    }

    /// NAA designator of type 3, locally assigned.
    pub fn naa(&self) -> u64 {
        3 << 60 | self.id >> 4
    }
}

/// A disk with the operations that only SCSI needs.
pub trait Unit: Disk + Any {
    /// Identity of the disk.
    fn identity(&self) -> Identity;
    /// Loads the text last stored by [`Unit::keep`].
    fn kept(&self) -> BoxFuture<'_, Result<Option<String>, Failure>>;
    /// Durably stores a text with the disk; `None` deletes it.
    fn keep(&self, text: Option<String>) -> BoxFuture<'_, Result<(), Failure>>;

    /// Clones a range from another disk, or from this one, without copying data. Returns the bytes cloned
    /// from the range's start; 0 means the caller must copy.
    fn share<'a>(
        &'a self,
        _offset: u64,
        _from: &'a dyn Unit,
        _range: Range<u64>,
    ) -> BoxFuture<'a, Result<u64, Failure>> {
        ready(Ok(0)).boxed()
    }
}

/// The logical units of a target, by number.
pub type Units = BTreeMap<u8, Arc<dyn Unit>>;

/// Targets visible to a client.
pub trait Targets: Send + Sync {
    /// Names of the targets.
    fn list(&self) -> BoxFuture<'_, Vec<String>>;

    /// Opens the units of a target.
    ///
    /// # Errors
    /// The target does not exist, or a unit is denied to this client.
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Units, Failure>>;
}

/// A CHAP name and its secret.
#[derive(Clone, Default)]
pub struct Account {
    /// `CHAP_N`
    pub user: String,
    /// Shared secret.
    pub secret: String,
    /// Permitted iSCSI names. If empty, any name that no other account currently uses.
    pub names: Vec<String>,
}

/// Accounts for login.
#[derive(Clone, Default)]
pub struct Accounts {
    /// Initiators; if empty, login needs no authentication.
    pub initiators: Vec<Account>,
    /// Account that authenticates this target to initiators (mutual CHAP).
    pub target: Option<Account>,
}

/// Addresses of the portal a client connected to.
#[derive(Clone, Default)]
pub struct Portal {
    /// Address the client used, `HOST:PORT`.
    pub here: String,
    /// All portal addresses.
    pub all: Vec<String>,
}

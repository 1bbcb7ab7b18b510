//! What is served, and to whom.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use cenote_disk::{Disk, Failure};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

/// Who a disk is, wherever it is served and whatever it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// A number that no other disk has.
    pub id: u64,
    /// Unit serial number: printable ASCII, at most 32 characters.
    pub serial: String,
    /// What people call it.
    pub name: String,
}

impl Identity {
    /// Of a disk that two numbers tell from all others.
    pub fn new(first: u64, second: u64, name: &str) -> Identity {
        let both = [first.to_be_bytes(), second.to_be_bytes()].concat();
        let hash = digest(&SHA256, &both);
        let id = hash.as_ref().iter().take(8).fold(0, |id, &byte| id << 8 | u64::from(byte));
        Identity { id, serial: format!("{id:016x}"), name: name.into() }
    }

    /// Its NAA designator: 3, locally assigned.
    pub fn naa(&self) -> u64 {
        3 << 60 | self.id >> 4
    }
}

/// A disk with what only SCSI asks for.
pub trait Unit: Disk + Any {
    /// Who it is.
    fn identity(&self) -> Identity;
    /// What was kept with it last.
    fn kept(&self) -> BoxFuture<'_, Result<Option<String>, Failure>>;
    /// Keeps a text with it, durably; none: forgets it.
    fn keep(&self, text: Option<String>) -> BoxFuture<'_, Result<(), Failure>>;

    /// Takes what a range of another disk, or of this one, has without copying it. Answers how many bytes
    /// from the range's start; 0: they must be copied.
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

/// All targets that a client may see.
pub trait Targets: Send + Sync {
    /// Their names.
    fn list(&self) -> BoxFuture<'_, Vec<String>>;

    /// The units of a target.
    ///
    /// # Errors
    /// There is no such target, or this client may not have one of its units.
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Units, Failure>>;
}

/// A name, and the secret by which it is known.
#[derive(Clone, Default)]
pub struct Account {
    /// `CHAP_N`
    pub user: String,
    /// What both sides know.
    pub secret: String,
    /// The iSCSI names under which it may come; none: any that no other account uses now.
    pub names: Vec<String>,
}

/// Who may log in.
#[derive(Clone, Default)]
pub struct Accounts {
    /// Initiators; if there are none, everybody may.
    pub initiators: Vec<Account>,
    /// Who this target says it is, to initiators that want to know.
    pub target: Option<Account>,
}

/// Where a client came in, and where others may.
#[derive(Clone, Default)]
pub struct Portal {
    /// The address that it used, `HOST:PORT`.
    pub here: String,
    /// All addresses.
    pub all: Vec<String>,
}

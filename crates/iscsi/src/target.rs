//! What is served, and to whom.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use cenote_disk::{Disk, Failure};
use futures::future::BoxFuture;

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
}

/// A disk with what only SCSI asks for.
pub trait Unit: Disk {
    /// Who it is.
    fn identity(&self) -> Identity;
    /// What was kept with it last.
    fn kept(&self) -> BoxFuture<'_, Result<Option<String>, Failure>>;
    /// Keeps a text with it, durably; none: forgets it.
    fn keep(&self, text: Option<String>) -> BoxFuture<'_, Result<(), Failure>>;
}

/// All targets that a client may see. Each has one logical unit, number 0.
pub trait Targets: Send + Sync {
    /// Their names.
    fn list(&self) -> BoxFuture<'_, Vec<String>>;

    /// The unit of a target.
    ///
    /// # Errors
    /// There is none, or this client may not have it.
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Unit>, Failure>>;
}

/// A name, and the secret by which it is known.
#[derive(Clone)]
pub struct Account {
    /// `CHAP_N`
    pub user: String,
    /// What both sides know.
    pub secret: String,
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

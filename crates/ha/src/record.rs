//! The record of a pool at the witness: whose turn it is.
//!
//! Idea: a change of the record is a tenure's beginning (new `epoch`), its renewal (new `seq`), a wish of
//! another machine, or its end. `life` is drawn by each owner, so no two contents are equal, and a machine
//! recognises its own record after an answer was lost.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The format of records.
const VERSION: u32 = 1;
/// Longest record read.
const RECORD_BYTES_MAX: usize = 64 << 10;
/// Bounds of a lease.
pub(crate) const LEASE_MIN: Duration = Duration::from_millis(500);
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(600);
/// Longest name of a machine.
pub(crate) const NODE_BYTES_MAX: usize = 64;

/// The record of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    /// The machine that has the pool.
    pub owner: Option<String>,
    /// Number of tenures so far.
    pub epoch: u64,
    /// Renewals of this one.
    pub seq: u64,
    /// Random number of this tenure.
    pub life: u64,
    /// Length of its lease.
    pub lease_ms: u64,
    /// The machine that shall have the pool next.
    #[serde(default)]
    pub wanted_by: Option<String>,
    /// The machine that let it go last: others come first.
    #[serde(default)]
    pub left_by: Option<String>,
    /// An administrator has exported the pool: nobody takes it.
    #[serde(default)]
    pub is_paused: bool,
    /// Guid of the pool, once it was opened.
    #[serde(default)]
    pub guid: Option<u64>,
    /// Guids of leaves that lack data.
    #[serde(default)]
    pub lacking: BTreeSet<u64>,
}

/// A record that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pool's record at the witness is not understood: {0}")]
pub struct BadRecord(String);

/// When a machine may take a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Now.
    Now,
    /// If the record stays unchanged for this long.
    After(Duration),
    /// Not before somebody changes the record.
    Never,
}

impl Record {
    /// The first record of a pool.
    pub fn first(node: &str, life: u64, lease: Duration) -> Record {
        Record {
            version: VERSION,
            owner: Some(node.into()),
            epoch: 1,
            seq: 0,
            life,
            lease_ms: lease.as_millis() as u64,
            wanted_by: None,
            left_by: None,
            is_paused: false,
            guid: None,
            lacking: BTreeSet::new(),
        }
    }

    /// The record of the next tenure of the same pool. Leaves go on lacking data.
    pub fn taken_by(&self, node: &str, life: u64, lease: Duration) -> Record {
        let first = Record::first(node, life, lease);
        Record {
            epoch: self.epoch.saturating_add(1),
            guid: self.guid,
            lacking: self.lacking.clone(),
            ..first
        }
    }

    /// The record after the owner has let the pool go.
    pub fn left(&self, next: Option<String>, is_paused: bool) -> Record {
        let seq = self.seq.saturating_add(1);
        let (left_by, wanted_by) = (self.owner.clone(), next);
        Record { owner: None, seq, left_by, wanted_by, is_paused, ..self.clone() }
    }

    /// The next record of this tenure.
    pub fn renewed(&self, lacking: BTreeSet<u64>) -> Record {
        Record { seq: self.seq.saturating_add(1), lacking, ..self.clone() }
    }

    /// The same record with a machine that shall have the pool next.
    pub fn wished_by(&self, node: &str) -> Record {
        Record { wanted_by: Some(node.into()), ..self.clone() }
    }

    /// Whether both are of one tenure.
    pub fn is_same_tenure(&self, other: &Record) -> bool {
        (self.epoch, self.life, &self.owner) == (other.epoch, other.life, &other.owner)
    }

    /// Length of the owner's lease.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// Time after which the owner is known to write no more.
    pub fn patience(&self) -> Duration {
        self.lease() * 9 / 8
    }

    /// When this machine may take the pool.
    pub fn turn_of(&self, node: &str) -> Turn {
        if self.is_paused {
            return Turn::Never;
        }
        if self.owner.is_some() {
            return Turn::After(self.patience());
        }
        match (&self.wanted_by, &self.left_by) {
            (Some(next), _) if next == node => Turn::Now,
            (None, Some(last)) if last != node => Turn::Now,
            (None, None) => Turn::Now,
            // The machine that comes first may be off.
            _ => Turn::After(self.lease() * 2),
        }
    }

    /// As it stands at the witness.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("it has no map with other keys than strings").into()
    }

    /// # Errors
    /// Not a record, or one of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Record, BadRecord> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(BadRecord(format!("it has {} bytes", bytes.len())));
        }
        let record: Record = serde_json::from_slice(bytes).map_err(|error| BadRecord(error.to_string()))?;
        let bad = |why: &str| Err(BadRecord(why.into()));
        let names = [&record.owner, &record.wanted_by, &record.left_by];
        if record.version != VERSION {
            return bad(&format!("it has version {}; this program knows {VERSION}", record.version));
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&record.lease()) {
            return bad("the lease is shorter than 500 ms, or longer than 10 min");
        }
        if names.into_iter().flatten().any(|name| !is_node_name(name)) {
            return bad("a machine's name");
        }
        Ok(record)
    }
}

/// Letters, digits, `.`, `-` and `_`.
pub(crate) fn is_node_name(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=NODE_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(3);

    #[test]
    fn turns_follow_from_the_record() {
        let mut owned = Record::first("a", 7, T);
        assert_eq!(owned.turn_of("b"), Turn::After(Duration::from_millis(3375)));
        // A daemon that was killed waits as the others do: another one may have its name.
        assert_eq!(owned.turn_of("a"), owned.turn_of("b"));
        owned.lacking = [5].into();
        let left = owned.left(None, false);
        assert_eq!((left.turn_of("b"), left.turn_of("a")), (Turn::Now, Turn::After(T * 2)));
        let wanted = owned.left(Some("c".into()), false);
        assert_eq!((wanted.turn_of("c"), wanted.turn_of("b")), (Turn::Now, Turn::After(T * 2)));
        assert_eq!(owned.left(None, true).turn_of("b"), Turn::Never);
        let next = left.taken_by("b", 8, T);
        assert_eq!((next.epoch, &next.lacking), (2, &[5].into()));
        assert!(!next.is_same_tenure(&owned) && owned.is_same_tenure(&owned.clone()));
        assert_eq!(Record::decode(&next.encode()).unwrap(), next);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let good = String::from_utf8(Record::first("a", 7, T).encode().to_vec()).unwrap();
        let long = vec![b' '; RECORD_BYTES_MAX + 1];
        for (bad, why) in [
            (good.replace("\"version\":1", "\"version\":2"), "version 2"),
            (good.replace("3000", "1"), "lease"),
            (good.replace("3000", "18446744073709551615"), "lease"),
            (good.replace("\"a\"", "\"a b\""), "name"),
            (good[..20].to_owned(), "EOF"),
            (String::from_utf8(long).unwrap(), "bytes"),
        ] {
            let error = Record::decode(bad.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}

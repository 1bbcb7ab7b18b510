//! FUID: a file owner, either POSIX or in a directory service's domain.
//!
//! Idea: Windows users have long identifiers (S-1-5-21-...-1104). A file stores the last number in bits
//! 0..32, and in bits 32..64 an index to the rest in a table of the file system; index 0 means a POSIX id.
//!
//! The table's object is a packed nvlist with its length as bonus. Array `fuid_nvlist` has an element
//! (`fuid_idx`, `fuid_domain`) per domain.
//!
//! Source: OpenZFS `zfs_fuid.c`.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{FormatError, Result};
use crate::nvlist::Nvlist;

/// Owner or group.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fuid(pub u64);

impl Fuid {
    /// Domain index; 0 for a POSIX id.
    pub fn domain_index(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Id within the domain, or POSIX id.
    pub fn id(self) -> u32 {
        self.0 as u32
    }

    /// POSIX id, if it is one.
    pub fn posix(self) -> Option<u32> {
        (self.domain_index() == 0).then(|| self.id())
    }
}

impl fmt::Display for Fuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.posix() {
            Some(id) => id.fmt(f),
            None => write!(f, "{}:{}", self.domain_index(), self.id()),
        }
    }
}

/// Domains of a file system.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FuidTable {
    domains: BTreeMap<u32, String>,
}

impl FuidTable {
    /// Decodes the content of the master node's object `FUID`.
    ///
    /// # Errors
    /// Not an nvlist, or one without domains.
    pub fn decode(packed: &[u8]) -> Result<FuidTable> {
        let missing = |why| FormatError::Corrupt { what: "FUID table", why };
        let list = Nvlist::decode(packed)?;
        let elements =
            list.get_nvlist_array("fuid_nvlist").ok_or_else(|| missing("has no list of domains"))?;
        let domain = |element: &Nvlist| {
            let index = element.get_u64("fuid_idx").and_then(|index| u32::try_from(index).ok());
            let domain =
                element.get_string_bytes("fuid_domain").map(|d| String::from_utf8_lossy(d).into_owned());
            index.zip(domain).ok_or_else(|| missing("has an element without index or domain"))
        };
        Ok(FuidTable { domains: elements.iter().map(domain).collect::<Result<_>>()? })
    }

    /// Domain of an index.
    pub fn domain(&self, index: u32) -> Option<&str> {
        self.domains.get(&index).map(String::as_str)
    }

    /// Full identifier (`S-1-5-...-id`), if the table has the domain.
    pub fn sid(&self, fuid: Fuid) -> Option<String> {
        Some(format!("{}-{}", self.domain(fuid.domain_index())?, fuid.id()))
    }
}

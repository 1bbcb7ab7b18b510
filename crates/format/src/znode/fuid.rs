//! FUID: the owner of a file, a POSIX number or one in a domain of a directory service.
//!
//! Idea: Windows names users by long identifiers (S-1-5-21-...-1104). A file stores the last number in bits
//! 0..32, and in bits 32..64 the index of the rest in a table that the file system keeps in an object of
//! its own; index 0 means a POSIX number.
//!
//! The table is a packed nvlist whose length is the word in the object's bonus. Its array `fuid_nvlist` has
//! an element (`fuid_idx`, `fuid_domain`) for each domain.
//!
//! Source: OpenZFS `zfs_fuid.c`.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{FormatError, Result};
use crate::nvlist::Nvlist;

/// An owner or group.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fuid(pub u64);

impl Fuid {
    /// Index of its domain; 0 for a POSIX number.
    pub fn domain_index(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The number within its domain, or the POSIX number.
    pub fn id(self) -> u32 {
        self.0 as u32
    }

    /// The POSIX number, if it is one.
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

/// The domains of a file system.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FuidTable {
    domains: BTreeMap<u32, String>,
}

impl FuidTable {
    /// Unpacks the content of the object named `FUID` in the master node.
    ///
    /// # Errors
    /// Bytes that are not an nvlist, or one without domains.
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

    /// The domain with this index.
    pub fn domain(&self, index: u32) -> Option<&str> {
        self.domains.get(&index).map(String::as_str)
    }

    /// The full identifier (`S-1-5-...-id`) of an owner whose domain is in the table.
    pub fn sid(&self, fuid: Fuid) -> Option<String> {
        Some(format!("{}-{}", self.domain(fuid.domain_index())?, fuid.id()))
    }
}

//! The trait of all policies, and their names.
//!
//! Idea: a policy sees blocks as numbers with a size and a class. It knows which blocks are resident
//! ([`Policy::touch`]). On a miss, the cache reads the block and passes it on ([`Policy::insert`]); the
//! policy names the blocks to evict. A policy may remember evicted blocks (ghosts).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::policies::{
    Arc2014, Arc2022, Belady, ClassicArc, Lirs, Lru, Patch, S3Fifo, Sieve, Switches, WTinyLfu,
};

/// A block's number: any practically collision-free function of its identity.
pub type BlockId = u64;

/// A block's content (`arc_buf_contents_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Class {
    /// Contents of files and volumes (`ARC_BUFC_DATA`).
    #[default]
    Data,
    /// Everything else (`ARC_BUFC_METADATA`).
    Metadata,
}

impl Class {
    /// Its name in traces.
    pub fn name(self) -> &'static str {
        match self {
            Class::Data => "data",
            Class::Metadata => "metadata",
        }
    }
}

/// `ARC_MINTIME`: uses of a block within a sixteenth of a second are one.
pub const ARC_MINTIME_NS: u64 = 62_000_000;

/// A request for a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The block.
    pub id: BlockId,
    /// Its size in the cache.
    pub bytes: u32,
    /// Its class.
    pub class: Class,
    /// Its time; policies only compare times.
    pub now_ns: u64,
    /// The position of the block's next access, for [`Belady`] only; `u64::MAX`: none or unknown.
    pub next_use: u64,
}

/// Chooses the blocks to keep.
pub trait Policy: Send {
    /// Uses a block. Returns whether it is resident.
    fn touch(&mut self, access: &Access) -> bool;

    /// Prefetches the data for these touches into the processor's cache. Changes nothing.
    fn expect(&self, accesses: &[Access]) {
        let _ = accesses;
    }

    /// Adds a missing block that was read, which must not be resident. Adds to `evicted` the blocks to evict,
    /// perhaps this one.
    fn insert(&mut self, access: &Access, evicted: &mut Vec<BlockId>);

    /// Forgets a freed or overwritten block, with its ghost.
    fn remove(&mut self, id: BlockId);

    /// Changes the cache's size.
    fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<BlockId>);

    /// Bytes of all resident blocks.
    fn resident_bytes(&self) -> u64;

    /// The policy's adaptive values by name: sizes of lists and targets in bytes.
    fn gauges(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// A policy by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&str")]
#[allow(missing_docs)] // the names say it; `PolicyName::about` says more
pub enum PolicyName {
    Lru,
    Arc,
    Zol062,
    Zol063,
    OpenZfs,
    S3Fifo,
    Sieve,
    WTinyLfu,
    Lirs,
    Belady,
    Patched(Patch),
}

impl PolicyName {
    /// All except those with single patches of 2014, in display order.
    pub const ALL: [PolicyName; 10] = [
        PolicyName::Lru,
        PolicyName::Arc,
        PolicyName::Zol062,
        PolicyName::Zol063,
        PolicyName::OpenZfs,
        PolicyName::S3Fifo,
        PolicyName::Sieve,
        PolicyName::WTinyLfu,
        PolicyName::Lirs,
        PolicyName::Belady,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            PolicyName::Lru => "lru",
            PolicyName::Arc => "arc",
            PolicyName::Zol062 => "zol-0.6.2",
            PolicyName::Zol063 => "zol-0.6.3",
            PolicyName::OpenZfs => "openzfs-2.3",
            PolicyName::S3Fifo => "s3-fifo",
            PolicyName::Sieve => "sieve",
            PolicyName::WTinyLfu => "w-tinylfu",
            PolicyName::Lirs => "lirs",
            PolicyName::Belady => "belady",
            PolicyName::Patched(patch) => patch.name(),
        }
    }

    /// Parses a policy that a real cache can use.
    ///
    /// # Errors
    /// Unknown name, or it needs the future.
    pub fn living(text: &str) -> Result<PolicyName, BadPolicy> {
        match text.parse()? {
            PolicyName::Belady => Err(BadPolicy::NeedsFuture),
            name => Ok(name),
        }
    }

    /// A short description.
    pub fn about(self) -> &'static str {
        match self {
            PolicyName::Lru => "least recently used",
            PolicyName::Arc => "the ARC of the paper (Megiddo and Modha, 2003)",
            PolicyName::Zol062 => "ZFS on Linux 0.6.2, before the ARC patches of 2014",
            PolicyName::Zol063 => "ZFS on Linux 0.6.3, with them",
            PolicyName::OpenZfs => "OpenZFS since 2.2: balances data and metadata, recent and frequent",
            PolicyName::S3Fifo => "three FIFO queues (Yang et al., 2023)",
            PolicyName::Sieve => "one FIFO queue with a moving hand (Zhang et al., 2024)",
            PolicyName::WTinyLfu => "an LRU window before an LFU filter (Einziger et al., 2017)",
            PolicyName::Lirs => "by the distance between a block's two last uses (Jiang and Zhang, 2002)",
            PolicyName::Belady => "knows the future: the bound for all others",
            PolicyName::Patched(patch) => patch.about(),
        }
    }

    /// The policy, with an empty cache. Sketches are sized by the estimate `mean_block_bytes`.
    pub fn build(self, capacity_bytes: u64, mean_block_bytes: u64) -> Box<dyn Policy> {
        match self {
            PolicyName::Lru => Box::new(Lru::new(capacity_bytes)),
            PolicyName::Arc => Box::new(ClassicArc::new(capacity_bytes)),
            PolicyName::Zol062 => Box::new(Arc2014::new(capacity_bytes, Switches::ZOL_0_6_2)),
            PolicyName::Zol063 => Box::new(Arc2014::new(capacity_bytes, Switches::ZOL_0_6_3)),
            PolicyName::OpenZfs => Box::new(Arc2022::new(capacity_bytes)),
            PolicyName::S3Fifo => Box::new(S3Fifo::new(capacity_bytes)),
            PolicyName::Sieve => Box::new(Sieve::new(capacity_bytes)),
            PolicyName::WTinyLfu => Box::new(WTinyLfu::new(capacity_bytes, mean_block_bytes)),
            PolicyName::Lirs => Box::new(Lirs::new(capacity_bytes)),
            PolicyName::Belady => Box::new(Belady::new(capacity_bytes)),
            PolicyName::Patched(patch) => Box::new(Arc2014::new(capacity_bytes, patch.switches())),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name is not that of a usable policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    /// Unknown name.
    #[error("no cache policy {text:?}; there are {}", PolicyName::ALL.map(PolicyName::name).join(", "))]
    Unknown {
        /// The name given.
        text: String,
    },
    /// Usable in replays only.
    #[error("`belady` needs the future: it is for `cenote trace replay`")]
    NeedsFuture,
}

impl TryFrom<String> for PolicyName {
    type Error = BadPolicy;

    fn try_from(text: String) -> Result<PolicyName, BadPolicy> {
        text.parse()
    }
}

impl From<PolicyName> for &str {
    fn from(name: PolicyName) -> &'static str {
        name.name()
    }
}

impl FromStr for PolicyName {
    type Err = BadPolicy;

    fn from_str(text: &str) -> Result<PolicyName, BadPolicy> {
        let patched = Patch::ALL.map(PolicyName::Patched);
        let named = PolicyName::ALL.into_iter().chain(patched).find(|name| name.name() == text);
        named.ok_or_else(|| BadPolicy::Unknown { text: text.to_owned() })
    }
}

//! The trait of all policies, and their names.
//!
//! Idea: a policy sees blocks as numbers with a size and a class. It says whether a block is resident
//! ([`Policy::touch`]); on a miss the cache reads the block and hands it over ([`Policy::insert`]), and the
//! policy names the blocks that have to go. What a policy remembers of blocks that went (ghosts) is its own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::policies::{
    Arc2014, Arc2022, Belady, ClassicArc, Lirs, Lru, Patch, S3Fifo, Sieve, Switches, WTinyLfu,
};

/// A block's number: any function of its identity without collisions in practice.
pub type BlockId = u64;

/// What a block holds (`arc_buf_contents_t`).
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

/// `ARC_MINTIME`: uses of a block that follow each other within a sixteenth of a second are one.
pub const ARC_MINTIME_NS: u64 = 62_000_000;

/// One wish for a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The block.
    pub id: BlockId,
    /// Its size in the cache.
    pub bytes: u32,
    /// What it holds.
    pub class: Class,
    /// When; policies only compare.
    pub now_ns: u64,
    /// The position of the block's next access, for [`Belady`] only; `u64::MAX`: none, or not known.
    pub next_use: u64,
}

/// Decides which blocks stay.
pub trait Policy: Send {
    /// A reader wants a block. Returns whether it is resident.
    fn touch(&mut self, access: &Access) -> bool;

    /// These will be touched one after the other: brings what that takes into the processor's cache, for all
    /// of them at once. Changes nothing.
    fn expect(&self, accesses: &[Access]) {
        let _ = accesses;
    }

    /// A missing block has been read. Adds to `evicted` the blocks that must go, possibly this one. The
    /// block must not be resident.
    fn insert(&mut self, access: &Access, evicted: &mut Vec<BlockId>);

    /// A block is gone (freed, or overwritten): forgets it, ghosts included.
    fn remove(&mut self, id: BlockId);

    /// Changes the size of the cache.
    fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<BlockId>);

    /// Bytes of all resident blocks.
    fn resident_bytes(&self) -> u64;

    /// What the policy adapts, by name: sizes of lists and targets in bytes.
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
    /// All but those with a single patch of 2014, in the order in which they are shown.
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

    /// A policy that a living cache can go by.
    ///
    /// # Errors
    /// There is none of that name, or it would have to know the future.
    pub fn living(text: &str) -> Result<PolicyName, BadPolicy> {
        match text.parse()? {
            PolicyName::Belady => Err(BadPolicy::NeedsFuture),
            name => Ok(name),
        }
    }

    /// What it is, in a few words.
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

    /// The policy, with an empty cache. `mean_block_bytes` is an estimate, by which sketches are sized.
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

/// Why a name is not that of a policy to go by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    /// There is none of that name.
    #[error("no cache policy {text:?}; there are {}", PolicyName::ALL.map(PolicyName::name).join(", "))]
    Unknown {
        /// What was asked for.
        text: String,
    },
    /// No living cache can go by it.
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

//! Rewrites blocks that would lie elsewhere or take less space if written today.
//!
//! Idea: new vdevs and properties apply to later writes only. A survey counts, for each [`Aim`], the blocks
//! of live datasets that a rewrite would change (`choice`). The work walks the pointers again, a window at a
//! time, and rewrites those blocks through the writers of mounts and volumes.
//!
//! Metadata move with their content: an indirect block with one data block below (128 KiB move the pointers
//! of 128 MiB), a dnode block with one dnode.
//!
//! Blocks of snapshots and clones stay unless asked for, deduplicated ones always.
//!
//! Memory: a window of pointers, and [`sample::SAMPLES`] places a dataset.
//!
//! Source: OpenZFS 2.4 zfs-rewrite(8).

mod choice;
mod sample;
mod survey;
mod work;

use cenote_format::units::VdevId;
use cenote_pool::VdevClass;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use survey::{Plan, fills, survey};
pub use work::{Work, rebalance};

/// What a rewrite is to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Aim {
    /// Metadata and small blocks move to special vdevs.
    Special,
    /// Blocks on RAID-Z vdevs are stored across devices attached since.
    NewWidth,
    /// Blocks are compressed as property `compression` says now.
    Compression,
    /// Vdevs fuller than the average give blocks to the others.
    NewVdevs,
}

impl Aim {
    /// All.
    pub const ALL: [Aim; 4] = [Aim::Special, Aim::NewWidth, Aim::Compression, Aim::NewVdevs];

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Aim::Special => "special",
            Aim::NewWidth => "new-width",
            Aim::Compression => "compression",
            Aim::NewVdevs => "new-vdevs",
        }
    }
}

/// What to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Aims, each once.
    pub aims: Vec<Aim>,
    /// Also blocks that snapshots or clones have, too.
    pub shared: bool,
}

/// What a rewrite would change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Survey {
    /// Datasets looked at.
    pub datasets: u64,
    /// Datasets without their key, which can't be rewritten.
    pub without_key: Vec<String>,
    /// Per aim, in the order of [`Aim::ALL`].
    pub gains: Vec<Gain>,
    /// Vdevs that store data.
    pub vdevs: Vec<Fill>,
    /// Files with several blocks whose size is not the `recordsize` of their file system. A rewrite does not
    /// change it; a copy of the file has the new one.
    pub other_record_sizes: u64,
}

/// Blocks that a rewrite for an aim would change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gain {
    /// Aim.
    pub aim: Aim,
    /// Data blocks, and blocks of metadata.
    pub blocks: u64,
    /// Their allocated bytes.
    pub bytes: u64,
    /// Of these, bytes that snapshots or clones have, too: only rewritten if asked for, and then stored
    /// twice.
    pub held_bytes: u64,
    /// Bytes that would be free afterwards, as far as it can be told; estimated from samples for compression.
    pub saved_bytes: u64,
}

impl Gain {
    pub(crate) fn none(aim: Aim) -> Gain {
        Gain { aim, blocks: 0, bytes: 0, held_bytes: 0, saved_bytes: 0 }
    }

    pub(crate) fn add(&mut self, more: &Gain) {
        self.blocks += more.blocks;
        self.bytes += more.bytes;
        self.held_bytes += more.held_bytes;
        self.saved_bytes += more.saved_bytes;
    }
}

/// Space of a top-level vdev.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fill {
    /// Number.
    pub vdev: VdevId,
    /// Name: `mirror-0`.
    pub name: String,
    /// Class.
    pub class: VdevClass,
    /// Whole metaslabs.
    pub size_bytes: u64,
    /// Allocated.
    pub allocated_bytes: u64,
}

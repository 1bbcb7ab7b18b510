//! Kinds and allocation classes of vdevs.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of a vdev, `VDEV_TYPE_*`.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VdevKind {
    /// Pool root: parent of all top-level vdevs.
    Root,
    /// Every child holds the same data.
    Mirror,
    /// Mirror of a disk and its replacement, until the replacement is resilvered.
    Replacing,
    /// Striped with one to three parity columns of variable width.
    Raidz,
    /// Declustered RAID: fixed-width groups permuted over all children, with distributed spares.
    Draid,
    /// Spare distributed over a dRAID's children, `draid1-0-0`.
    DistributedSpare,
    /// Block device.
    Disk,
    /// File.
    File,
    /// Top-level vdev known only by index or guid.
    #[default]
    Missing,
    /// Gap left in the numbering by a removed log device.
    Hole,
    /// Mirror of a disk and its active hot spare.
    Spare,
    /// Removed vdev: a map to the new locations of its blocks.
    Indirect,
    /// Type that OpenZFS 2.3 does not store, as spelled.
    Unknown(String),
}

const NAMES: [(VdevKind, &str); 12] = [
    (VdevKind::Root, "root"),
    (VdevKind::Mirror, "mirror"),
    (VdevKind::Replacing, "replacing"),
    (VdevKind::Raidz, "raidz"),
    (VdevKind::Draid, "draid"),
    (VdevKind::DistributedSpare, "dspare"),
    (VdevKind::Disk, "disk"),
    (VdevKind::File, "file"),
    (VdevKind::Missing, "missing"),
    (VdevKind::Hole, "hole"),
    (VdevKind::Spare, "spare"),
    (VdevKind::Indirect, "indirect"),
];

impl VdevKind {
    /// Parses an on-disk name.
    pub fn from_name(name: &str) -> VdevKind {
        let known = NAMES.iter().find(|(_, known)| *known == name);
        known.map_or_else(|| VdevKind::Unknown(name.to_owned()), |(kind, _)| kind.clone())
    }

    /// Whether a top-level vdev of this kind holds blocks; the rest reserve a number or redirect.
    pub fn holds_data(&self) -> bool {
        !matches!(self, VdevKind::Indirect | VdevKind::Hole | VdevKind::Missing)
    }

    /// On-disk name.
    pub fn name(&self) -> &str {
        if let VdevKind::Unknown(name) = self {
            return name;
        }
        NAMES.iter().find(|(known, _)| known == self).map_or("", |(_, name)| name)
    }
}

impl fmt::Display for VdevKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Allocation class of a top-level vdev, `VDEV_ALLOC_BIAS_*`.
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum VdevClass {
    /// Data, and blocks without a better class.
    #[default]
    Normal,
    /// Separate intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Deduplication tables.
    Dedup,
}

impl VdevClass {
    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            VdevClass::Normal => "normal",
            VdevClass::Log => "log",
            VdevClass::Special => "special",
            VdevClass::Dedup => "dedup",
        }
    }

    /// Class by its name in the vdev's ZAP; vdevs without one are normal.
    pub fn from_name(name: &str) -> Option<VdevClass> {
        match name {
            "log" => Some(VdevClass::Log),
            "special" => Some(VdevClass::Special),
            "dedup" => Some(VdevClass::Dedup),
            _ => None,
        }
    }
}

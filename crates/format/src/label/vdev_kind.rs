//! What a vdev is, and which blocks it is for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of a vdev, `VDEV_TYPE_*`.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VdevKind {
    /// The parent of all top-level vdevs: the pool itself.
    Root,
    /// Every child holds the same data.
    Mirror,
    /// A mirror of a disk and its replacement, while the replacement is filled.
    Replacing,
    /// Striped with one to three parity columns of variable width.
    Raidz,
    /// Declustered RAID: groups of fixed width permuted over all children, spares distributed.
    Draid,
    /// A spare distributed over the children of a dRAID, `draid1-0-0`.
    DistributedSpare,
    /// A block device.
    Disk,
    /// A file.
    File,
    /// A top-level vdev of which only the index or the guid is known.
    #[default]
    Missing,
    /// The gap that a removed log device leaves in the numbering.
    Hole,
    /// A mirror of a disk and the hot spare that stands in for it.
    Spare,
    /// The remains of a removed vdev: a map to where its blocks went.
    Indirect,
    /// A type that OpenZFS 2.3 does not store, as spelled.
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
    /// The kind of that name.
    pub fn from_name(name: &str) -> VdevKind {
        let known = NAMES.iter().find(|(_, known)| *known == name);
        known.map_or_else(|| VdevKind::Unknown(name.to_owned()), |(kind, _)| kind.clone())
    }

    /// Whether blocks lie on a top-level vdev of this kind; others only keep a number or redirect
    /// elsewhere.
    pub fn holds_data(&self) -> bool {
        !matches!(self, VdevKind::Indirect | VdevKind::Hole | VdevKind::Missing)
    }

    /// The name on disk.
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

/// The allocation class of a top-level vdev, `VDEV_ALLOC_BIAS_*`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VdevClass {
    /// Data, and everything else for which there is no better class.
    #[default]
    Normal,
    /// A separate intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Deduplication tables.
    Dedup,
}

impl VdevClass {
    /// The class in one word, for people.
    pub fn name(self) -> &'static str {
        match self {
            VdevClass::Normal => "normal",
            VdevClass::Log => "log",
            VdevClass::Special => "special",
            VdevClass::Dedup => "dedup",
        }
    }

    /// The class of that name, as in the vdev's ZAP; vdevs without one are normal.
    pub fn from_name(name: &str) -> Option<VdevClass> {
        match name {
            "log" => Some(VdevClass::Log),
            "special" => Some(VdevClass::Special),
            "dedup" => Some(VdevClass::Dedup),
            _ => None,
        }
    }
}

//! What verification found, as typed values: each with a severity, a sentence and a structured form.

use std::fmt;

use super::counts::Counts;
use super::extent::Extent;
use super::owner::Owner;
use super::space::ClassSpace;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Space is wasted; nothing is lost or in danger.
    Notice,
    /// Another copy or parity has the data: a scrub repairs it.
    Repairable,
    /// Data will be overwritten by ordinary use.
    Danger,
    /// Data is lost.
    Lost,
}

/// What is wrong with a piece of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// The device failed to read it.
    Unreadable,
    /// It is not what was written.
    Checksum,
    /// A parity column does not fit its data.
    Parity,
    /// A whole copy can't be read or rebuilt.
    Lost,
}

/// A bad copy or column of a block.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BadPiece {
    /// The top-level vdev of the copy.
    pub vdev: u64,
    /// The device, if one is to blame: its path.
    pub device: Option<String>,
    /// Byte offset on that device, labels included; without a device, on the top-level vdev.
    pub offset_bytes: u64,
    /// Bytes there.
    pub len_bytes: u64,
    /// What is wrong.
    pub fault: FaultKind,
}

/// A block with bad copies or columns.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BadBlock {
    /// No copy is left.
    pub lost: bool,
    /// Whose it is, and what depends on it.
    pub owner: Owner,
    /// Bytes as the owner sees it.
    pub logical_bytes: u64,
    /// The group it was born in.
    pub birth_txg: u64,
    /// What is wrong where.
    pub pieces: Vec<BadPiece>,
}

/// Something that verification found.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "finding", rename_all = "kebab-case")]
pub enum Finding {
    /// A block that is damaged on disk.
    Block(BadBlock),
    /// A structure with the right checksum that makes no sense.
    Structure {
        /// Whose it is.
        owner: Owner,
        /// What is wrong.
        why: String,
    },
    /// Space that is allocated and belongs to nothing.
    Leaked(Extent),
    /// Space that belongs to something and is marked free: the next write may take it.
    NotAllocated(Extent),
    /// Space that belongs to two blocks.
    DoublyAllocated(Extent),
    /// A pointer to a place that no vdev has.
    BadAddress {
        /// Whose pointer it is.
        owner: Owner,
        /// What is wrong.
        why: String,
    },
    /// A space map, list or table that can't be used; what depends on it was not checked.
    Unchecked {
        /// Which.
        what: String,
        /// Why not.
        why: String,
    },
}

impl Finding {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        match self {
            Finding::Block(block) if block.lost => Severity::Lost,
            Finding::Block(_) => Severity::Repairable,
            Finding::Structure { .. } | Finding::BadAddress { .. } => Severity::Lost,
            Finding::NotAllocated(_) | Finding::DoublyAllocated(_) | Finding::Unchecked { .. } => {
                Severity::Danger
            }
            Finding::Leaked(_) => Severity::Notice,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |f: &mut fmt::Formatter<'_>, r: &Extent| {
            write!(f, "vdev {} offset {:#x}, {} bytes", r.vdev, r.offset_bytes, r.len_bytes)
        };
        match self {
            Finding::Block(block) => block.fmt(f),
            Finding::Structure { owner, why } => write!(f, "{owner}: does not make sense: {why}"),
            Finding::Leaked(extent) => {
                f.write_str("leaked: ")?;
                range(f, extent)?;
                f.write_str(" are allocated and belong to nothing")
            }
            Finding::NotAllocated(extent) => {
                f.write_str("not allocated: ")?;
                range(f, extent)?;
                f.write_str(" are in use and marked free: don't import the pool for writing before its data is copied")
            }
            Finding::DoublyAllocated(extent) => {
                f.write_str("doubly allocated: ")?;
                range(f, extent)?;
                f.write_str(" belong to more than one block")
            }
            Finding::BadAddress { owner, why } => write!(f, "{owner}: points nowhere: {why}"),
            Finding::Unchecked { what, why } => write!(f, "{what} could not be checked: {why}"),
        }
    }
}

impl fmt::Display for BadBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if self.lost { "lost" } else { "damaged, repairable" };
        write!(f, "{}: {outcome}:", self.owner)?;
        for (i, piece) in self.pieces.iter().enumerate() {
            let what = match piece.fault {
                FaultKind::Unreadable => "read error",
                FaultKind::Checksum => "wrong data",
                FaultKind::Parity => "wrong parity",
                FaultKind::Lost => "no readable copy",
            };
            f.write_str(if i == 0 { " " } else { ", " })?;
            match &piece.device {
                Some(device) => write!(f, "{what} on {device} at {:#x}", piece.offset_bytes)?,
                None => write!(f, "{what} at {}:{:x}", piece.vdev, piece.offset_bytes)?,
            }
            write!(f, " ({} bytes)", piece.len_bytes)?;
        }
        Ok(())
    }
}

/// What one device has of the damage.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DeviceDamage {
    /// Its path, or guid if it has none.
    pub device: String,
    /// Pieces that it failed to read.
    pub unreadable: u64,
    /// Pieces of data that are not what was written.
    pub checksum: u64,
    /// Parity columns that don't fit.
    pub parity: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// A device that does not hold all it should.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LaggingDevice {
    /// Its path, or guid if it has none.
    pub device: String,
    /// The transaction groups that it is known to miss: the first and the last of each run.
    pub missing_txgs: Vec<(u64, u64)>,
}

impl fmt::Display for LaggingDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lags behind", self.device)?;
        for (i, (first, last)) in self.missing_txgs.iter().enumerate() {
            f.write_str(if i == 0 { ": it misses txgs " } else { ", " })?;
            match first == last {
                true => write!(f, "{first}")?,
                false => write!(f, "{first} to {last}")?,
            }
        }
        Ok(())
    }
}

/// Space as referenced and as allocated.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SpaceSums {
    /// Whether space was compared at all.
    pub checked: bool,
    /// Bytes allocated and not referenced.
    pub leaked_bytes: u64,
    /// Bytes referenced and not allocated.
    pub not_allocated_bytes: u64,
    /// Bytes that belong to more than one block.
    pub doubly_allocated_bytes: u64,
    /// Space by class.
    pub classes: Vec<ClassSpace>,
}

/// The result of a verification.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize)]
pub struct VerifyReport {
    /// The pool's name.
    pub pool: String,
    /// Its name for life.
    pub guid: u64,
    /// The transaction group that was verified.
    pub txg: u64,
    /// Everything was verified; otherwise it was stopped, and this is what was found until then.
    pub complete: bool,
    /// What was met.
    pub counts: Counts,
    /// Blocks whose copies were all read.
    pub verified_blocks: u64,
    /// Their space on the vdevs, each block once.
    pub verified_bytes: u64,
    /// Blocks of which no copy is left.
    pub lost_blocks: u64,
    /// Damaged blocks that can be repaired from another copy or parity.
    pub repairable_blocks: u64,
    /// Damage by device.
    pub devices: Vec<DeviceDamage>,
    /// Devices that were away, are out of use or being filled: what they lack is no finding, since a resilver
    /// brings it.
    pub lagging_devices: Vec<LaggingDevice>,
    /// The findings, worst first, as many as were asked for.
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub more_findings: u64,
    /// Space.
    pub space: SpaceSums,
    /// Nanoseconds that it took.
    pub elapsed_ns: u64,
}

impl VerifyReport {
    /// Nothing at all was found wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
            && self.more_findings == 0
            && self.lost_blocks == 0
            && self.repairable_blocks == 0
    }
}

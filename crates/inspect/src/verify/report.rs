//! The results of verification as typed values: each with a severity, a sentence and a structured form.

use std::fmt;

use super::counts::Counts;
use super::extent::Extent;
use super::owner::Owner;
use super::redundancy::WeakVdev;
use super::space::ClassSpace;

/// The severity of a finding.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Space is wasted; nothing is lost or in danger.
    Notice,
    /// Another copy or parity has the data: a scrub repairs it.
    Repairable,
    /// Nothing is lost, but redundancy is gone.
    Degraded,
    /// Normal use will overwrite data.
    Danger,
    /// Data is lost.
    Lost,
}

/// The fault of a copy or column of a block.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// The device failed to read it.
    Unreadable,
    /// It failed verification.
    Checksum,
    /// A parity column does not match its data.
    Parity,
    /// A whole copy can't be read or reconstructed.
    Lost,
}

/// A bad copy or column of a block.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct BadPiece {
    /// The top-level vdev of the copy.
    pub vdev: u64,
    /// The path of the device to blame, if there is one.
    pub device: Option<String>,
    /// Byte offset on that device, including labels; without a device, on the top-level vdev.
    pub offset_bytes: u64,
    /// Its size in bytes.
    pub len_bytes: u64,
    /// The fault.
    pub fault: FaultKind,
}

/// A block with bad copies or columns.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct BadBlock {
    /// No copy is left.
    pub lost: bool,
    /// Its owner and the data that depends on it.
    pub owner: Owner,
    /// Logical size in bytes.
    pub logical_bytes: u64,
    /// Its birth txg.
    pub birth_txg: u64,
    /// The bad copies and columns.
    pub pieces: Vec<BadPiece>,
}

/// A finding of a verification.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(tag = "finding", rename_all = "kebab-case")]
pub enum Finding {
    /// A block that is damaged on disk.
    Block(BadBlock),
    /// An invalid structure with a valid checksum.
    Structure {
        /// Its owner.
        owner: Owner,
        /// The defect.
        why: String,
    },
    /// A vdev with less redundancy than it was created with.
    Redundancy(WeakVdev),
    /// Allocated space that nothing references.
    Leaked(Extent),
    /// Referenced space that is marked free: the next write may overwrite it.
    NotAllocated(Extent),
    /// Space that belongs to two blocks.
    DoublyAllocated(Extent),
    /// A pointer to an address that does not exist.
    BadAddress {
        /// The owner of the pointer.
        owner: Owner,
        /// The defect.
        why: String,
    },
    /// An unusable space map, list or table; the structures that depend on it were not checked.
    Unchecked {
        /// Its name.
        what: String,
        /// The reason.
        why: String,
    },
}

impl Finding {
    /// Its severity.
    pub fn severity(&self) -> Severity {
        match self {
            Finding::Block(block) if block.lost => Severity::Lost,
            Finding::Block(_) => Severity::Repairable,
            Finding::Structure { .. } | Finding::BadAddress { .. } => Severity::Lost,
            Finding::NotAllocated(_) | Finding::DoublyAllocated(_) | Finding::Unchecked { .. } => {
                Severity::Danger
            }
            Finding::Redundancy(_) => Severity::Degraded,
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
            Finding::Structure { owner, why } => write!(f, "{owner}: is invalid: {why}"),
            Finding::Redundancy(vdev) => vdev.fmt(f),
            Finding::Leaked(extent) => {
                f.write_str("leaked: ")?;
                range(f, extent)?;
                f.write_str(" are allocated but not referenced")
            }
            Finding::NotAllocated(extent) => {
                f.write_str("not allocated: ")?;
                range(f, extent)?;
                f.write_str(
                    " are in use but marked free: don't import the pool for writing before its data is \
                     copied",
                )
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

/// One device's share of the damage.
#[derive(
    Debug, Default, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct DeviceDamage {
    /// Its path, or guid if it has none.
    pub device: String,
    /// Pieces that it failed to read.
    pub unreadable: u64,
    /// Data that failed verification.
    pub checksum: u64,
    /// Parity columns that do not match.
    pub parity: u64,
    /// Their total bytes.
    pub bytes: u64,
}

/// A device that lacks data.
#[derive(
    Debug, Default, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct LaggingDevice {
    /// Its path, or guid if it has none.
    pub device: String,
    /// The txgs that it is known to miss: the first and last of each run.
    pub missing_txgs: Vec<(u64, u64)>,
}

impl fmt::Display for LaggingDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lags behind", self.device)?;
        match self.missing_txgs.is_empty() {
            true => Ok(()),
            false => write!(f, ": it misses {}", txgs(self.missing_txgs.iter().copied())),
        }
    }
}

/// Runs of txgs: `txgs 4 to 25, 30`.
pub(super) fn txgs(runs: impl Iterator<Item = (u64, u64)>) -> String {
    let run = |(first, last)| if first == last { format!("{first}") } else { format!("{first} to {last}") };
    format!("txgs {}", runs.map(run).collect::<Vec<_>>().join(", "))
}

/// Damage in one dataset. A block that several datasets share counts in the oldest.
#[derive(
    Debug, Default, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct DatasetDamage {
    /// Its name; `None` for the pool's own metadata (the MOS).
    pub dataset: Option<String>,
    /// Blocks without a readable copy.
    pub lost_blocks: u64,
    /// Damaged blocks that another copy or parity can repair.
    pub repairable_blocks: u64,
}

/// Comparison of referenced and allocated space.
#[derive(
    Debug, Default, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct SpaceSums {
    /// Whether all space was compared.
    pub checked: bool,
    /// The number of vdevs compared. The sums below cover these.
    pub compared_vdevs: u64,
    /// Bytes allocated but not referenced.
    pub leaked_bytes: u64,
    /// Bytes referenced but not allocated.
    pub not_allocated_bytes: u64,
    /// Bytes that belong to more than one block.
    pub doubly_allocated_bytes: u64,
    /// Space by class.
    pub classes: Vec<ClassSpace>,
}

/// The result of a verification.
#[derive(
    Debug, Default, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct VerifyReport {
    /// The pool's name.
    pub pool: String,
    /// The pool's guid.
    pub guid: u64,
    /// The transaction group that was verified.
    pub txg: u64,
    /// Whether everything was verified; otherwise it was stopped and this is the partial result.
    pub complete: bool,
    /// Stopped because the pool, in use, needed space freed since the start.
    pub overtaken: bool,
    /// Counts of blocks.
    pub counts: Counts,
    /// Blocks whose copies were all read.
    pub verified_blocks: u64,
    /// Their space on the vdevs, each block counted once.
    pub verified_bytes: u64,
    /// Blocks without a readable copy.
    pub lost_blocks: u64,
    /// Damaged blocks that another copy or parity can repair.
    pub repairable_blocks: u64,
    /// Damage by dataset, most damaged first.
    pub datasets: Vec<DatasetDamage>,
    /// Damage by device.
    pub devices: Vec<DeviceDamage>,
    /// Devices that were absent, are out of use or are being resilvered: not a finding, since a resilver
    /// restores their data.
    pub lagging_devices: Vec<LaggingDevice>,
    /// The findings, worst first, up to the requested number.
    pub findings: Vec<Finding>,
    /// The number of further findings.
    pub more_findings: u64,
    /// The comparison of space.
    pub space: SpaceSums,
    /// Duration in nanoseconds.
    pub elapsed_ns: u64,
}

impl VerifyReport {
    /// Whether no problem of any kind was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
            && self.more_findings == 0
            && self.lost_blocks == 0
            && self.repairable_blocks == 0
    }
}

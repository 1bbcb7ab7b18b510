//! A file system or volume: the properties that matter for speed and safety, and what was done to it.

use super::Counters;
use super::read::Properties;

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatasetKind {
    /// A file system, with its `recordsize` in bytes.
    Filesystem(u64),
    /// A volume, with its `volblocksize` in bytes.
    Volume(u64),
}

/// A file system or volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Its name, with the pool's.
    pub name: String,
    /// What it is, and the size of its blocks.
    pub kind: DatasetKind,
    /// `standard`, `always` or `disabled`.
    pub sync: String,
    /// `latency` or `throughput`.
    pub logbias: String,
    /// `off`, `lz4`, `zstd`...
    pub compression: String,
    /// Bytes before compression for each byte after it; 1.0 without.
    pub compress_ratio: f64,
    /// Blocks of at most so many bytes go to the special class; 0: none.
    pub special_small_bytes: u64,
    /// Bytes that its own data use (without snapshots, children and reservations).
    pub used_by_itself_bytes: u64,
    /// Bytes before compression.
    pub logical_used_bytes: u64,
    /// What it counted since it was mounted: `reads`, `nread`, `writes`, `nwritten`, `zil_commit_count`... (`objset-*`).
    pub counters: Option<Counters>,
}

impl Dataset {
    /// From `zfs get -Hp all`; None if it is neither file system nor volume.
    pub(super) fn from_properties(name: &str, properties: &Properties) -> Option<Dataset> {
        let number = |property: &str| properties.number(name, property);
        let word = |property: &str| properties.text(name, property).unwrap_or_default().to_owned();
        let kind = match properties.text(name, "type")? {
            "filesystem" => DatasetKind::Filesystem(number("recordsize")?),
            "volume" => DatasetKind::Volume(number("volblocksize")?),
            _ => return None,
        };
        let ratio = properties.text(name, "compressratio").map(|ratio| ratio.trim_end_matches('x'));
        Some(Dataset {
            name: name.to_owned(),
            kind,
            sync: word("sync"),
            logbias: word("logbias"),
            compression: word("compression"),
            compress_ratio: ratio.and_then(|ratio| ratio.parse().ok()).unwrap_or(1.0_f64).max(1.0),
            special_small_bytes: number("special_small_blocks").unwrap_or(0),
            used_by_itself_bytes: number("usedbydataset").unwrap_or(0),
            logical_used_bytes: number("logicalused").unwrap_or(0),
            counters: None,
        })
    }

    /// Bytes of its blocks, before compression: of files that have more than one.
    pub fn block_bytes(&self) -> u64 {
        match self.kind {
            DatasetKind::Filesystem(bytes) | DatasetKind::Volume(bytes) => bytes,
        }
    }

    /// The property that says how large its blocks are.
    pub fn block_property(&self) -> &'static str {
        match self.kind {
            DatasetKind::Filesystem(_) => "recordsize",
            DatasetKind::Volume(_) => "volblocksize",
        }
    }
}

//! A file system or volume: the properties that matter for speed and safety, and its activity.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Counters, Properties};

/// Kind and block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatasetKind {
    /// A file system, with its `recordsize` in bytes.
    Filesystem(u64),
    /// A volume, with its `volblocksize` in bytes.
    Volume(u64),
}

/// A file system or volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dataset {
    /// Full name, with the pool's.
    pub name: String,
    /// Kind and block size.
    pub kind: DatasetKind,
    /// `standard`, `always` or `disabled`.
    pub sync: String,
    /// `latency` or `throughput`.
    pub logbias: String,
    /// `off`, `lz4`, `zstd`...
    pub compression: String,
    /// Logical bytes divided by compressed bytes; 1.0 without compression.
    pub compress_ratio: f64,
    /// Blocks up to this size go to the special class; 0: none.
    pub special_small_bytes: u64,
    /// Bytes used by its own data (without snapshots, children and reservations).
    pub used_by_itself_bytes: u64,
    /// Bytes before compression.
    pub logical_used_bytes: u64,
    /// Other recorded properties: [`PROPERTIES`].
    pub properties: BTreeMap<String, String>,
    /// Counters since the mount: `reads`, `nread`, `writes`, `nwritten`, `zil_commit_count`... (`objset-*`).
    /// Set by the reader of kstats.
    #[serde(skip)]
    pub counters: Option<Counters>,
}

/// Properties that matter for speed and have no field of their own.
pub const PROPERTIES: [&str; 16] = [
    "atime",
    "checksum",
    "copies",
    "dedup",
    "direct",
    "dnodesize",
    "encryption",
    "mounted",
    "mountpoint",
    "prefetch",
    "primarycache",
    "quota",
    "redundant_metadata",
    "relatime",
    "secondarycache",
    "xattr",
];

impl Dataset {
    /// Parses `zfs get -Hp all`; None if neither a file system nor a volume.
    pub(super) fn from_properties(name_of: &str, properties: &Properties) -> Option<Dataset> {
        let number = |property: &str| properties.number(name_of, property);
        let word = |property: &str| properties.text(name_of, property).unwrap_or_default().to_owned();
        let kind = match properties.text(name_of, "type")? {
            "filesystem" => DatasetKind::Filesystem(number("recordsize")?),
            "volume" => DatasetKind::Volume(number("volblocksize")?),
            _ => return None,
        };
        let ratio = properties.text(name_of, "compressratio").map(|ratio| ratio.trim_end_matches('x'));
        Some(Dataset {
            name: name_of.to_owned(),
            kind,
            sync: word("sync"),
            logbias: word("logbias"),
            compression: word("compression"),
            compress_ratio: ratio.and_then(|ratio| ratio.parse().ok()).unwrap_or(1.0_f64).max(1.0),
            special_small_bytes: number("special_small_blocks").unwrap_or(0),
            used_by_itself_bytes: number("usedbydataset").unwrap_or(0),
            logical_used_bytes: number("logicalused").unwrap_or(0),
            properties: PROPERTIES
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), properties.text(name_of, name)?.to_owned())))
                .collect(),
            counters: None,
        })
    }

    /// Uncompressed block size, for files of several blocks.
    pub fn block_bytes(&self) -> u64 {
        match self.kind {
            DatasetKind::Filesystem(bytes) | DatasetKind::Volume(bytes) => bytes,
        }
    }

    /// Property that sets the block size.
    pub fn block_property(&self) -> &'static str {
        match self.kind {
            DatasetKind::Filesystem(_) => "recordsize",
            DatasetKind::Volume(_) => "volblocksize",
        }
    }
}

//! Values of `pool.json` and its tables.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Contents of `pool.json`.
#[derive(Debug, Clone, Deserialize)]
pub struct PoolFacts {
    /// Pool name.
    pub pool: String,
    /// Pool guid.
    pub guid: u64,
    /// Expected state.
    #[serde(default)]
    pub state: String,
    /// Pool version; "-" with features.
    #[serde(default)]
    pub version: String,
    /// Keys by encryption root.
    #[serde(default)]
    pub keys: BTreeMap<String, KeyFacts>,
    /// Images.
    pub disks: Vec<DiskFacts>,
    /// Datasets, snapshots and volumes.
    pub datasets: Vec<DatasetFacts>,
    /// Other states of the images, unparsed.
    #[serde(default)]
    pub views: serde_json::Value,
}

impl PoolFacts {
    /// The key of an encryption root in user form. Roots missing from `pool.json` inherit from above.
    pub fn key_of(&self, root: &str) -> Option<Vec<u8>> {
        let above = self.keys.range(..=root.to_owned()).rev();
        let key = above.into_iter().find(|(above, _)| root.starts_with(above.as_str()))?.1;
        let Some(digits) = &key.key_hex else { return Some(key.key.clone()?.into_bytes()) };
        (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(digits.get(i..i + 2)?, 16).ok()).collect()
    }
}

/// Key of an encryption root.
#[derive(Debug, Clone, Deserialize)]
pub struct KeyFacts {
    /// `passphrase`, `hex` or `raw`.
    pub keyformat: String,
    /// Passphrase or hex digits.
    pub key: Option<String>,
    /// Raw key in hex.
    pub key_hex: Option<String>,
}

/// An image.
#[derive(Debug, Clone, Deserialize)]
pub struct DiskFacts {
    /// Name of the compressed image.
    pub file: String,
    /// Unpacked size.
    pub size: u64,
    /// SHA-256, unpacked.
    pub sha256: String,
}

/// A dataset, snapshot or volume.
#[derive(Debug, Clone, Deserialize)]
pub struct DatasetFacts {
    /// Full name.
    pub name: String,
    /// `filesystem`, `volume`, `snapshot`, `bookmark`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Guid.
    pub guid: u64,
    /// Creation txg.
    pub createtxg: u64,
    /// Origin of a clone.
    pub origin: Option<String>,
    /// Encryption suite.
    pub encryption: Option<String>,
    /// Manifest, in the pool's folder.
    pub manifest: Option<String>,
    /// Volume size.
    pub size: Option<u64>,
    /// SHA-256 of a volume.
    pub sha256: Option<String>,
    /// Reason for missing both.
    pub note: Option<String>,
}

/// A row of `zpool get -Hp` or `zfs get -Hp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PropertyRow {
    /// Pool or dataset.
    pub name: String,
    /// Property.
    pub property: String,
    /// Exact value.
    pub value: String,
    /// `local`, `default`, `inherited from X`, `received`, `-`...
    pub source: String,
}

pub(crate) fn parse_properties(text: &str) -> Vec<PropertyRow> {
    let row = |line: &str| {
        let mut fields = line.splitn(4, '\t').map(str::to_owned);
        let mut next = || fields.next().unwrap_or_default();
        PropertyRow { name: next(), property: next(), value: next(), source: next() }
    };
    text.lines().filter(|line| line.contains('\t')).map(row).collect()
}

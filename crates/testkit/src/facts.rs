//! `pool.json` and the tables beside it, as values.

use std::collections::BTreeMap;

use serde::Deserialize;

/// `pool.json`: what the pool is and holds.
#[derive(Debug, Clone, Deserialize)]
pub struct PoolFacts {
    /// The pool's name.
    pub pool: String,
    /// Its guid.
    pub guid: u64,
    /// Expected state, as words.
    #[serde(default)]
    pub state: String,
    /// The pool's version, "-" if it has features instead.
    #[serde(default)]
    pub version: String,
    /// Keys by encryption root.
    #[serde(default)]
    pub keys: BTreeMap<String, KeyFacts>,
    /// The images.
    pub disks: Vec<DiskFacts>,
    /// All datasets, snapshots and volumes.
    pub datasets: Vec<DatasetFacts>,
    /// Other states of the same images, in the file's own form.
    #[serde(default)]
    pub views: serde_json::Value,
}

impl PoolFacts {
    /// The key of an encryption root, as a user would give it. A root that `pool.json` does not list has
    /// the key of the nearest listed one above it.
    pub fn key_of(&self, root: &str) -> Option<Vec<u8>> {
        let above = self.keys.range(..=root.to_owned()).rev();
        let key = above.into_iter().find(|(above, _)| root.starts_with(above.as_str()))?.1;
        let Some(digits) = &key.key_hex else { return Some(key.key.clone()?.into_bytes()) };
        (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(digits.get(i..i + 2)?, 16).ok()).collect()
    }
}

/// How an encryption root is unlocked.
#[derive(Debug, Clone, Deserialize)]
pub struct KeyFacts {
    /// `passphrase`, `hex` or `raw`.
    pub keyformat: String,
    /// The passphrase or the hex digits.
    pub key: Option<String>,
    /// A raw key's bytes, as hex digits.
    pub key_hex: Option<String>,
}

/// One image.
#[derive(Debug, Clone, Deserialize)]
pub struct DiskFacts {
    /// File name of the compressed image.
    pub file: String,
    /// Bytes when unpacked.
    pub size: u64,
    /// SHA-256 of the unpacked image.
    pub sha256: String,
}

/// One dataset, snapshot or volume.
#[derive(Debug, Clone, Deserialize)]
pub struct DatasetFacts {
    /// Full name.
    pub name: String,
    /// `filesystem`, `volume`, `snapshot`, `bookmark`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The dataset's guid.
    pub guid: u64,
    /// The txg in which it was created.
    pub createtxg: u64,
    /// The snapshot it was cloned from.
    pub origin: Option<String>,
    /// Encryption suite, if encrypted.
    pub encryption: Option<String>,
    /// Path of the manifest within the golden pool's folder.
    pub manifest: Option<String>,
    /// Bytes of a volume.
    pub size: Option<u64>,
    /// SHA-256 of a whole volume.
    pub sha256: Option<String>,
    /// Why there is neither manifest nor hash.
    pub note: Option<String>,
}

/// One row of `zpool get -Hp` or `zfs get -Hp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PropertyRow {
    /// The pool or dataset.
    pub name: String,
    /// The property.
    pub property: String,
    /// Its value in exact form.
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

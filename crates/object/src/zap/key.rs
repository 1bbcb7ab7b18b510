//! Keys of a ZAP, as given and as stored.

use cenote_format::zap::{LeafKey, MZAP_NAME_LEN, ZAP_FLAG_UINT64_KEY, ZapHasher};

use crate::zap::fold::fold;

/// `ZAP_MAXNAMELEN`: bytes of a name with its NUL...
const MAX_NAME_BYTES: usize = 256;
/// `ZAP_MAXNAMELEN_NEW`: ...and in a directory (feature `longname`).
const MAX_LONG_NAME_BYTES: usize = 1024;

/// A key: a name, or numbers in a ZAP made for them.
#[derive(Debug, Clone, Copy)]
pub enum ZapKey<'a> {
    /// A name, without NUL.
    Name(&'a [u8]),
    /// Numbers.
    Words(&'a [u64]),
}

impl<'a> From<&'a str> for ZapKey<'a> {
    fn from(name: &'a str) -> Self {
        ZapKey::Name(name.as_bytes())
    }
}

impl<'a> From<&'a String> for ZapKey<'a> {
    fn from(name: &'a String) -> Self {
        ZapKey::Name(name.as_bytes())
    }
}

impl<'a> From<&'a [u8]> for ZapKey<'a> {
    fn from(name: &'a [u8]) -> Self {
        ZapKey::Name(name)
    }
}

impl<'a> From<&'a [u64]> for ZapKey<'a> {
    fn from(words: &'a [u64]) -> Self {
        ZapKey::Words(words)
    }
}

impl std::fmt::Display for ZapKey<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ZapKey::Name(name) => f.write_str(&String::from_utf8_lossy(name)),
            ZapKey::Words(words) => write!(f, "{words:x?}"),
        }
    }
}

#[derive(Debug)]
pub(super) struct StoredKey<'a> {
    pub(super) key: ZapKey<'a>,
    bytes: Vec<u8>,
    /// The stored hash, if our folding gives another.
    known_hash: Option<u64>,
}

impl<'a> StoredKey<'a> {
    /// Fails with the reason if no ZAP holds it.
    pub(super) fn new(key: ZapKey<'a>) -> Result<StoredKey<'a>, &'static str> {
        let bytes: Vec<u8> = match key {
            ZapKey::Name([]) => return Err("has no name"),
            ZapKey::Name(name) if name.contains(&0) => return Err("has a name with a NUL in it"),
            ZapKey::Name(name) => name.iter().copied().chain([0]).collect(),
            ZapKey::Words(words) => words.iter().flat_map(|word| word.to_be_bytes()).collect(),
        };
        Ok(StoredKey { key, bytes, known_hash: None })
    }

    pub(super) fn hashed(self, hash: u64) -> StoredKey<'a> {
        StoredKey { known_hash: Some(hash), ..self }
    }

    pub(super) fn micro_name(&self) -> Option<&'a [u8]> {
        match self.key {
            ZapKey::Name(name) if name.len() < MZAP_NAME_LEN => Some(name),
            _ => None,
        }
    }

    pub(super) fn hash(&self, hasher: ZapHasher, normflags: u64) -> u64 {
        match (self.known_hash, self.key) {
            (Some(hash), _) => hash,
            (None, ZapKey::Name(name)) => hash_name(hasher, normflags, name),
            (None, ZapKey::Words(words)) => hasher.words(words),
        }
    }

    /// `None`: the ZAP has keys of the other kind.
    pub(super) fn for_leaf(&self, hasher: ZapHasher, normflags: u64) -> Option<LeafKey<'_>> {
        let has_words = hasher.flags & ZAP_FLAG_UINT64_KEY != 0;
        let len = match self.key {
            ZapKey::Name(_) if !has_words => self.bytes.len(),
            ZapKey::Words(words) if has_words => words.len(),
            _ => return None,
        };
        Some(LeafKey { hash: self.hash(hasher, normflags), bytes: &self.bytes, len: len as u16 })
    }

    /// Whether OpenZFS accepts its length.
    pub(super) fn is_allowed(&self, in_directory: bool) -> bool {
        self.bytes.len() <= if in_directory { MAX_LONG_NAME_BYTES } else { MAX_NAME_BYTES }
    }
}

pub(super) fn hash_name(hasher: ZapHasher, normflags: u64, name: &[u8]) -> u64 {
    match normflags {
        0 => hasher.text(name),
        flags => hasher.text(&fold(name, flags)),
    }
}

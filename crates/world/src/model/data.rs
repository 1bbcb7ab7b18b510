//! The content of a file, a block or an attribute.
//!
//! Idea: the oracle compares thousands of states, whose contents are mostly equal and often not shared: two
//! orders of the same calls make the same bytes twice. So a content keeps its BLAKE3 hash once it has been
//! compared with another of its length, and equal hashes mean equal bytes.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

/// Bytes that are quick to compare.
#[derive(Clone)]
pub struct Data(Arc<Inner>);

struct Inner {
    bytes: Bytes,
    hash: Cached,
}

impl Data {
    pub(super) fn hash(&self) -> &blake3::Hash {
        self.0.hash.get(|hasher| _ = hasher.update(&self.0.bytes))
    }

    /// Whether both are one: cheap, and `false` says nothing.
    pub fn is_shared(&self, other: &Data) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: Into<Bytes>> From<T> for Data {
    fn from(bytes: T) -> Data {
        Data(Arc::new(Inner { bytes: bytes.into(), hash: Cached::default() }))
    }
}

impl Deref for Data {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.0.bytes
    }
}

impl PartialEq for Data {
    fn eq(&self, other: &Data) -> bool {
        self.is_shared(other) || self.len() == other.len() && self.hash() == other.hash()
    }
}

impl Eq for Data {}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.bytes.fmt(f)
    }
}

/// A hash, made when first asked for. A clone has none yet: it is made to be changed.
#[derive(Debug, Default)]
pub(super) struct Cached(OnceLock<blake3::Hash>);

impl Cached {
    pub(super) fn get(&self, of: impl FnOnce(&mut blake3::Hasher)) -> &blake3::Hash {
        self.0.get_or_init(|| {
            let mut hasher = blake3::Hasher::new();
            of(&mut hasher);
            hasher.finalize()
        })
    }
}

impl Clone for Cached {
    fn clone(&self) -> Cached {
        Cached::default()
    }
}

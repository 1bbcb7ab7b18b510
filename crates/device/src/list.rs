//! Arrays of counters as JSON lists: serde itself takes arrays of up to 32 items.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// For `#[serde(with)]`.
pub fn serialize<S: Serializer, const N: usize>(items: &[u64; N], serializer: S) -> Result<S::Ok, S::Error> {
    items.as_slice().serialize(serializer)
}

/// For `#[serde(with)]`.
pub fn deserialize<'de, D: Deserializer<'de>, const N: usize>(deserializer: D) -> Result<[u64; N], D::Error> {
    let items = Vec::<u64>::deserialize(deserializer)?;
    let wrong = |items: Vec<u64>| D::Error::invalid_length(items.len(), &"as many counters as there are");
    items.try_into().map_err(wrong)
}

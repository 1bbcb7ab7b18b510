//! Name-value lists: the self-describing maps of OpenZFS's configuration.
//!
//! Idea: a list keeps its pairs in on-disk order, for dumps and byte-exact encoding. Lookup is linear; lists
//! are short. A typed getter returns `None` for a missing pair or another type; `get` tells them apart.
//!
//! Layout (both packings): a 4-byte header (packing: 0 native, 1 XDR; writer's byte order: 0 big, 1 little;
//! two zeros), then the list. `decode` reads all four forms, `encode` writes XDR, `encode_native` native.
//!
//! Invariants: nesting is at most `MAX_DEPTH`. A decoded list takes at most a small multiple of its packed
//! bytes: no count is trusted before its bytes have been seen.
//!
//! Source: OpenZFS `nvpair.h`, `nvpair.c`.

mod decode;
mod display;
mod encode;
mod native;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Nesting bound, `nvpair_max_recursion` outside the kernel.
pub const MAX_DEPTH: u32 = 100;
/// `NV_UNIQUE_NAME`: names are unique. All on-disk lists set it.
pub const NV_UNIQUE_NAME: u32 = 1;

/// Ordered list of typed pairs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Nvlist {
    /// `NV_UNIQUE_NAME` or `NV_UNIQUE_NAME_TYPE` (2), as stored.
    pub flags: u32,
    pairs: Vec<(String, NvValue)>,
}

/// Typed value, `data_type_t`. Strings are bytes: OpenZFS requires no encoding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NvValue {
    /// Flag: present or absent.
    Boolean,
    /// One byte.
    Byte(u8),
    /// 16-bit signed.
    Int16(i16),
    /// 16-bit unsigned.
    Uint16(u16),
    /// 32-bit signed.
    Int32(i32),
    /// 32-bit unsigned.
    Uint32(u32),
    /// 64-bit signed.
    Int64(i64),
    /// 64-bit unsigned.
    Uint64(u64),
    /// String without NUL.
    String(
        #[serde(with = "crate::text_or_bytes")]
        #[schemars(with = "crate::text_or_bytes::TextOrBytes")]
        Vec<u8>,
    ),
    /// Bytes.
    ByteArray(Vec<u8>),
    /// Signed 16-bit.
    Int16Array(Vec<i16>),
    /// Unsigned 16-bit.
    Uint16Array(Vec<u16>),
    /// Signed 32-bit.
    Int32Array(Vec<i32>),
    /// Unsigned 32-bit.
    Uint32Array(Vec<u32>),
    /// Signed 64-bit.
    Int64Array(Vec<i64>),
    /// Unsigned 64-bit.
    Uint64Array(Vec<u64>),
    /// Strings without NUL.
    StringArray(
        #[serde(with = "crate::text_or_bytes::each")]
        #[schemars(with = "Vec<crate::text_or_bytes::TextOrBytes>")]
        Vec<Vec<u8>>,
    ),
    /// Nanoseconds, `hrtime_t`.
    Hrtime(i64),
    /// Nested list.
    Nvlist(Nvlist),
    /// Nested lists.
    NvlistArray(Vec<Nvlist>),
    /// True or false.
    BooleanValue(bool),
    /// 8-bit signed.
    Int8(i8),
    /// 8-bit unsigned.
    Uint8(u8),
    /// Booleans.
    BooleanArray(Vec<bool>),
    /// Signed 8-bit.
    Int8Array(Vec<i8>),
    /// Unsigned 8-bit.
    Uint8Array(Vec<u8>),
    /// Floating-point.
    Double(f64),
}

impl Default for Nvlist {
    fn default() -> Self {
        Nvlist { flags: NV_UNIQUE_NAME, pairs: Vec::new() }
    }
}

impl Nvlist {
    /// Empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Unpacks a native or XDR list; ignores trailing bytes.
    ///
    /// # Errors
    /// An unknown packing or type, truncated input, nesting beyond `MAX_DEPTH`.
    pub fn decode(packed: &[u8]) -> Result<Nvlist> {
        decode::decode(packed)
    }

    /// Packs as XDR with header.
    pub fn encode(&self) -> Vec<u8> {
        encode::encode(self)
    }

    /// Packs as native memory with header.
    pub fn encode_native(&self) -> Vec<u8> {
        native::encode(self)
    }

    /// Appends a pair, or replaces a value in place.
    pub fn insert(&mut self, name: &str, value: NvValue) -> &mut Self {
        match self.pairs.iter_mut().find(|(n, _)| n == name) {
            Some(pair) => pair.1 = value,
            None => self.pairs.push((name.to_owned(), value)),
        }
        self
    }

    /// Removes a pair.
    pub fn remove(&mut self, name: &str) -> Option<NvValue> {
        let at = self.pairs.iter().position(|(other, _)| other == name)?;
        Some(self.pairs.remove(at).1)
    }

    /// Pairs in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &NvValue)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether the list has no pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// First value of that name.
    pub fn get(&self, name: &str) -> Option<&NvValue> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// Whether the name exists.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// A `uint64`.
    pub fn get_u64(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            NvValue::Uint64(value) => Some(*value),
            _ => None,
        }
    }

    /// UTF-8 string.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.get_string_bytes(name)?).ok()
    }

    /// String in any encoding.
    pub fn get_string_bytes(&self, name: &str) -> Option<&[u8]> {
        match self.get(name)? {
            NvValue::String(value) => Some(value),
            _ => None,
        }
    }

    /// Boolean; `true` for a bare flag.
    pub fn get_bool(&self, name: &str) -> Option<bool> {
        match self.get(name)? {
            NvValue::BooleanValue(value) => Some(*value),
            NvValue::Boolean => Some(true),
            _ => None,
        }
    }

    /// Nested list.
    pub fn get_nvlist(&self, name: &str) -> Option<&Nvlist> {
        match self.get(name)? {
            NvValue::Nvlist(value) => Some(value),
            _ => None,
        }
    }

    /// Array of lists.
    pub fn get_nvlist_array(&self, name: &str) -> Option<&[Nvlist]> {
        match self.get(name)? {
            NvValue::NvlistArray(value) => Some(value),
            _ => None,
        }
    }

    /// Array of strings.
    pub fn get_string_array(&self, name: &str) -> Option<&[Vec<u8>]> {
        match self.get(name)? {
            NvValue::StringArray(value) => Some(value),
            _ => None,
        }
    }
}

impl FromIterator<(String, NvValue)> for Nvlist {
    /// Keeps every pair, even repeated names.
    fn from_iter<I: IntoIterator<Item = (String, NvValue)>>(pairs: I) -> Self {
        Nvlist { flags: NV_UNIQUE_NAME, pairs: pairs.into_iter().collect() }
    }
}

/// On-disk values of `data_type_t`.
mod data_type {
    pub const BOOLEAN: u32 = 1;
    pub const BYTE: u32 = 2;
    pub const INT16: u32 = 3;
    pub const UINT16: u32 = 4;
    pub const INT32: u32 = 5;
    pub const UINT32: u32 = 6;
    pub const INT64: u32 = 7;
    pub const UINT64: u32 = 8;
    pub const STRING: u32 = 9;
    pub const BYTE_ARRAY: u32 = 10;
    pub const INT16_ARRAY: u32 = 11;
    pub const UINT16_ARRAY: u32 = 12;
    pub const INT32_ARRAY: u32 = 13;
    pub const UINT32_ARRAY: u32 = 14;
    pub const INT64_ARRAY: u32 = 15;
    pub const UINT64_ARRAY: u32 = 16;
    pub const STRING_ARRAY: u32 = 17;
    pub const HRTIME: u32 = 18;
    pub const NVLIST: u32 = 19;
    pub const NVLIST_ARRAY: u32 = 20;
    pub const BOOLEAN_VALUE: u32 = 21;
    pub const INT8: u32 = 22;
    pub const UINT8: u32 = 23;
    pub const BOOLEAN_ARRAY: u32 = 24;
    pub const INT8_ARRAY: u32 = 25;
    pub const UINT8_ARRAY: u32 = 26;
    pub const DOUBLE: u32 = 27;
}

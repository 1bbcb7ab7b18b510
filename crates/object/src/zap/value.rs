//! Entries of a ZAP: names and arrays of integers.

use bytes::Bytes;

/// An entry of a ZAP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZapEntry {
    /// Without its NUL; big-endian bytes of a numeric key.
    pub name: Bytes,
    /// Its value.
    pub value: ZapValue,
}

impl ZapEntry {
    /// As text; invalid UTF-8 is replaced.
    pub fn name_text(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// A numeric key.
    pub fn name_words(&self) -> Vec<u64> {
        self.name.as_chunks::<8>().0.iter().map(|w| u64::from_be_bytes(*w)).collect()
    }
}

impl From<u64> for ZapValue {
    fn from(number: u64) -> Self {
        ZapValue::from_u64(number)
    }
}

impl From<&ZapValue> for ZapValue {
    fn from(value: &ZapValue) -> Self {
        value.clone()
    }
}

/// Integers of 1, 2, 4 or 8 bytes, big-endian as in a fat ZAP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZapValue {
    integer_bytes: u8,
    raw: Bytes,
}

impl ZapValue {
    /// From big-endian integers.
    pub fn new(integer_bytes: u8, raw: Bytes) -> ZapValue {
        ZapValue { integer_bytes: integer_bytes.max(1), raw }
    }

    /// A single 64-bit number.
    pub fn from_u64(number: u64) -> ZapValue {
        ZapValue { integer_bytes: 8, raw: Bytes::copy_from_slice(&number.to_be_bytes()) }
    }

    /// 64-bit numbers.
    pub fn from_words(words: &[u64]) -> ZapValue {
        let raw: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        ZapValue { integer_bytes: 8, raw: raw.into() }
    }

    /// Text, with a NUL added.
    pub fn from_text(text: &str) -> ZapValue {
        ZapValue { integer_bytes: 1, raw: [text.as_bytes(), &[0]].concat().into() }
    }

    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// Size of an integer.
    pub fn integer_bytes(&self) -> u8 {
        self.integer_bytes
    }

    /// Number of integers.
    pub fn len(&self) -> usize {
        self.raw.len() / usize::from(self.integer_bytes)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The integer, if exactly one.
    pub fn as_u64(&self) -> Option<u64> {
        (self.len() == 1).then(|| self.words().next()).flatten()
    }

    /// The integers, widened.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        let widen = |integer: &[u8]| integer.iter().fold(0, |n, &b| n << 8 | u64::from(b));
        self.raw.chunks_exact(self.integer_bytes.into()).map(widen)
    }

    /// The bytes, if the integers are bytes.
    pub fn as_bytes(&self) -> Option<&Bytes> {
        (self.integer_bytes == 1).then_some(&self.raw)
    }

    /// Text without its NUL.
    pub fn as_text(&self) -> Option<String> {
        let bytes = self.as_bytes()?;
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

//! On-disk strings as JSON: text if UTF-8, otherwise a list of bytes, without loss.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The JSON form, for `#[schemars(with)]`.
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "it only describes the form")]
pub enum TextOrBytes {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Bytes(Vec<u8>),
}

struct Form<'a>(&'a [u8]);

struct Bytes(Vec<u8>);

impl Serialize for Form<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, or a list of bytes")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
                Ok(Bytes(text.into()))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<Bytes, E> {
                Ok(Bytes(text.into_bytes()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Bytes, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = list.next_element()? {
                    bytes.push(byte);
                }
                Ok(Bytes(bytes))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// For `#[serde(with)]`.
pub fn serialize<S: Serializer>(value: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    Form(value).serialize(serializer)
}

/// For `#[serde(with)]`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    Bytes::deserialize(deserializer).map(|Bytes(bytes)| bytes)
}

/// Arrays of such strings.
pub mod each {
    use super::*;

    /// For `#[serde(with)]`.
    pub fn serialize<S: Serializer>(values: &[Vec<u8>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|value| Form(value)))
    }

    /// For `#[serde(with)]`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<u8>>, D::Error> {
        Vec::<Bytes>::deserialize(deserializer).map(|all| all.into_iter().map(|Bytes(bytes)| bytes).collect())
    }
}

/// The same for one that may be missing.
pub mod maybe {
    use super::*;

    /// For `#[serde(with)]`.
    pub fn serialize<S: Serializer>(value: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
        value.as_deref().map(Form).serialize(serializer)
    }

    /// For `#[serde(with)]`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
        Option::<Bytes>::deserialize(deserializer).map(|value| value.map(|Bytes(bytes)| bytes))
    }
}

/// The same for the keys of a table, which becomes a list of pairs.
pub mod map {
    use std::collections::BTreeMap;

    use super::*;

    /// For `#[serde(with)]`.
    pub fn serialize<S: Serializer, V: Serialize>(
        map: &BTreeMap<Vec<u8>, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map.iter().map(|(key, value)| (Form(key), value)))
    }

    /// For `#[serde(with)]`.
    pub fn deserialize<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<Vec<u8>, V>, D::Error> {
        let pairs = Vec::<(Bytes, V)>::deserialize(deserializer)?;
        Ok(pairs.into_iter().map(|(Bytes(key), value)| (key, value)).collect())
    }
}

//! On-disk strings as JSON: text if UTF-8, otherwise a list of bytes, without loss.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form<'a> {
    Text(std::borrow::Cow<'a, str>),
    Bytes(Vec<u8>),
}

fn form(bytes: &[u8]) -> Form<'_> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Form::Text(text.into()),
        Err(_) => Form::Bytes(bytes.into()),
    }
}

fn bytes(form: Form<'_>) -> Vec<u8> {
    match form {
        Form::Text(text) => text.into_owned().into_bytes(),
        Form::Bytes(bytes) => bytes,
    }
}

/// For `#[serde(with)]`.
pub fn serialize<S: Serializer>(value: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    form(value).serialize(serializer)
}

/// For `#[serde(with)]`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    Form::deserialize(deserializer).map(bytes)
}

/// Arrays of such strings.
pub mod each {
    use super::*;

    /// For `#[serde(with)]`.
    pub fn serialize<S: Serializer>(values: &[Vec<u8>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|value| form(value)))
    }

    /// For `#[serde(with)]`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<u8>>, D::Error> {
        Vec::<Form<'de>>::deserialize(deserializer).map(|all| all.into_iter().map(bytes).collect())
    }
}

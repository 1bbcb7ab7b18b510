//! Disks in S3 object stores.
//!
//! Keys are found by the environment, so no address has a secret.

use std::fmt;

use super::{IN_LABELS, NBD, PlaceError, S3, decode, encode, over_network, unknown};

const ENDPOINT: &str = "endpoint";
const REGION: &str = "region";
const SIZE: &str = "size";
/// Amazon's server in labels.
const AWS: &str = "aws";
/// Longest prefix: S3's names have at most 1024 bytes.
const PREFIX_BYTES_MAX: usize = 768;

/// A disk in an S3 object store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct S3Place {
    /// Bucket.
    pub bucket: String,
    /// Its objects' names begin with this and a slash.
    pub prefix: String,
    /// `http://HOST[:PORT]` or `https://HOST[:PORT]`; none: Amazon's.
    pub endpoint: Option<String>,
    /// Region; none: that of the environment.
    pub region: Option<String>,
    /// If there is no disk yet, its size.
    pub size_bytes: Option<u64>,
}

impl S3Place {
    /// `BUCKET/PREFIX[?endpoint=URL&region=NAME&size=SIZE]`
    pub(super) fn parse(rest: &str) -> Result<S3Place, PlaceError> {
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = body.split_once('/').ok_or(PlaceError::Bucket)?;
        if bucket.contains('@') {
            return Err(PlaceError::User { scheme: S3 });
        }
        let may_be = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        let prefix = decode(prefix.strip_suffix('/').unwrap_or(prefix)).ok_or(PlaceError::Bucket)?;
        let is_part = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
        if !(3..=63).contains(&bucket.len())
            || !bucket.bytes().all(may_be)
            || prefix.len() > PREFIX_BYTES_MAX
            || !prefix.split('/').all(is_part)
        {
            return Err(PlaceError::Bucket);
        }
        let mut place =
            S3Place { bucket: bucket.into(), prefix, endpoint: None, region: None, size_bytes: None };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value);
            let is_set = match name {
                ENDPOINT => set(&mut place.endpoint, value.and_then(endpoint_url)),
                REGION => set(&mut place.region, value.and_then(region_name)),
                SIZE => set(&mut place.size_bytes, value.and_then(size_of)),
                _ => return Err(unknown(S3, name)),
            };
            if !is_set {
                return Err(match name {
                    ENDPOINT => PlaceError::Value { name: ENDPOINT, expected: "https://HOST[:PORT]" },
                    REGION => PlaceError::Value { name: REGION, expected: "a name such as eu-central-1" },
                    _ => PlaceError::Value { name: SIZE, expected: "bytes, or a size such as 1T" },
                });
            }
        }
        Ok(place)
    }

    pub(super) fn in_labels(&self) -> String {
        let mut text = format!("{IN_LABELS}{S3}/");
        encode(&mut text, self.endpoint.as_deref().unwrap_or(AWS), false);
        if let Some(region) = &self.region {
            text += &format!(",{region}");
        }
        text += &format!("/{}/", self.bucket);
        encode(&mut text, &self.prefix, true);
        text
    }

    pub(super) fn of_label(rest: &str) -> Option<S3Place> {
        let (server, path) = rest.split_once('/')?;
        let (server, region) = match server.split_once(',') {
            Some((server, region)) => (server, Some(region_name(region.into())?)),
            None => (server, None),
        };
        let endpoint = match server {
            AWS => None,
            encoded => Some(endpoint_url(decode(encoded)?)?),
        };
        let place = S3Place::parse(path).ok()?;
        Some(S3Place { endpoint, region, ..place })
    }

    /// `?size=BYTES`, or `&size=BYTES` after another parameter.
    pub(super) fn put_size(&self, text: &mut String) {
        if let Some(size_bytes) = self.size_bytes {
            let separator = if text.contains('?') { '&' } else { '?' };
            *text += &format!("{separator}{SIZE}={size_bytes}");
        }
    }
}

/// Without the size, which counts only until the disk exists.
impl fmt::Display for S3Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{S3}://{}/", self.bucket);
        encode(&mut text, &self.prefix, true);
        let mut separator = '?';
        for (name, value) in [(ENDPOINT, &self.endpoint), (REGION, &self.region)] {
            if let Some(value) = value {
                text += &format!("{separator}{name}={value}");
                separator = '&';
            }
        }
        f.write_str(&text)
    }
}

/// `false`: it has no valid value, or was set before.
fn set<T>(field: &mut Option<T>, value: Option<T>) -> bool {
    value.is_some() && std::mem::replace(field, value).is_none()
}

/// `http[s]://HOST[:PORT]`, without user, path or query.
fn endpoint_url(url: String) -> Option<String> {
    let url = url.strip_suffix('/').map_or(url.clone(), str::to_owned).to_ascii_lowercase();
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    // Of the same form as an NBD server's.
    let is_server = !rest.contains(['/', '?', '@']) && over_network(NBD, rest).is_ok();
    is_server.then_some(url)
}

fn region_name(name: String) -> Option<String> {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (!name.is_empty() && name.len() <= 64 && name.bytes().all(may_be)).then_some(name)
}

/// Bytes, with a suffix K, M, G, T, P or E for powers of 1024.
fn size_of(text: String) -> Option<u64> {
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let power = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        suffix => {
            let letter = suffix.strip_suffix("IB").or(suffix.strip_suffix('B')).unwrap_or(suffix);
            if letter.len() != 1 {
                return None;
            }
            "KMGTPE".find(letter)? as u32 + 1
        }
    };
    digits.parse::<u64>().ok()?.checked_mul(1024_u64.checked_pow(power)?)
}

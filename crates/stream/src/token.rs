//! Tokens: the position of a broken receive, as text for the sender (`zfs send -t`).
//!
//! Layout: `1-CHECKSUM-LENGTH-DATA`, all hexadecimal: the version; the first word of the data's fletcher4;
//! the length of the uncompressed list; the list, packed (XDR), compressed (zlib).
//!
//! Source: OpenZFS `dsl_dataset.c` (`get_receive_resume_token_impl`), `libzfs_sendrecv.c`
//! (`zfs_send_resume_token_to_nvlist`).

use std::fmt::Write as _;

use cenote_codec::fletcher::fletcher4;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::stream::StreamFeatures;
use cenote_format::units::{Guid, ObjectId};
use cenote_tasks::{Progress, RedactedFor, ResumeState};
use libdeflater::{CompressionLvl, Compressor, Decompressor};

/// `ZFS_SEND_RESUME_TOKEN_VERSION`.
const VERSION: u32 = 1;
const MAX_LIST_BYTES: usize = 1 << 20;

/// Names of the stream's options in the list.
const OPTIONS: [(StreamFeatures, &str); 4] = [
    (StreamFeatures::LARGE_BLOCKS, "largeblockok"),
    (StreamFeatures::EMBED_DATA, "embedok"),
    (StreamFeatures::COMPRESSED, "compressok"),
    (StreamFeatures::RAW, "rawok"),
];

/// The text is not a valid token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Wrong form.
    #[error("resume token is corrupt (invalid format)")]
    Format,
    /// From a later version.
    #[error("resume token is corrupt (invalid version)")]
    Version,
    /// Mistyped.
    #[error("resume token is corrupt (incorrect checksum)")]
    Checksum,
    /// It can't be unpacked.
    #[error("resume token is corrupt (decompression failed)")]
    Compression,
    /// Wrong content.
    #[error("resume token is corrupt (nvlist_unpack failed)")]
    List,
}

/// The list of a receive's state, as `zstream token` shows it.
pub fn list_of(state: &ResumeState) -> Nvlist {
    let mut list = Nvlist::new();
    if state.from_guid.0 != 0 {
        list.insert("fromguid", NvValue::Uint64(state.from_guid.0));
    }
    list.insert("object", NvValue::Uint64(state.progress.object.0));
    list.insert("offset", NvValue::Uint64(state.progress.offset));
    list.insert("bytes", NvValue::Uint64(state.progress.bytes));
    list.insert("toguid", NvValue::Uint64(state.to_guid.0));
    list.insert("toname", NvValue::String(state.to_name.clone()));
    for (feature, name) in OPTIONS {
        if state.features.has(feature) {
            list.insert(name, NvValue::Boolean);
        }
    }
    for (name, guids) in
        [("redact_snaps", &state.redacted.snapshots), ("book_redact_snaps", &state.redacted.from)]
    {
        if let Some(guids) = guids {
            list.insert(name, NvValue::Uint64Array(guids.clone()));
        }
    }
    list
}

/// Encodes a state.
pub fn encode(state: &ResumeState) -> String {
    let packed = list_of(state).encode();
    let data = zlib_compress(&packed);
    let [checksum, ..] = fletcher4(&data, false);
    let mut token = format!("{VERSION}-{checksum:x}-{:x}-", packed.len());
    for byte in data {
        // Writing to a String can't fail.
        let _ = write!(token, "{byte:02x}");
    }
    token
}

fn zlib_compress(bytes: &[u8]) -> Vec<u8> {
    let mut compressor = Compressor::new(CompressionLvl::default());
    let mut out = vec![0; compressor.zlib_compress_bound(bytes.len())];
    // Can't fail: `out` has the size of the bound.
    let len = compressor.zlib_compress(bytes, &mut out).unwrap_or(0);
    out.truncate(len);
    out
}

fn zlib_decompress(bytes: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; len];
    let written = Decompressor::new().zlib_decompress(bytes, &mut out).ok()?;
    (written == len).then_some(out)
}

/// Decodes a token's list.
///
/// # Errors
/// The token is invalid.
pub fn decode(token: &str) -> Result<Nvlist, TokenError> {
    let mut parts = token.trim().splitn(4, '-');
    let mut hex =
        || parts.next().and_then(|part| u64::from_str_radix(part, 16).ok()).ok_or(TokenError::Format);
    let (version, checksum, len) = (hex()?, hex()?, hex()?);
    if version != u64::from(VERSION) {
        return Err(TokenError::Version);
    }
    let text = parts.next().ok_or(TokenError::Format)?.as_bytes();
    if text.len() % 2 != 0 || text.len() > 2 * MAX_LIST_BYTES {
        return Err(TokenError::Format);
    }
    let digit = |digit: u8| char::from(digit).to_digit(16).ok_or(TokenError::Format);
    let mut data = Vec::with_capacity(text.len() / 2);
    for pair in text.chunks_exact(2) {
        data.push((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
    }
    if fletcher4(&data, false)[0] != checksum {
        return Err(TokenError::Checksum);
    }
    let len = usize::try_from(len).ok().filter(|len| *len <= MAX_LIST_BYTES).ok_or(TokenError::Format)?;
    let packed = zlib_decompress(&data, len).ok_or(TokenError::Compression)?;
    Nvlist::decode(&packed).map_err(|_| TokenError::List)
}

/// Decodes a token's state.
///
/// # Errors
/// The token is invalid.
pub fn state_of(token: &str) -> Result<ResumeState, TokenError> {
    let list = decode(token)?;
    let number = |name| list.get_u64(name).ok_or(TokenError::List);
    let guids = |name: &str| match list.get(name) {
        Some(NvValue::Uint64Array(guids)) => Some(guids.clone()),
        _ => None,
    };
    let mut features = StreamFeatures::default();
    for (feature, name) in OPTIONS {
        if list.contains(name) {
            features = features | feature;
        }
    }
    Ok(ResumeState {
        from_guid: Guid(list.get_u64("fromguid").unwrap_or(0)),
        to_guid: Guid(number("toguid")?),
        to_name: list.get_string_bytes("toname").ok_or(TokenError::List)?.to_vec(),
        progress: Progress {
            object: ObjectId(number("object")?),
            offset: number("offset")?,
            bytes: number("bytes")?,
        },
        features,
        redacted: RedactedFor { snapshots: guids("redact_snaps"), from: guids("book_redact_snaps") },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The token in ../shared/streams, made by OpenZFS 2.3.2.
    const TOKEN: &str = "1-c264de6de-d8-789c636064000310a500c4ec50360710e72765a52697303030439460caa7a515a\
                         79630c001489e0d493ea9b224b518484fe037c0aabf243fbd34338581e10f97c796be5361e21a48f\
                         29c60f9bcc4dc540686f4e2a264fda4cc740743843dbc0c0877e72416a5a726e5e42767e767c3dc0\
                         200d5371a68";

    #[test]
    fn tokens_of_the_module_are_understood() {
        let state = state_of(TOKEN).unwrap();
        assert_eq!(state.to_guid, Guid(0x1756_ca8e_b448_0afc));
        assert_eq!((state.progress.object, state.progress.offset), (ObjectId(3), 0));
        assert_eq!((state.progress.bytes, &state.to_name[..]), (0x30_0f90, &b"gsrc/big@1"[..]));
        assert_eq!(state.features, StreamFeatures::LARGE_BLOCKS);
        assert_eq!(list_of(&state), decode(TOKEN).unwrap());
        assert_eq!(state_of(&encode(&state)).unwrap(), state);
    }

    #[test]
    fn other_texts_are_refused() {
        assert_eq!(decode(""), Err(TokenError::Format));
        assert_eq!(decode("2-0-0-"), Err(TokenError::Version));
        assert_eq!(decode("1-0-0-zz"), Err(TokenError::Format));
        assert_eq!(decode(&TOKEN.replace("789c63", "789c64")), Err(TokenError::Checksum));
        assert_eq!(decode(&format!("1-0-ffffffffff-{}", &TOKEN[17..])), Err(TokenError::Checksum));
    }
}

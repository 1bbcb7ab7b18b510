//! Defects of a stream, in OpenZFS's words.
//!
//! Each message is a reason of `zfs receive`: `cannot receive: REASON`.

use std::io;

use cenote_format::FormatError;
use cenote_format::stream::StreamFeatures;

/// A stream could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The input is missing or unreadable.
    #[error("failed to read from stream")]
    Read(#[source] io::Error),
    /// The output failed.
    #[error("failed to write to stream")]
    Write(#[source] io::Error),
    /// The bytes end before the stream does.
    #[error("incomplete stream")]
    Incomplete,
    /// Not a stream.
    #[error("invalid stream (bad magic number)")]
    BadMagic,
    /// A record in the wrong place.
    #[error("invalid record type")]
    WrongPlace,
    /// A record's fields contradict the format.
    #[error("invalid stream ({0})")]
    Record(#[from] FormatError),
    /// The payload is not a list of properties.
    #[error("invalid stream (malformed nvlist)")]
    Nvlist(#[source] FormatError),
    /// The snapshot's name is invalid.
    #[error("invalid stream (bad snapshot name)")]
    Name,
    /// A wrong checksum.
    #[error("checksum mismatch")]
    Checksum,
    /// A wrong checksum in the head of a package.
    #[error("incorrect header checksum")]
    HeaderChecksum,
    /// A stream kind no longer received.
    #[error("stream has deprecated feature: dedup, try 'zstream redup [send in a file] | zfs recv [...]'")]
    Dedup,
    /// The stream needs unknown features.
    #[error(
        "stream has unsupported feature, feature flags = {:x} (unknown flags = {:x})",
        .0.0,
        .0.without(StreamFeatures::MASK).0
    )]
    Unsupported(StreamFeatures),
}

/// Result of reading or writing a stream.
pub type Result<T, E = StreamError> = std::result::Result<T, E>;

/// Refuses streams with features unknown or no longer received.
pub(crate) fn check_features(features: StreamFeatures) -> Result<()> {
    if features.without(StreamFeatures::MASK) == StreamFeatures::default() {
        Ok(())
    } else if features.has(StreamFeatures::DEDUP) {
        Err(StreamError::Dedup)
    } else {
        Err(StreamError::Unsupported(features))
    }
}

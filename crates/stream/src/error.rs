//! What can be wrong with a stream, in OpenZFS's words.
//!
//! Each sentence is that which `zfs receive` gives as its reason: `cannot receive: REASON`.

use std::io;

use cenote_format::FormatError;
use cenote_format::stream::StreamFeatures;

/// A stream could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// There is no stream, or its bytes can't be read.
    #[error("failed to read from stream")]
    Read(#[source] io::Error),
    /// Nobody takes the stream's bytes.
    #[error("failed to write to stream")]
    Write(#[source] io::Error),
    /// The bytes end before the stream does.
    #[error("incomplete stream")]
    Incomplete,
    /// The bytes are no stream.
    #[error("invalid stream (bad magic number)")]
    BadMagic,
    /// A record is not where one belongs.
    #[error("invalid record type")]
    WrongPlace,
    /// A record's fields contradict the format.
    #[error("invalid stream ({0})")]
    Record(#[from] FormatError),
    /// The payload is no list of properties.
    #[error("invalid stream (malformed nvlist)")]
    Nvlist(#[source] FormatError),
    /// The snapshot has no name that could be one.
    #[error("invalid stream (bad snapshot name)")]
    Name,
    /// The bytes are not those that were sent.
    #[error("checksum mismatch")]
    Checksum,
    /// The same, in the beginning of a package.
    #[error("incorrect header checksum")]
    HeaderChecksum,
    /// The stream is of a kind that is no longer received.
    #[error("stream has deprecated feature: dedup, try 'zstream redup [send in a file] | zfs recv [...]'")]
    Dedup,
    /// The stream needs what this version does not know.
    #[error(
        "stream has unsupported feature, feature flags = {:x} (unknown flags = {:x})",
        .0.0,
        .0.without(StreamFeatures::MASK).0
    )]
    Unsupported(StreamFeatures),
}

/// Result of reading or writing a stream.
pub type Result<T, E = StreamError> = std::result::Result<T, E>;

/// Refuses streams with features that nobody knows, or that are no longer received.
pub(crate) fn check_features(features: StreamFeatures) -> Result<()> {
    if features.without(StreamFeatures::MASK) == StreamFeatures::default() {
        Ok(())
    } else if features.has(StreamFeatures::DEDUP) {
        Err(StreamError::Dedup)
    } else {
        Err(StreamError::Unsupported(features))
    }
}

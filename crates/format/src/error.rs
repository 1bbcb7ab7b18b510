//! What can be wrong with bytes that claim to be a structure.
//!
//! The layers above know where the bytes came from (vdev, dataset, object, offset) and add that.

/// A structure could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes end before the structure does.
    #[error("{what}: needs {need} bytes, has {have}")]
    Truncated {
        /// The structure or field.
        what: &'static str,
        /// Bytes needed.
        need: usize,
        /// Bytes available.
        have: usize,
    },
    /// Neither byte order gives the expected magic number.
    #[error("{what}: bad magic number {found:#x}")]
    BadMagic {
        /// The structure.
        what: &'static str,
        /// What was found instead.
        found: u64,
    },
    /// A length, count, offset or selector exceeds the bound that the format sets.
    #[error("{what}: {value} is out of range (bound {bound})")]
    OutOfRange {
        /// The field.
        what: &'static str,
        /// Its value on disk.
        value: u64,
        /// The bound that it breaks.
        bound: u64,
    },
    /// The structure contradicts itself.
    #[error("{what}: {why}")]
    Corrupt {
        /// The structure.
        what: &'static str,
        /// The contradiction, as a clause.
        why: &'static str,
    },
}

/// Result of decoding.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;

/// Checks that `value` is at most `bound`, and names the field if it is not.
pub fn at_most(what: &'static str, value: u64, bound: u64) -> Result<u64> {
    if value <= bound { Ok(value) } else { Err(FormatError::OutOfRange { what, value, bound }) }
}

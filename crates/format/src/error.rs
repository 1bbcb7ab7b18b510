//! Decoding errors.
//!
//! The layers above add the origin of the bytes (vdev, dataset, object, offset).

/// Decoding error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes end too early.
    #[error("{what}: needs {need} bytes, has {have}")]
    Truncated {
        /// Structure or field.
        what: &'static str,
        /// Bytes needed.
        need: usize,
        /// Bytes available.
        have: usize,
    },
    /// Neither byte order gives the magic number.
    #[error("{what}: bad magic number {found:#x}")]
    BadMagic {
        /// Structure.
        what: &'static str,
        /// Value found.
        found: u64,
    },
    /// A length, count, offset or selector exceeds the format's bound.
    #[error("{what}: {value} is out of range (bound {bound})")]
    OutOfRange {
        /// Field.
        what: &'static str,
        /// Value on disk.
        value: u64,
        /// Bound.
        bound: u64,
    },
    /// The structure contradicts itself.
    #[error("{what}: {why}")]
    Corrupt {
        /// Structure.
        what: &'static str,
        /// Contradiction, as a clause.
        why: &'static str,
    },
}

/// Result of decoding.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;

/// Checks that `value` is at most `bound`; the error names the field.
pub fn at_most(what: &'static str, value: u64, bound: u64) -> Result<u64> {
    if value <= bound { Ok(value) } else { Err(FormatError::OutOfRange { what, value, bound }) }
}

//! Errors between a block pointer and its bytes: one flat enum.
//!
//! Errors are cheap to clone, because several readers may wait for one block. They name block
//! ([`Zbookmark`]), addresses and device.

use crate::alloc::AllocError;
use crate::multihost::MultihostError;
use crate::zbookmark::Zbookmark;
use cenote_codec::checksum::ChecksumError;
use cenote_device::DeviceError;
use cenote_format::FormatError;
use cenote_format::units::{DatasetId, Txg, VdevId};
use std::sync::Arc;

/// Result of the pool layer.
pub type Result<T, E = PoolError> = std::result::Result<T, E>;

/// An error of the pool layer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PoolError {
    /// No combination of copies and columns matches.
    #[error("{place}: damaged: no copy at {at} has the right checksum ({source})")]
    Checksum {
        /// The block.
        place: Zbookmark,
        /// Addresses as `vdev:offset:asize`, hex.
        at: Arc<str>,
        /// Result of the last attempt.
        source: ChecksumError,
    },
    /// The block may have been freed since its pointer was read.
    #[error("{place}: was freed while it was being read, and its space at {at} reused; read it again")]
    Reused {
        /// The block.
        place: Zbookmark,
        /// Addresses as `vdev:offset:asize`, hex.
        at: Arc<str>,
    },
    /// Too many devices of the block are missing or failing.
    #[error(
        "{place}: no copy at {at} can be read: {why}; attach the missing devices, or name their folder \
         with -d"
    )]
    Unreadable {
        /// The block.
        place: Zbookmark,
        /// Addresses as `vdev:offset:asize`, hex.
        at: Arc<str>,
        /// The last device's error.
        why: Arc<str>,
    },
    /// A block pointer with impossible content.
    #[error("{place}: damaged block pointer: {why}")]
    BadPointer {
        /// The block.
        place: Zbookmark,
        /// The contradiction.
        why: Arc<str>,
    },
    /// The bytes match the checksum but don't decompress.
    #[error("{place}: does not decompress: {why}")]
    Decompress {
        /// The block.
        place: Zbookmark,
        /// The decompressor's error.
        why: Arc<str>,
    },
    /// The bytes match the checksum but fail authentication.
    #[error("{place}: does not decrypt: {why}; wrong key, or the block was tampered with")]
    Decrypt {
        /// The block.
        place: Zbookmark,
        /// The cipher's error.
        why: Arc<str>,
    },
    /// The block is encrypted and no key was given.
    #[error("dataset {dataset} is encrypted and its key is not loaded; give one with --key")]
    NoKey {
        /// The dataset.
        dataset: DatasetId,
    },
    /// A redacted send left the block out.
    #[error("{place}: redacted: the block was left out when this dataset was received")]
    Redacted {
        /// The block.
        place: Zbookmark,
    },
    /// A device failed outside of any block.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A label or configuration cannot be decoded.
    #[error("{what}: {source}")]
    Format {
        /// The structure and its place.
        what: Arc<str>,
        /// The decoder's error.
        source: FormatError,
    },
    /// The configuration is contradictory or unsupported.
    #[error("pool '{pool}': {why}")]
    Config {
        /// Pool name.
        pool: Arc<str>,
        /// The contradiction.
        why: Arc<str>,
    },
    /// Another machine has it, or can't be kept from taking it.
    #[error("pool '{pool}' {why}")]
    Multihost {
        /// Pool name.
        pool: Arc<str>,
        /// The reason, and the remedy.
        why: MultihostError,
    },
    /// Too few devices for any block on a vdev.
    #[error("pool '{pool}': vdev {vdev} is unavailable: {why}")]
    Unavailable {
        /// Pool name.
        pool: Arc<str>,
        /// The top-level vdev.
        vdev: VdevId,
        /// The missing devices.
        why: Arc<str>,
    },
    /// No room for a block, not even in pieces.
    #[error("{place}: {source}; free some, or add a vdev")]
    NoSpace {
        /// The block.
        place: Zbookmark,
        /// The failed request.
        source: AllocError,
    },
    /// Too many devices failed to write a block.
    #[error("{place}: cannot be written: vdev {vdev}: {why}; `zpool status` shows which devices fail")]
    NotWritten {
        /// The block.
        place: Zbookmark,
        /// The top-level vdev that failed last.
        vdev: VdevId,
        /// Its error.
        why: Arc<str>,
    },
    /// The block can't be encrypted.
    #[error("{place}: cannot be encrypted: {why}")]
    Encrypt {
        /// The block.
        place: Zbookmark,
        /// The cipher's error.
        why: Arc<str>,
    },
    /// A bug: the data cannot form a block.
    #[error("{place}: cannot be written: {why}; please report this")]
    BadWrite {
        /// The block.
        place: Zbookmark,
        /// The contradiction.
        why: Arc<str>,
    },
    /// No uberblock has this txg.
    #[error("pool '{pool}': no uberblock of txg {txg}; `zpool import` lists those there are")]
    NoUberblock {
        /// Pool name.
        pool: Arc<str>,
        /// The requested txg.
        txg: Txg,
    },
}

impl PoolError {
    /// Whether the block is damaged or lost, rather than in need of a key or device.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            PoolError::Checksum { .. }
                | PoolError::Unreadable { .. }
                | PoolError::BadPointer { .. }
                | PoolError::Decompress { .. }
                | PoolError::Decrypt { .. }
        )
    }
}

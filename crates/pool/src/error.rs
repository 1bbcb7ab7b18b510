//! What can go wrong between a block pointer and its bytes: one flat enum.
//!
//! Errors are cheap to clone, since several readers may wait for one block, and say where: which block
//! ([`Place`]), which addresses, which device.

use crate::alloc::AllocError;
use crate::place::Place;
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
    /// Every copy was read, and every combination of columns tried; none has the right checksum.
    #[error(
        "{place}: damaged: no copy at {at} has the right checksum ({source}); \
         `verify` lists what else is damaged, `rescue` copies the rest"
    )]
    Checksum {
        /// The block.
        place: Place,
        /// Its addresses, as `vdev:offset:asize` in hex.
        at: Arc<str>,
        /// What the last attempt gave.
        source: ChecksumError,
    },
    /// Too many of the devices that hold the block are missing or fail to read.
    #[error(
        "{place}: no copy at {at} can be read: {why}; attach the missing devices, or name their folder with -d"
    )]
    Unreadable {
        /// The block.
        place: Place,
        /// Its addresses, as `vdev:offset:asize` in hex.
        at: Arc<str>,
        /// The last device's answer.
        why: Arc<str>,
    },
    /// A block pointer says what can't be true.
    #[error("{place}: damaged block pointer: {why}")]
    BadPointer {
        /// The block.
        place: Place,
        /// The contradiction.
        why: Arc<str>,
    },
    /// The bytes have the right checksum and don't decompress.
    #[error("{place}: does not decompress: {why}")]
    Decompress {
        /// The block.
        place: Place,
        /// The decompressor's words.
        why: Arc<str>,
    },
    /// The bytes have the right checksum and aren't what the key's owner wrote.
    #[error("{place}: does not decrypt: {why}; wrong key, or the block was tampered with")]
    Decrypt {
        /// The block.
        place: Place,
        /// The cipher's words.
        why: Arc<str>,
    },
    /// The block is encrypted and no key was given.
    #[error("dataset {dataset} is encrypted and its key is not loaded; give one with --key")]
    NoKey {
        /// The dataset.
        dataset: DatasetId,
    },
    /// The block was left out by a redacted send.
    #[error("{place}: redacted: the block was left out when this dataset was received")]
    Redacted {
        /// The block.
        place: Place,
    },
    /// A device failed outside of any block.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A label or configuration can't be decoded.
    #[error("{what}: {source}")]
    Format {
        /// The structure and where it was.
        what: Arc<str>,
        /// What is wrong with it.
        source: FormatError,
    },
    /// The configuration contradicts itself or asks for what this version can't do.
    #[error("pool '{pool}': {why}")]
    Config {
        /// The pool's name.
        pool: Arc<str>,
        /// The contradiction.
        why: Arc<str>,
    },
    /// A top-level vdev has too few devices for any block on it.
    #[error("pool '{pool}': vdev {vdev} is unavailable: {why}")]
    Unavailable {
        /// The pool's name.
        pool: Arc<str>,
        /// The top-level vdev.
        vdev: VdevId,
        /// Which devices are missing.
        why: Arc<str>,
    },
    /// No room for a block, not even in pieces.
    #[error("{place}: {source}; free some, or add a vdev")]
    NoSpace {
        /// The block.
        place: Place,
        /// What was looked for.
        source: AllocError,
    },
    /// A block could not be written anywhere: too many devices failed.
    #[error("{place}: cannot be written: vdev {vdev}: {why}; `zpool status` shows which devices fail")]
    NotWritten {
        /// The block.
        place: Place,
        /// The top-level vdev that failed last.
        vdev: VdevId,
        /// Its device's answer.
        why: Arc<str>,
    },
    /// The block can't be encrypted.
    #[error("{place}: cannot be encrypted: {why}")]
    Encrypt {
        /// The block.
        place: Place,
        /// The cipher's words.
        why: Arc<str>,
    },
    /// What was to be written can't be a block; a fault of this program.
    #[error("{place}: cannot be written: {why}; please report this")]
    BadWrite {
        /// The block.
        place: Place,
        /// The contradiction.
        why: Arc<str>,
    },
    /// No uberblock as asked for.
    #[error("pool '{pool}': no uberblock of txg {txg}; `zpool import` lists those there are")]
    NoUberblock {
        /// The pool's name.
        pool: Arc<str>,
        /// The transaction group asked for.
        txg: Txg,
    },
}

impl PoolError {
    /// The block itself is damaged or gone (as opposed to a key or a device that can be given).
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

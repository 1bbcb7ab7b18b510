//! Errors between a pool and its datasets: one flat enum.
//!
//! Errors are cheap to clone (a damaged indirect block fails many reads) and give the place and the remedy.

use std::sync::Arc;

use cenote_format::FormatError;
use cenote_format::units::{DatasetId, ObjectId, Txg, VdevId};
use cenote_pool::PoolError;

/// Result of the dataset layer.
pub type Result<T, E = DatasetError> = std::result::Result<T, E>;

/// An error of the dataset layer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DatasetError {
    /// A block is unreadable.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A valid checksum, but invalid content.
    #[error("dataset {dataset} object {object}: {source}")]
    Format {
        /// Its dataset; 0: the MOS.
        dataset: DatasetId,
        /// The object.
        object: ObjectId,
        /// The decoding error.
        source: FormatError,
    },
    /// An object contradicts a reference to it.
    #[error("dataset {dataset} object {object}: damaged: {why}")]
    Damaged {
        /// Its dataset; 0: the MOS.
        dataset: DatasetId,
        /// The object.
        object: ObjectId,
        /// The contradiction.
        why: Arc<str>,
    },
    /// No such object.
    #[error("dataset {dataset} has no object {object}")]
    NoObject {
        /// Its dataset; 0: the MOS.
        dataset: DatasetId,
        /// Its number.
        object: ObjectId,
    },
    /// A table has that entry already.
    #[error("dataset {dataset} object {object} has an entry '{name}' already")]
    EntryExists {
        /// Its dataset; 0: the MOS.
        dataset: DatasetId,
        /// The table.
        object: ObjectId,
        /// The name.
        name: Arc<str>,
    },
    /// A table lacks that entry.
    #[error("dataset {dataset} object {object} has no entry '{name}'")]
    NoEntry {
        /// Its dataset; 0: the MOS.
        dataset: DatasetId,
        /// The table.
        object: ObjectId,
        /// The name.
        name: Arc<str>,
    },
    /// A table can't hold such an entry.
    #[error("dataset {dataset} object {object} can't take '{name}': it {why}")]
    EntryRefused {
        /// Its dataset; 0: the MOS.
        dataset: DatasetId,
        /// The table.
        object: ObjectId,
        /// The name.
        name: Arc<str>,
        /// The reason, as a clause.
        why: Arc<str>,
    },
    /// No such dataset, snapshot or bookmark.
    #[error("cannot open '{name}': dataset does not exist; `zfs list -t all` shows what there is")]
    NoDataset {
        /// The name.
        name: Arc<str>,
    },
    /// The key of an encrypted dataset is missing.
    #[error("'{name}' is encrypted; give the key of '{root}' with --key {root}=...")]
    KeyMissing {
        /// The dataset.
        name: Arc<str>,
        /// Its encryption root.
        root: Arc<str>,
    },
    /// The given key is wrong.
    #[error("incorrect key for '{root}': {why}")]
    WrongKey {
        /// The encryption root.
        root: Arc<str>,
        /// The mismatch.
        why: Arc<str>,
    },
    /// The pool uses unreadable features.
    #[error("pool '{pool}' uses features that this version can't read: {features}")]
    UnsupportedFeatures {
        /// Its name.
        pool: Arc<str>,
        /// Guids and descriptions.
        features: Arc<str>,
    },
    /// The pool has an unreleased version.
    #[error("pool '{pool}' has version {version}; this version reads 1 to 28 and 5000")]
    UnsupportedVersion {
        /// Its name.
        pool: Arc<str>,
        /// The uberblock's version.
        version: u64,
    },
    /// No state of the pool could be opened.
    #[error(
        "pool '{pool}': no transaction group could be opened; the newest one tried, {txg}: {why}; `cenote \
         rescue {pool} FOLDER` saves what \
         can still be read"
    )]
    NotOpened {
        /// Its name.
        pool: Arc<str>,
        /// The newest txg tried.
        txg: Txg,
        /// The cause.
        why: Arc<str>,
    },
    /// Metadata needed to open a pool is lost.
    #[error("the {part} can't be read: {source}")]
    Unopenable {
        /// The part.
        part: &'static str,
        /// The cause.
        source: Arc<DatasetError>,
    },
    /// Metadata needed to change a pool is lost. Nothing was written.
    #[error(
        "pool '{pool}' can be read but not changed: its {part} can't be read: {source}; look at it with \
         `zpool import -o readonly=on {pool}` and copy its files with `cenote cp`, or go back to a state \
         that is whole with `zpool import -F {pool}`"
    )]
    Unchangeable {
        /// Its name.
        pool: Arc<str>,
        /// The part.
        part: &'static str,
        /// The cause.
        source: Arc<DatasetError>,
    },
    /// An unreadable intent log: a change would lose its last commits.
    #[error(
        "the intent log of '{name}' can't be read to its end: {source}; bring back the device that holds it, \
         or give up what can't be read with `zpool import -m {pool}`"
    )]
    LogUnreadable {
        /// The pool.
        pool: Arc<str>,
        /// The dataset.
        name: Arc<str>,
        /// Where reading ended.
        source: Arc<DatasetError>,
    },
    /// A dataset was renamed since a user's rights were checked. The command can begin again.
    #[error("a dataset of pool '{pool}' has just been renamed; try again")]
    Renamed {
        /// The pool.
        pool: Arc<str>,
    },
    /// A task met changes of a later txg than its own. It can run again in the next txg.
    #[error("'{name}' has just been changed; try again")]
    NextTxg {
        /// The dataset.
        name: Arc<str>,
    },
    /// A txg could not be written: the engine has stopped.
    #[error(
        "pool '{pool}' takes no more changes, since txg {txg} could not be written: {why}; all txgs before \
         it are on disk: export the pool, mend what is wrong and import it again"
    )]
    Stopped {
        /// Its name.
        pool: Arc<str>,
        /// The txg.
        txg: Txg,
        /// The cause.
        why: Arc<str>,
    },
    /// The pool waits for its devices, then completes operations under way.
    #[error(
        "pool '{pool}': pool I/O is currently suspended: vdev {vdev}: {why}; mend the devices, then `zpool \
         clear {pool}`"
    )]
    Suspended {
        /// Its name.
        pool: Arc<str>,
        /// The failing vdev.
        vdev: VdevId,
        /// The failure.
        why: Arc<str>,
    },
    /// The pool has no checkpoint.
    #[error("pool '{pool}' has no checkpoint")]
    NoCheckpoint {
        /// Its name.
        pool: Arc<str>,
    },
    /// The name is taken.
    #[error("'{name}' already exists; choose another name, or destroy it first")]
    DatasetExists {
        /// The name.
        name: Arc<str>,
    },
    /// The name is invalid.
    #[error("'{name}' can't be a name: {why}")]
    BadName {
        /// The name.
        name: Arc<str>,
        /// The rule it breaks.
        why: Arc<str>,
    },
    /// A property can't have this value.
    #[error("cannot set property for '{name}': {why}")]
    BadProperty {
        /// The dataset.
        name: Arc<str>,
        /// The property.
        property: Arc<str>,
        /// The reason, and the remedy.
        why: Arc<str>,
    },
    /// In use, or needed by others.
    #[error("'{name}' is busy: {why}")]
    Busy {
        /// The dataset.
        name: Arc<str>,
        /// The user, and the remedy.
        why: Arc<str>,
    },
    /// Out of space.
    #[error(
        "'{name}': out of space: {needed_bytes} bytes are needed and {available_bytes} available; free \
         some, or raise quotas"
    )]
    NoSpace {
        /// The dataset.
        name: Arc<str>,
        /// Bytes needed.
        needed_bytes: u64,
        /// Bytes available.
        available_bytes: u64,
    },
    /// A quota of the dataset, or one above, is used up.
    #[error(
        "pool '{pool}': dataset {dataset} has used up its quota, or one above it has: free some, or raise \
         the quota"
    )]
    OverQuota {
        /// Its name.
        pool: Arc<str>,
        /// The dataset.
        dataset: DatasetId,
    },
    /// Too many file systems or snapshots.
    #[error("'{name}': {limit} is reached; `zfs get -r {limit}` shows where")]
    OverLimit {
        /// The dataset.
        name: Arc<str>,
        /// The property.
        limit: &'static str,
    },
    /// The request makes no sense for the dataset.
    #[error("'{name}': {why}")]
    Unsuitable {
        /// The dataset.
        name: Arc<str>,
        /// The reason.
        why: Arc<str>,
    },
}

impl DatasetError {
    /// [`DatasetError::Busy`].
    pub fn busy(name: &str, why: impl Into<Arc<str>>) -> DatasetError {
        DatasetError::Busy { name: name.into(), why: why.into() }
    }

    /// [`DatasetError::Unsuitable`].
    pub fn unsuitable(name: &str, why: impl Into<Arc<str>>) -> DatasetError {
        DatasetError::Unsuitable { name: name.into(), why: why.into() }
    }

    /// Maps damage to [`DatasetError::Unopenable`].
    pub fn stops_opening(part: &'static str) -> impl Fn(DatasetError) -> DatasetError {
        move |error| match error.is_damage() {
            true => DatasetError::Unopenable { part, source: error.into() },
            false => error,
        }
    }

    /// Maps damage to [`DatasetError::Unchangeable`].
    pub fn stops_changes(pool: &str, part: &'static str) -> impl Fn(DatasetError) -> DatasetError {
        move |error| match error.is_damage() {
            true => DatasetError::Unchangeable { pool: pool.into(), part, source: error.into() },
            false => error,
        }
    }

    /// The right key was not given.
    pub fn is_locked(&self) -> bool {
        matches!(self, DatasetError::KeyMissing { .. } | DatasetError::WrongKey { .. })
    }

    /// Can't be done here and now; the pool is sound.
    pub fn is_refusal(&self) -> bool {
        use DatasetError::*;
        matches!(
            self,
            NoDataset { .. }
                | DatasetExists { .. }
                | BadName { .. }
                | BadProperty { .. }
                | Busy { .. }
                | NextTxg { .. }
                | Renamed { .. }
                | NoSpace { .. }
                | OverQuota { .. }
                | OverLimit { .. }
                | Unsuitable { .. }
                | NoCheckpoint { .. }
                | Suspended { .. }
        ) || self.is_locked()
    }

    /// Something on disk is damaged.
    pub fn is_damage(&self) -> bool {
        match self {
            DatasetError::Pool(error) => error.is_damage(),
            DatasetError::Format { .. } | DatasetError::Damaged { .. } => true,
            DatasetError::LogUnreadable { source, .. }
            | DatasetError::Unopenable { source, .. }
            | DatasetError::Unchangeable { source, .. } => source.is_damage(),
            _ => false,
        }
    }
}

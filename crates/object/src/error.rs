//! What can go wrong between a pool and its datasets: one flat enum.
//!
//! Errors are cheap to clone (a damaged indirect block fails many reads) and say where and what to do next.

use std::sync::Arc;

use cenote_format::FormatError;
use cenote_format::units::{DatasetId, ObjectId, Txg, VdevId};
use cenote_pool::PoolError;

/// Result of the dataset layer.
pub type Result<T, E = DatasetError> = std::result::Result<T, E>;

/// An error of the dataset layer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DatasetError {
    /// A block could not be read.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A structure has the right checksum and makes no sense.
    #[error("dataset {dataset} object {object}: {source}")]
    Format {
        /// The dataset; 0 is the MOS.
        dataset: DatasetId,
        /// The object.
        object: ObjectId,
        /// What is wrong.
        source: FormatError,
    },
    /// An object contradicts what refers to it.
    #[error("dataset {dataset} object {object}: damaged: {why}")]
    Damaged {
        /// The dataset; 0 is the MOS.
        dataset: DatasetId,
        /// The object.
        object: ObjectId,
        /// The contradiction.
        why: Arc<str>,
    },
    /// There is no object of that number.
    #[error("dataset {dataset} has no object {object}")]
    NoObject {
        /// The dataset; 0 is the MOS.
        dataset: DatasetId,
        /// The number asked for.
        object: ObjectId,
    },
    /// A table has an entry of that name already.
    #[error("dataset {dataset} object {object} has an entry '{name}' already")]
    EntryExists {
        /// The dataset; 0 is the MOS.
        dataset: DatasetId,
        /// The table.
        object: ObjectId,
        /// The name.
        name: Arc<str>,
    },
    /// A table has no entry of that name.
    #[error("dataset {dataset} object {object} has no entry '{name}'")]
    NoEntry {
        /// The dataset; 0 is the MOS.
        dataset: DatasetId,
        /// The table.
        object: ObjectId,
        /// The name.
        name: Arc<str>,
    },
    /// A table can't have such an entry.
    #[error("dataset {dataset} object {object} can't take '{name}': it {why}")]
    EntryRefused {
        /// The dataset; 0 is the MOS.
        dataset: DatasetId,
        /// The table.
        object: ObjectId,
        /// The name.
        name: Arc<str>,
        /// Why not, as a clause.
        why: Arc<str>,
    },
    /// There is no dataset, snapshot or bookmark of that name.
    #[error("cannot open '{name}': dataset does not exist; `zfs list -t all` shows what there is")]
    NoDataset {
        /// The name asked for.
        name: Arc<str>,
    },
    /// The dataset is encrypted and nobody gave its key.
    #[error("'{name}' is encrypted; give the key of '{root}' with --key {root}=...")]
    KeyMissing {
        /// The dataset asked for.
        name: Arc<str>,
        /// Its encryption root: whose key it is.
        root: Arc<str>,
    },
    /// The key that was given does not fit.
    #[error("incorrect key for '{root}': {why}")]
    WrongKey {
        /// The encryption root.
        root: Arc<str>,
        /// How it does not fit.
        why: Arc<str>,
    },
    /// The pool uses features that this program can't read.
    #[error("pool '{pool}' uses features that this version can't read: {features}")]
    UnsupportedFeatures {
        /// The pool's name.
        pool: Arc<str>,
        /// The features' guids and descriptions.
        features: Arc<str>,
    },
    /// The pool's version was never released.
    #[error("pool '{pool}' has version {version}; this version reads 1 to 28 and 5000")]
    UnsupportedVersion {
        /// The pool's name.
        pool: Arc<str>,
        /// The version in its uberblock.
        version: u64,
    },
    /// No state of the pool could be opened.
    #[error(
        "pool '{pool}': no transaction group could be opened; the newest one tried, {txg}: {why}; `cenote \
         rescue {pool} FOLDER` saves what \
         can still be read"
    )]
    NotOpened {
        /// The pool's name.
        pool: Arc<str>,
        /// The newest txg tried.
        txg: Txg,
        /// Why it could not be opened.
        why: Arc<str>,
    },
    /// A part of the metadata is lost that a pool can't be opened without.
    #[error("the {part} can't be read: {source}")]
    Unopenable {
        /// The part.
        part: &'static str,
        /// Why it can't be read.
        source: Arc<DatasetError>,
    },
    /// A part of the metadata is lost that a pool can't be changed without. Nothing was written.
    #[error(
        "pool '{pool}' can be read but not changed: its {part} can't be read: {source}; look at it with \
         `zpool import -o readonly=on {pool}` and copy its files with `cenote cp`, or go back to a state \
         that is whole with `zpool import -F {pool}`"
    )]
    Unchangeable {
        /// The pool's name.
        pool: Arc<str>,
        /// The part.
        part: &'static str,
        /// Why it can't be read.
        source: Arc<DatasetError>,
    },
    /// An intent log can't be read to its end: what was committed last would be lost if the pool were changed
    /// now.
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
    /// A task met what belongs to a later txg than its own. Nothing was changed; the same task can run in the
    /// next txg.
    #[error("'{name}' has just been changed; try again")]
    NextTxg {
        /// The dataset.
        name: Arc<str>,
    },
    /// A txg could not be written: the engine does no more.
    #[error(
        "pool '{pool}' takes no more changes, since txg {txg} could not be written: {why}; all txgs before \
         it are on disk: export the pool, mend what is wrong and import it again"
    )]
    Stopped {
        /// The pool's name.
        pool: Arc<str>,
        /// The txg.
        txg: Txg,
        /// What went wrong.
        why: Arc<str>,
    },
    /// The pool waits for its devices. What was begun is done when they work again.
    #[error(
        "pool '{pool}': pool I/O is currently suspended: vdev {vdev}: {why}; mend the devices, then `zpool \
         clear {pool}`"
    )]
    Suspended {
        /// The pool's name.
        pool: Arc<str>,
        /// The vdev that fails.
        vdev: VdevId,
        /// How.
        why: Arc<str>,
    },
    /// The pool has no checkpoint.
    #[error("pool '{pool}' has no checkpoint")]
    NoCheckpoint {
        /// The pool's name.
        pool: Arc<str>,
    },
    /// There is a dataset, snapshot or bookmark of that name already.
    #[error("'{name}' already exists; choose another name, or destroy it first")]
    DatasetExists {
        /// The name.
        name: Arc<str>,
    },
    /// Nothing can have such a name.
    #[error("'{name}' can't be a name: {why}")]
    BadName {
        /// The name.
        name: Arc<str>,
        /// Which rule it breaks.
        why: Arc<str>,
    },
    /// A property can't be set so.
    #[error("cannot set property for '{name}': {why}")]
    BadProperty {
        /// The dataset.
        name: Arc<str>,
        /// The property.
        property: Arc<str>,
        /// Why not, and what to do.
        why: Arc<str>,
    },
    /// The dataset is in use, or others depend on it.
    #[error("'{name}' is busy: {why}")]
    Busy {
        /// The dataset.
        name: Arc<str>,
        /// Who needs it, and what to do.
        why: Arc<str>,
    },
    /// There is less space than is asked for.
    #[error(
        "'{name}': out of space: {needed_bytes} bytes are needed and {available_bytes} available; free \
         some, or raise quotas"
    )]
    NoSpace {
        /// The dataset.
        name: Arc<str>,
        /// What is asked for.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// A quota of the dataset, or of one above it, is used up.
    #[error(
        "pool '{pool}': dataset {dataset} has used up its quota, or one above it has: free some, or raise \
         the quota"
    )]
    OverQuota {
        /// The pool's name.
        pool: Arc<str>,
        /// The dataset.
        dataset: DatasetId,
    },
    /// As many file systems or snapshots as this user may make are there.
    #[error("'{name}': {limit} is reached; `zfs get -r {limit}` shows where")]
    OverLimit {
        /// The dataset.
        name: Arc<str>,
        /// The property.
        limit: &'static str,
    },
    /// What was asked for does not make sense for this dataset.
    #[error("'{name}': {why}")]
    Unsuitable {
        /// The dataset.
        name: Arc<str>,
        /// Why not.
        why: Arc<str>,
    },
}

impl DatasetError {
    /// A dataset that is in use, and why.
    pub fn busy(name: &str, why: impl Into<Arc<str>>) -> DatasetError {
        DatasetError::Busy { name: name.into(), why: why.into() }
    }

    /// What was asked for makes no sense for what has that name, and why.
    pub fn unsuitable(name: &str, why: impl Into<Arc<str>>) -> DatasetError {
        DatasetError::Unsuitable { name: name.into(), why: why.into() }
    }

    /// What reading a part of the metadata that a pool can't be opened without has met, if it is damage.
    pub fn stops_opening(part: &'static str) -> impl Fn(DatasetError) -> DatasetError {
        move |error| match error.is_damage() {
            true => DatasetError::Unopenable { part, source: error.into() },
            false => error,
        }
    }

    /// The same of a part that a pool can't be changed without.
    pub fn stops_changes(pool: &str, part: &'static str) -> impl Fn(DatasetError) -> DatasetError {
        move |error| match error.is_damage() {
            true => DatasetError::Unchangeable { pool: pool.into(), part, source: error.into() },
            false => error,
        }
    }

    /// The data are encrypted and the right key was not given.
    pub fn is_locked(&self) -> bool {
        matches!(self, DatasetError::KeyMissing { .. } | DatasetError::WrongKey { .. })
    }

    /// What was asked for can't be done here and now; nothing is wrong with the pool.
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
                | NoSpace { .. }
                | OverQuota { .. }
                | OverLimit { .. }
                | Unsuitable { .. }
                | NoCheckpoint { .. }
                | Suspended { .. }
        ) || self.is_locked()
    }

    /// Something on disk is damaged, as opposed to a wrong name or key.
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

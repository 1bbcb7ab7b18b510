//! The log of txg times in memory.

use cenote_format::txg_log::TxgLog;

/// The log, and the part of it not on disk yet.
#[derive(Default)]
pub(crate) struct TxgTimes {
    /// `None`: not read yet.
    pub(super) log: Option<TxgLog>,
    /// Seconds since 1970.
    pub(super) flushed_s: u64,
    pub(super) is_unwritten: bool,
}

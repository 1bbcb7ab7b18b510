//! What an engine counts, by the names of OpenZFS's kstats: `dmu_tx`, `zil`, and the last txgs.
//!
//! Idea: a table of names and a cell for each. Counts that make no sense here stay at nought: who reads them
//! finds all names.
//!
//! Locking: counts are relaxed atomics; the history of txgs has a mutex, held for a look or an entry.
//!
//! Source: OpenZFS `dmu_tx.c` (`dmu_tx_stats`), `zil.c` (`zil_stats`), `spa_stats.c` (`spa_txg_history`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_format::units::Txg;
use parking_lot::Mutex;

/// Txgs that are remembered (`zfs_txg_history`).
const TXG_HISTORY: usize = 100;

/// What an engine counts.
#[derive(Debug)]
pub struct Kstats {
    dmu_tx: Counts<13>,
    zil: Counts<21>,
    txgs: Mutex<VecDeque<TxgRecord>>,
}

/// A txg that was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TxgRecord {
    /// Its number.
    pub txg: Txg,
    /// When it was opened, in nanoseconds since the runtime began.
    pub birth_ns: u64,
    /// Bytes that had changed when it was closed.
    pub dirty_bytes: u64,
    /// Bytes that devices read and wrote while it was written, and in how many operations.
    pub moved: [cenote_pool::Moved; 2],
    /// How long it was open.
    pub open_ns: u64,
    /// How long its last operations took.
    pub quiesce_ns: u64,
    /// How long writing it took.
    pub sync_ns: u64,
}

#[derive(Debug)]
struct Counts<const N: usize> {
    names: [&'static str; N],
    cells: [AtomicU64; N],
}

impl<const N: usize> Counts<N> {
    fn new(names: [&'static str; N]) -> Counts<N> {
        Counts { names, cells: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    fn add(&self, at: usize, count: u64) {
        self.cells[at].fetch_add(count, Ordering::Relaxed);
    }

    fn all(&self) -> Vec<(&'static str, u64)> {
        let value = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        self.names.iter().zip(&self.cells).map(|(name, cell)| (*name, value(cell))).collect()
    }
}

/// What becomes of those who want to change something: places in the table.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DmuTx {
    Assigned = 0,
    Error = 2,
    Throttled = 7,
    Delayed = 8,
    Quota = 12,
}

/// What becomes of those who want something to be durable.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Zil {
    Commits = 0,
    Writers = 1,
    Errors = 2,
    Stalls = 3,
    Records = 6,
    Indirect = 7,
    IndirectBytes = 8,
    NeedCopy = 11,
    NeedCopyBytes = 12,
    /// `bytes` and `write` follow, and `alloc`.
    NormalBlocks = 13,
    SlogBlocks = 17,
}

impl Default for Kstats {
    fn default() -> Kstats {
        Kstats { dmu_tx: Counts::new(DMU_TX), zil: Counts::new(ZIL), txgs: Mutex::default() }
    }
}

const DMU_TX: [&str; 13] = [
    "dmu_tx_assigned",
    "dmu_tx_delay",
    "dmu_tx_error",
    "dmu_tx_suspended",
    "dmu_tx_group",
    "dmu_tx_memory_reserve",
    "dmu_tx_memory_reclaim",
    "dmu_tx_dirty_throttle",
    "dmu_tx_dirty_delay",
    "dmu_tx_dirty_over_max",
    "dmu_tx_dirty_frees_delay",
    "dmu_tx_wrlog_delay",
    "dmu_tx_quota",
];

const ZIL: [&str; 21] = [
    "zil_commit_count",
    "zil_commit_writer_count",
    "zil_commit_error_count",
    "zil_commit_stall_count",
    "zil_commit_suspend_count",
    "zil_commit_crash_count",
    "zil_itx_count",
    "zil_itx_indirect_count",
    "zil_itx_indirect_bytes",
    "zil_itx_copied_count",
    "zil_itx_copied_bytes",
    "zil_itx_needcopy_count",
    "zil_itx_needcopy_bytes",
    "zil_itx_metaslab_normal_count",
    "zil_itx_metaslab_normal_bytes",
    "zil_itx_metaslab_normal_write",
    "zil_itx_metaslab_normal_alloc",
    "zil_itx_metaslab_slog_count",
    "zil_itx_metaslab_slog_bytes",
    "zil_itx_metaslab_slog_write",
    "zil_itx_metaslab_slog_alloc",
];

impl Kstats {
    /// `dmu_tx`.
    pub fn dmu_tx(&self) -> Vec<(&'static str, u64)> {
        self.dmu_tx.all()
    }

    /// `zil`.
    pub fn zil(&self) -> Vec<(&'static str, u64)> {
        self.zil.all()
    }

    /// The last txgs that were written, oldest first.
    pub fn txgs(&self) -> Vec<TxgRecord> {
        self.txgs.lock().iter().copied().collect()
    }

    pub(crate) fn tx(&self, what: DmuTx) {
        self.dmu_tx.add(what as usize, 1);
    }

    pub(crate) fn log(&self, what: Zil, count: u64) {
        self.zil.add(what as usize, count);
    }

    /// A block of an intent log is written: `used` of its `bytes` are records.
    pub(crate) fn log_block(&self, is_on_log_device: bool, used: u64, bytes: u64) {
        let first = if is_on_log_device { Zil::SlogBlocks } else { Zil::NormalBlocks } as usize;
        for (at, count) in [1, used, bytes, bytes].into_iter().enumerate() {
            self.zil.add(first + at, count);
        }
    }

    pub(crate) fn txg_written(&self, record: TxgRecord) {
        let mut txgs = self.txgs.lock();
        if txgs.len() == TXG_HISTORY {
            txgs.pop_front();
        }
        txgs.push_back(record);
    }
}

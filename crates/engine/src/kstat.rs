//! Engine counters under the names of OpenZFS's kstats: `dmu_tx`, `zil`, and the last txgs.
//!
//! Idea: a table of names and a cell for each. Counters without a meaning here stay zero, so that readers
//! find all names.
//!
//! Locking: counters are relaxed atomics; the txg history has a mutex, held for one access.
//!
//! Source: OpenZFS `dmu_tx.c` (`dmu_tx_stats`), `zil.c` (`zil_stats`), `spa_stats.c` (`spa_txg_history`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_format::units::Txg;
use parking_lot::Mutex;

/// `zfs_txg_history`.
const TXG_HISTORY: usize = 100;

/// Engine counters.
#[derive(Debug)]
pub struct Kstats {
    dmu_tx: Counts<13>,
    zil: Counts<21>,
    txgs: Mutex<VecDeque<TxgRecord>>,
}

/// Statistics of a written txg.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct TxgRecord {
    /// Its number.
    pub txg: Txg,
    /// When it opened, in ns since the runtime began.
    pub birth_ns: u64,
    /// Dirty bytes when it closed.
    pub dirty_bytes: u64,
    /// Device bytes and operations while it was written.
    pub moved: [cenote_pool::Moved; 2],
    /// Time open.
    pub open_ns: u64,
    /// Time for its last operations.
    pub quiesce_ns: u64,
    /// Time to write it.
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

#[derive(Debug, Clone, Copy)]
pub(crate) enum DmuTx {
    Assigned = 0,
    Error = 2,
    Throttled = 7,
    Delayed = 8,
    Quota = 12,
}

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
    /// Followed by `bytes`, `write` and `alloc`.
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

    /// The last txgs written, oldest first.
    pub fn txgs(&self) -> Vec<TxgRecord> {
        self.txgs.lock().iter().copied().collect()
    }

    pub(crate) fn tx(&self, what: DmuTx) {
        self.dmu_tx.add(what as usize, 1);
    }

    pub(crate) fn log(&self, what: Zil, count: u64) {
        self.zil.add(what as usize, count);
    }

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

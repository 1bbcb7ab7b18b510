//! Replay: what a log holds is done again, before anybody changes the dataset.
//!
//! Idea: what the records mean is for file systems and volumes to know; here is kept how far they have come.
//! Each txg on disk has the number of the last record that is in its tree, so a replay that is cut off goes
//! on where it was.
//!
//! Source: OpenZFS `zil.c` (`zil_replay`, `zil_replaying`).

use cenote_boxed::boxed;
use cenote_format::zil::LogRecord;
use cenote_object::Result;

use crate::engine::Engine;
use crate::logs::OpenedLog;
use crate::open_dataset::OpenDataset;
use crate::txgs::Hold;
use crate::zil::log::Log;

/// A log that has to be replayed before its dataset can be changed.
pub struct PendingReplay {
    /// The dataset's name.
    pub name: String,
    /// Its objects.
    pub dataset: OpenDataset,
    /// What to do again, in order.
    pub records: Vec<LogRecord>,
    log: Log,
}

impl PendingReplay {
    pub(crate) fn new(name: String, dataset: OpenDataset, records: Vec<LogRecord>, log: Log) -> Self {
        PendingReplay { name, dataset, records, log }
    }

    /// A record was replayed (or passed over) under this hold.
    pub fn note(&self, hold: &Hold, record: &LogRecord) {
        self.log.0.chain.lock().note_replayed(hold.txg(), record.seq);
    }

    /// All is replayed that can be: the log goes, and the dataset can be opened. On disk it is when the txg
    /// is.
    pub fn finish(self, hold: &Hold) {
        self.log.0.chain.lock().end_replay(hold.txg());
    }
}

impl Engine {
    /// Logs that were found when the pool was opened, and have to be replayed: `cenote_fs::replay_logs` does
    /// it.
    ///
    /// # Errors
    /// A dataset can't be looked up.
    #[boxed]
    pub async fn logs_to_replay(&self) -> Result<Vec<PendingReplay>> {
        let mut pending = Vec::new();
        for OpenedLog { dataset, objset, log } in self.opened_logs() {
            if !log.needs_replay() {
                continue;
            }
            let name = self.mos().await?.dataset_by_id(dataset).await?.name().to_owned();
            let records = objset.on_disk().intent_log().await.records;
            pending.push(PendingReplay::new(name, OpenDataset::with_log(objset, log.clone()), records, log));
        }
        Ok(pending)
    }
}

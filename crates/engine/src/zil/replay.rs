//! Replay of a log before its dataset may change.
//!
//! Idea: file systems and volumes interpret the records; this module tracks progress. Each txg has the number
//! of the last record in its tree, so an interrupted replay resumes there.
//!
//! Source: OpenZFS `zil.c` (`zil_replay`, `zil_replaying`).

use cenote_boxed::boxed;
use cenote_format::zil::LogRecord;
use cenote_object::{DatasetError, Edit, Result};

use crate::logs::{Logs, OpenedLog};
use crate::open_dataset::OpenDataset;
use crate::zil::log::Log;

/// A log to replay before its dataset can be changed.
pub struct PendingReplay {
    /// The dataset's name.
    pub name: String,
    /// Its objects.
    pub dataset: OpenDataset,
    /// Records to replay, in order.
    pub records: Vec<LogRecord>,
    log: Log,
}

impl PendingReplay {
    pub(crate) fn new(name: String, dataset: OpenDataset, records: Vec<LogRecord>, log: Log) -> Self {
        PendingReplay { name, dataset, records, log }
    }

    /// Replays or skips a record: `change` and the progress are part of one txg. It needs no room, promised
    /// before the crash. A failure records no progress.
    ///
    /// # Errors
    /// Those of `change`; [`DatasetError::Stopped`].
    pub async fn redo<T, E, F>(&self, record: &LogRecord, change: impl FnOnce(Edit) -> F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatasetError> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let engine = self.log.0.engine.upgrade()?;
        let hold = engine.hold().await?;
        let (log, txg, sequence) = (self.log.clone(), hold.txg(), record.seq);
        let change = change(self.dataset.live().edit());
        let noted = async move {
            let done = change.await?;
            log.0.chain.lock().note_replayed(txg, sequence);
            Ok(done)
        };
        engine.under(hold, noted).await
    }

    /// Frees the log with this txg; the dataset can be opened.
    ///
    /// # Errors
    /// [`DatasetError::Stopped`].
    #[boxed]
    pub async fn finish(self) -> Result<()> {
        let hold = self.log.0.engine.upgrade()?.hold().await?;
        self.log.0.chain.lock().end_replay(hold.txg());
        Ok(())
    }
}

impl Logs<'_> {
    /// Logs that await replay by `cenote_fs::replay_logs`.
    ///
    /// # Errors
    /// A dataset can't be looked up.
    #[boxed]
    pub async fn awaiting_replay(&self) -> Result<Vec<PendingReplay>> {
        let mut pending = Vec::new();
        for OpenedLog { dataset, objset, log } in self.0.opened_logs() {
            if !log.needs_replay() {
                continue;
            }
            let name = self.0.mos().await?.dataset_by_id(dataset).await?.name().to_owned();
            let records = objset.on_disk().intent_log().await.records;
            pending.push(PendingReplay::new(name, OpenDataset::with_log(objset, log.clone()), records, log));
        }
        Ok(pending)
    }
}

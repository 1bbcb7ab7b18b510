//! Times of txgs, noted in the pool: a scrub of a range of dates finds its txgs by them.
//!
//! Idea: a txg written anyway is noted with its time, at most one each `spa_note_txg_time`, and the log goes
//! to the MOS directory with it, at most once each `spa_flush_txg_time`. Times on disk count, too, so that a
//! sequence of commands that each open the pool does not fill the log. OpenZFS counts from the import
//! instead, and notes another txg at the export.
//!
//! Locking: only the writer of a txg changes the log.
//!
//! Source: OpenZFS `spa.c` (`spa_sync_time_logger`).

pub(crate) mod noted;

use cenote_boxed::boxed;
use cenote_dataset::mos::txg_log_in;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::txg_log::{TxgLog, TxgTime};
use cenote_object::{Result, Zap, ZapEdit, ZapValue};

use crate::context::SyncContext;
use crate::engine::Engine;
use noted::TxgTimes;

impl Engine {
    /// Times of txgs, also those not on disk yet.
    ///
    /// # Errors
    /// Damaged object directory.
    #[boxed]
    pub async fn txg_log(&self) -> Result<TxgLog> {
        let known = self.0.txg_times.lock().await.log.clone();
        match known {
            Some(log) => Ok(log),
            None => self.mos().await?.txg_log().await,
        }
    }
}

/// Notes the syncing txg if it is time. A damaged directory costs only the note.
pub(crate) async fn note_txg(context: &SyncContext) -> Result<()> {
    let done = context.engine.txg_times.lock().await.note(context).await;
    outcome(context, done)
}

/// Brings noted txgs to disk, before the pool is closed.
pub(crate) async fn flush_txg_log(context: &SyncContext) -> Result<()> {
    let done = context.engine.txg_times.lock().await.flush(context).await;
    outcome(context, done)
}

fn outcome(context: &SyncContext, done: Result<()>) -> Result<()> {
    match done {
        Err(error) if error.is_damage() => {
            let why = format!("the time of txg {} was not noted: {error}", context.txg());
            context.syncing.pool.read_errors().note_aside(why);
            Ok(())
        }
        done => done,
    }
}

impl TxgTimes {
    async fn note(&mut self, context: &SyncContext) -> Result<()> {
        if self.log.is_none() {
            // If it can't be read, later txgs begin a new one.
            self.log = Some(TxgLog::default());
            let directory = Zap::open_id(&context.edit().view(), DMU_POOL_DIRECTORY_OBJECT).await?;
            self.log = Some(txg_log_in(&directory).await?);
        }
        let (settings, now_s) = (context.scan_settings(), context.now_s());
        let log = self.log.get_or_insert_default();
        if now_s >= log.newest_s().saturating_add(settings.note_txg_seconds()) {
            self.is_unwritten |= log.add(TxgTime { time_s: now_s, txg: context.txg() });
        }
        match now_s >= self.flushed_s.saturating_add(settings.flush_txg_seconds()) {
            true => self.flush(context).await,
            false => Ok(()),
        }
    }

    async fn flush(&mut self, context: &SyncContext) -> Result<()> {
        let Some(log) = self.log.as_ref().filter(|_| self.is_unwritten) else { return Ok(()) };
        (self.is_unwritten, self.flushed_s) = (false, context.now_s());
        let edit = context.edit();
        let directory = ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT);
        for (name, ring) in [
            (names::TXG_LOG_TIME_MINUTES, &log.minutes),
            (names::TXG_LOG_TIME_DAYS, &log.days),
            (names::TXG_LOG_TIME_MONTHS, &log.months),
        ] {
            directory.update(name, ZapValue::from_words(&ring.to_words())).await?;
        }
        Ok(())
    }
}

//! Commits: who asks while one is written is served together with all others by the next.
//!
//! Idea: each takes a number and waits for its turn. Whose turn it is writes for all numbers handed out so
//! far; the others find, when theirs comes, that they have been served. If anything fails, a txg covers it
//! all instead. A commit that has begun is written to its end, whoever goes away: others wait for it, and
//! blocks that it has allocated must not get lost.
//!
//! Source: OpenZFS `zil.c` (`zil_commit`, `zil_commit_writer`, `zil_commit_writer_stall`, `zil_create`).

use std::sync::atomic::Ordering;

use cenote_format::features::Since;
use cenote_format::units::{ObjectId, Txg};
use cenote_format::zil::ZIL_MIN_BLKSZ;
use cenote_object::{LiveObjset, Result};

use crate::engine::Engine;
use crate::kstat::Zil;
use crate::zil::log::Log;
use crate::zil::policy::SyncPolicy;
use crate::zil::turn::Turn;
use crate::zil::write::LogWriter;

impl Log {
    /// Makes durable what was done to an object, or to any, and all that happened to names. Not under a hold.
    pub(crate) async fn commit(&self, live: &LiveObjset, object: Option<ObjectId>) -> Result<()> {
        if self.0.policy.read().sync == SyncPolicy::Disabled {
            return Ok(());
        }
        let (log, live) = (self.clone(), live.clone());
        let commit = |engine| async move { log.commit_in_turn(&engine, &live, object).await };
        self.0.engine.upgrade()?.to_end(commit).await
    }

    async fn commit_in_turn(
        &self,
        engine: &Engine,
        live: &LiveObjset,
        object: Option<ObjectId>,
    ) -> Result<()> {
        self.0.records.lock().release(object);
        engine.0.kstats.log(Zil::Commits, 1);
        let number = self.0.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let mut turn = self.0.turn.lock().await;
        if turn.served >= number {
            return Ok(());
        }
        let served = self.0.asked.load(Ordering::Acquire);
        let written = self.write_out(engine, live, &mut turn).await;
        engine.0.kstats.log(Zil::Writers, 1);
        if !matches!(written, Ok(true)) {
            engine.0.kstats.log(if written.is_ok() { Zil::Stalls } else { Zil::Errors }, 1);
            engine.for_client(engine.sync_all()).await?;
        }
        turn.served = served;
        Ok(())
    }

    /// Writes all records that are to be. Answers whether they say all; if not, a txg has to.
    async fn write_out(&self, engine: &Engine, live: &LiveObjset, turn: &mut Turn) -> Result<bool> {
        let unsaid = self.0.records.lock().unsaid();
        // Logs of older pools have another form: there a txg takes their place.
        if !engine.pool().has(Since::SlimLog) {
            return Ok(false);
        }
        engine.for_client(engine.sync(unsaid)).await?;
        if !self.0.records.lock().has_any(engine.synced()?) {
            return Ok(true);
        }
        if self.0.chain.lock().is_ending() {
            return Ok(false);
        }
        let begun = self.0.chain.lock().begun();
        let begun = match begun {
            Some(begun) => begun,
            None => self.begin(engine).await?,
        };
        // The head has to lead there first. This covers what happened until then.
        engine.for_client(engine.sync(begun)).await?;
        let notes = self.0.records.lock().take(engine.synced()?);
        if notes.is_empty() {
            return Ok(true);
        }
        let written = match LogWriter::new(self, engine, live, &notes, turn) {
            Ok(writer) => writer.write(notes).await,
            Err(error) => Err(error),
        };
        match written {
            Ok(true) => self.0.settled.notify_waiters(),
            // What it has taken is nowhere but in the txg.
            _ => self.end(engine.open_txg()),
        }
        written
    }

    /// Finds a place for the first block of a new chain.
    async fn begin(&self, engine: &Engine) -> Result<Txg> {
        let hold = engine.hold().await?;
        let random = || engine.runtime().random_u64();
        let words = [random(), random(), self.0.dataset.0, 1];
        let bp = self.place(engine, &hold, ZIL_MIN_BLKSZ as u64, words)?;
        self.0.chain.lock().foretell(bp, hold.txg());
        Ok(hold.txg())
    }
}

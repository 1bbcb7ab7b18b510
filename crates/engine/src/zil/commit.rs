//! Commits: requests that arrive while one is written share the next.
//!
//! Idea: each request takes a number and waits for its turn. In its turn it writes for all numbers handed out
//! so far. After any failure, a txg covers the commit instead. A commit runs to its end even if its caller is
//! cancelled: others wait for it, and its blocks must not leak.
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
    /// See [`crate::OpenDataset::commit`].
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
        if matches!(written, Ok(true)) {
            engine.pool().lacking().witnessed().await?;
        } else {
            engine.0.kstats.log(if written.is_ok() { Zil::Stalls } else { Zil::Errors }, 1);
            engine.for_client(engine.sync_all()).await?;
        }
        turn.served = served;
        Ok(())
    }

    /// Returns false if a txg is needed instead.
    async fn write_out(&self, engine: &Engine, live: &LiveObjset, turn: &mut Turn) -> Result<bool> {
        let unsaid = self.0.records.lock().unsaid();
        // Older pools have another log format.
        if !engine.pool().uberblock().has(Since::SlimLog) {
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
        // The header must point there first; this covers earlier changes.
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
            // The records taken are covered only by the txg.
            _ => self.end(engine.open_txg()),
        }
        written
    }

    async fn begin(&self, engine: &Engine) -> Result<Txg> {
        let hold = engine.hold().await?;
        let random = || engine.runtime().random_u64();
        let words = [random(), random(), self.0.dataset.0, 1];
        let bp = self.place(engine, &hold, ZIL_MIN_BLKSZ as u64, words)?;
        self.0.chain.lock().foretell(bp, hold.txg());
        Ok(hold.txg())
    }
}

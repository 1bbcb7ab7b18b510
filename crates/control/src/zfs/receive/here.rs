//! The surroundings of a receive: the daemon's mounts, and the caller.

use std::time::Duration;

use cenote_dataset::DatasetKind;
use cenote_engine::Engine;
use cenote_object::{DatasetError, Result};
use cenote_stream::receive::{Host, Reshared, Work};

use crate::caller::Note;
use crate::error::ControlError;
use crate::session::{Session, pool_of};
use crate::text::nice_bytes;
use crate::zfs::tree::above::create_ancestors;

pub(super) struct Here<'a> {
    pub(super) session: &'a Session,
    pub(super) engine: &'a Engine,
    pub(super) verbose: bool,
    pub(super) force_unmount: bool,
}

impl Here<'_> {
    /// Runs work while a dataset and its descendants are unmounted.
    async fn unmounted(&self, name: &str, work: Work<'_>) -> Result<()> {
        let Some(pool) = self.session.held_by_name(pool_of(name)) else { return work.await };
        let unmounted = |error: &dyn std::fmt::Display| DatasetError::busy(name, error.to_string());
        // Unmounting by force, and mounting what was not mounted before, are for administrators.
        if self.force_unmount && self.session.caller().may_do_all() {
            pool.mounts.unmount_below(Some(name), true).await.map_err(|error| unmounted(&error))?;
            let done = work.await;
            self.engine.sync_all().await?;
            for failure in pool.mounts.mount_below(Some(name)).await.into_iter().flatten() {
                self.session.caller().note_bare(failure.to_string());
            }
            return done;
        }
        let done = self.session.with_unmounted(name, async || Ok(work.await)).await;
        done.map_err(|error: ControlError| unmounted(&error))?
    }

    async fn replace(&self, target: &str, filled: &str, is_raw: bool, work: Work<'_>) -> Result<()> {
        let Some(pool) = self.session.held_by_name(pool_of(target)) else { return work.await };
        let head = self.engine.mos().await?.dataset(target).await?;
        let snapshots = head.snapshots().await?;
        pool.mounts.let_go_of_snapshots(&snapshots).await;
        if pool.mounts.files(head.id()).is_none() {
            return work.await;
        }
        // The comparison with the mount needs the state on disk.
        self.engine.sync_all().await?;
        let mos = self.engine.mos().await?;
        let (head, to) = (mos.dataset(target).await?, mos.dataset(filled).await?);
        if is_raw || to.kind().await? != DatasetKind::Filesystem {
            return self.unmounted(target, work).await;
        }
        let replaced = pool.mounts.replace_tree(&head, &to, async || work.await).await;
        replaced.map_err(|error| DatasetError::unsuitable(target, error.to_string()))?
    }

    async fn move_it(&self, name: &str, work: Work<'_>) -> Result<()> {
        if !name.contains('@') {
            return self.unmounted(name, work).await;
        }
        if let Some(pool) = self.session.held_by_name(pool_of(name)) {
            let snapshot = self.engine.mos().await?.dataset(name).await?;
            pool.mounts.let_go_of_snapshots(&[snapshot]).await;
        }
        work.await
    }
}

impl Host for Here<'_> {
    fn line(&self, text: String) {
        if self.verbose {
            self.session.caller().console.note(Note::Line(text));
        }
    }

    fn received(&self, bytes: u64, took: Duration) {
        let seconds = took.as_secs_f64().max(1e-9);
        let (size, rate) = (nice_bytes(bytes), nice_bytes((bytes as f64 / seconds) as u64));
        self.line(format!("received {size} stream in {seconds:.2} seconds ({rate}/sec)"));
    }

    fn reshared(&self, Reshared { blocks, bytes }: Reshared) {
        self.line(format!("shared {blocks} blocks ({}) with equal ones", nice_bytes(bytes)));
    }

    fn warn(&self, text: String) {
        self.session.caller().note_bare(text);
    }

    fn replacing<'a>(&'a self, target: &'a str, filled: &'a str, is_raw: bool, work: Work<'a>) -> Work<'a> {
        Box::pin(self.replace(target, filled, is_raw, work))
    }

    fn moving<'a>(&'a self, name: &'a str, work: Work<'a>) -> Work<'a> {
        Box::pin(self.move_it(name, work))
    }

    fn make_parents<'a>(&'a self, name: &'a str) -> Work<'a> {
        Box::pin(async move {
            let made = create_ancestors(self.session, self.engine, name).await;
            made.map(drop).map_err(|error| DatasetError::unsuitable(name, error.to_string()))
        })
    }
}

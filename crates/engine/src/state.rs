//! Ownership of a pool, as recorded in its labels.
//!
//! Idea: labels of a pool in use name the host that changes it; an orderly close marks it as exported, so
//! another host can import it without force.
//!
//! Source: OpenZFS `spa.c` (`spa_import`, `spa_export_common`).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cenote_boxed::boxed;
use cenote_device::Gate;
use cenote_format::label::{PoolConfig, PoolState};
use cenote_format::units::Txg;
use cenote_object::Result;

use crate::context::SyncContext;
use crate::engine::{Engine, LiveDataset, Shared};
use crate::host::Host;
use crate::import_export::{BehindGate, OpenState};
use crate::sync::write_config;
use crate::txg_times::flush_txg_log;
use crate::zil::log::Log;

async fn set_state(context: &mut SyncContext, state: PoolState, host: Host) -> Result<()> {
    {
        let mut config = context.engine.config.lock();
        config.state = state;
        config.hostid = host.hostid();
        config.hostname = Some(host.name);
    }
    if state != PoolState::Active {
        if !context.scan_settings().keeps_space_log() {
            context.engine.space_maps.lock().await.log.flush_all();
        }
        flush_txg_log(context).await?;
    }
    context.config_changed = true;
    // Write it here: with nothing dirty, no pass would.
    write_config(context).await
}

/// The owner of a pool, and its first change.
#[derive(Clone, Copy)]
pub struct Ownership<'a>(&'a Engine);

impl Engine {
    /// Ownership, which labels record.
    pub fn ownership(&self) -> Ownership<'_> {
        Ownership(self)
    }
}

impl Ownership<'_> {
    /// Makes `host` the owner of the pool behind `gate` from its first change on. Call once, before any
    /// change.
    pub fn take(&self, gate: &Gate, host: Host) {
        let pool = self.0.pool();
        let mut config = self.0.0.config.lock();
        (config.state, config.hostid) = (PoolState::Active, host.hostid());
        config.hostname = Some(host.name.clone());
        let found = pool.tree().found();
        let taking = OpenState {
            gate: gate.clone(),
            host,
            found_state: found.state(),
            found_label_txg: found.config.txg,
            is_uneven: pool.labels().is_uneven(),
            found_txg: found.uberblocks.first().map_or(Txg(0), |newest| newest.txg),
            mark: Some(PoolConfig { txg: pool.uberblock().txg, ..config.clone() }).into(),
            preparing: AtomicUsize::new(0),
            is_prepared: AtomicBool::new(false),
        };
        // A second call changes nothing.
        drop(self.0.0.told.taking.set(taking));
    }

    /// Runs work that must precede changes. It is written with the first change, or not at all.
    ///
    /// # Errors
    /// Those of `work`; a txg could not be written.
    pub async fn prepare<T, E: From<cenote_object::DatasetError>>(
        &self,
        work: impl Future<Output = std::result::Result<T, E>>,
    ) -> std::result::Result<T, E> {
        // Later changes must not count as preparation; before the first one, only log claims can be pending.
        let is_prepared = |taking: &OpenState| taking.is_prepared.swap(true, Ordering::AcqRel);
        let taking = self.0.0.told.taking.get().filter(|taking| !is_prepared(taking) || !self.has_changed());
        let Some(taking) = taking else { return work.await };
        let _preparing = BehindGate::of(taking);
        let done = work.await;
        self.0.sync_all().await?;
        done
    }

    /// Whether anything has changed since the pool was opened.
    pub fn has_changed(&self) -> bool {
        !self.0.0.is_untouched() || self.0.0.is_dirty()
    }

    /// Writes a txg whose labels give the state and `host`. Any state but active ends all intent logs.
    ///
    /// # Errors
    /// The txg could not be written.
    #[boxed]
    pub async fn set_state(&self, state: PoolState, host: Host) -> Result<()> {
        if state != PoolState::Active {
            self.0.logs().end().await?;
        }
        self.0
            .run_on_pool(move |context| Box::pin(async move { set_state(context, state, host).await }))
            .await
    }
}

impl Engine {
    /// Writes all changes in a last txg, and leaves the pool in `state`. An unchanged pool in that state
    /// stays as it is, unless some devices lack its newest txg: its state must not depend on the devices seen
    /// (OpenZFS writes a txg with every import).
    ///
    /// # Errors
    /// The txg could not be written.
    #[boxed]
    pub async fn close(&self, state: PoolState) -> Result<()> {
        // Read-ahead has the devices open.
        self.0.cache.prefetch().end().await;
        match self.0.told.taking.get() {
            None => self.sync_all().await?,
            Some(taking)
                if self.ownership().has_changed() || taking.found_state != state || taking.is_uneven =>
            {
                self.ownership().set_state(state, taking.host.clone()).await?;
            }
            Some(_) => {}
        }
        self.multihost().end().await;
        // I/O of aborted passes and scans must end before the next owner takes the pool.
        self.pool().devices().idle().await;
        Ok(())
    }

    /// Writes a txg, even an empty one.
    ///
    /// # Errors
    /// The txg could not be written.
    #[boxed]
    pub async fn force_sync(&self) -> Result<()> {
        let force = |context: &mut SyncContext| context.is_forced = true;
        self.run_on_pool(move |context| {
            force(context);
            Box::pin(async { Ok(()) })
        })
        .await
    }
}

impl Shared {
    /// Whether the pool is open, but unchanged on disk.
    pub(crate) fn is_untouched(&self) -> bool {
        self.told.taking.get().is_some_and(|taking| !taking.gate.is_open())
    }

    pub(crate) fn is_dirty(&self) -> bool {
        let open = self.txgs.open();
        let datasets = self.datasets.lock();
        let has_log = |log: &Log| log.is_touched(open);
        let is_dirty =
            |dataset: &LiveDataset| dataset.objset.is_dirty() || dataset.log.as_ref().is_some_and(has_log);
        let is_dirty = datasets.values().any(is_dirty);
        is_dirty || self.mos.is_dirty()
    }
}

//! Holds for changes: a change waits for memory and space, or is refused; then it holds the open txg.
//!
//! Idea: changes under one hold belong to one txg and must all be made. So a change owns its data and runs to
//! its end even if its caller is cancelled ([`Engine::to_end`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_boxed::boxed;
use cenote_format::units::{DatasetId, ObjectId};
use cenote_object::{DatasetError, Edit, LiveObjset, Result};
use cenote_pool::alloc::AllocClass;
use cenote_runtime::AbortOnDrop;

use crate::engine::{Engine, Shared};
use crate::kstat::DmuTx;
use crate::room::{ASIZE_INFLATION, Accounts, Asked, Need, PATIENCE, PoolRoom, RoomState, Verdict};
use crate::throttle::SYNC_FINISHED_BYTES;
use crate::txgs::Hold;

impl Engine {
    /// Changes objects of a dataset in the open txg. Waits for memory, and for space that will be freed soon.
    /// Dropping this future leaves the change whole or not made. `change` must not wait for a txg.
    ///
    /// # Errors
    /// [`DatasetError::NoSpace`], [`DatasetError::OverQuota`]; [`DatasetError::Stopped`]; those of `change`.
    pub async fn change<T, E, F>(
        &self,
        dataset: &LiveObjset,
        need: Need,
        change: impl FnOnce(Edit) -> F,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatasetError> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let hold = self.hold_for(dataset, need).await?;
        self.under(hold, change(dataset.edit())).await
    }

    pub(crate) async fn under<T: Send + 'static>(
        &self,
        hold: Hold,
        change: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let held = async move {
            let done = change.await;
            drop(hold);
            done
        };
        self.0.runtime.to_end(held).await
    }

    #[boxed]
    pub(crate) async fn hold_for(&self, dataset: &LiveObjset, need: Need) -> Result<Hold> {
        let mut patience = PATIENCE;
        self.refuse_if_suspended()?;
        loop {
            self.for_client(self.for_command(self.wait_for_memory())).await?;
            self.read_accounts(dataset.dataset_id()).await?;
            let hold = self.hold().await?;
            let verdict = match self.ask(dataset.dataset_id(), need) {
                Ok(asked) => {
                    self.0.kstats.tx(DmuTx::Assigned);
                    return Ok(hold.with(asked));
                }
                Err(verdict) => verdict,
            };
            drop(hold);
            if verdict != Verdict::Wait {
                if verdict == Verdict::Full {
                    // Writers take precedence over walkers of old trees.
                    self.0.allocator.give_up_kept();
                }
                patience -= 1;
                if patience == 0 || !self.has_more_room_soon() {
                    return Err(self.refused(dataset.dataset_id(), need, verdict));
                }
            }
            // Even an empty txg: freed space is deferred by txgs.
            self.for_client(self.for_command(self.force_sync())).await?;
        }
    }

    pub(crate) fn has_more_room_soon(&self) -> bool {
        let deferred = self.0.allocator.class_space(AllocClass::Normal).deferred_bytes;
        deferred > 0 || self.0.throttle.dirty.bytes() > 0
    }

    /// Reserves room, or says why not.
    fn ask(&self, dataset: DatasetId, need: Need) -> Result<Asked, Verdict> {
        let dirty_of_all = self.0.throttle.dirty.bytes();
        let mut state = self.0.room.0.lock();
        // A dataset opened just now has no accounts: its first change passes.
        if let Some(accounts) = state.accounts.get(&dataset) {
            // Fast path: it fits beside everything in flight in the pool.
            let of_all = (dirty_of_all + state.asked_by_all).saturating_mul(ASIZE_INFLATION);
            if accounts.verdict(need, state.pool, |_| of_all) != Verdict::Fits {
                let in_flight = self.in_flight(&state);
                match accounts.verdict(need, state.pool, |dir| in_flight.get(&dir).copied().unwrap_or(0)) {
                    Verdict::Fits => {}
                    other => return Err(other),
                }
            }
        }
        let bytes = need.bytes();
        *state.asked.entry(dataset).or_default() += bytes;
        state.asked_by_all += bytes;
        Ok(Asked { room: self.0.room.clone(), dataset, bytes })
    }

    /// Most bytes in flight below each directory.
    fn in_flight(&self, state: &RoomState) -> BTreeMap<ObjectId, u64> {
        let mut in_flight: BTreeMap<ObjectId, u64> = BTreeMap::new();
        for (id, open) in self.0.datasets.lock().iter() {
            let asked = state.asked.get(id).copied().unwrap_or(0);
            let bytes = (open.objset.dirty_bytes() + asked).saturating_mul(ASIZE_INFLATION);
            for dir in state.accounts.get(id).iter().flat_map(|accounts| &accounts.dirs) {
                *in_flight.entry(dir.id).or_default() += bytes;
            }
        }
        in_flight
    }

    /// For each dataset that changes, once per txg on disk.
    async fn read_accounts(&self, dataset: DatasetId) -> Result<()> {
        let as_of = self.synced()?;
        let is_of_pool = {
            let state = self.0.room.0.lock();
            let is_of_pool = state.as_of == as_of;
            if is_of_pool && state.accounts.get(&dataset).is_some_and(|accounts| accounts.as_of == as_of) {
                return Ok(());
            }
            is_of_pool
        };
        let renames = self.0.on_disk.read().renames;
        let mos = self.mos().await?;
        if !is_of_pool {
            let deferred = self.0.allocator.class_space(AllocClass::Normal).deferred_bytes;
            let for_writes = mos.usable_bytes().await?.saturating_sub(deferred);
            let for_frees = for_writes.saturating_add(mos.slop_bytes() / 2);
            let mut state = self.0.room.0.lock();
            (state.as_of, state.pool) = (as_of, PoolRoom { for_writes, for_frees });
        }
        let mut read = BTreeMap::new();
        for id in self.to_account(dataset, renames) {
            if let Some(accounts) = Accounts::of(&mos, id, as_of).await? {
                read.insert(id, Arc::new(accounts));
            }
        }
        let mut state = self.0.room.0.lock();
        state.renames = renames;
        state.accounts.remove(&dataset);
        state.accounts.extend(read);
        Ok(())
    }

    /// Datasets to read for a change of one: after a rename also those with bytes in flight, which may be
    /// below other directories now.
    fn to_account(&self, dataset: DatasetId, renames: u64) -> BTreeSet<DatasetId> {
        let state = self.0.room.0.lock();
        let mut wanted = BTreeSet::from([dataset]);
        if state.renames != renames {
            let datasets = self.0.datasets.lock();
            let asked = |id: &DatasetId| state.asked.get(id).is_some_and(|&bytes| bytes > 0);
            let in_flight = datasets.iter().filter(|(id, open)| open.objset.dirty_bytes() > 0 || asked(id));
            wanted.extend(in_flight.map(|(id, _)| *id));
        }
        wanted
    }

    fn refused(&self, dataset: DatasetId, need: Need, verdict: Verdict) -> DatasetError {
        let name = self.0.on_disk.read().pool.name().into();
        self.0.kstats.tx(if verdict == Verdict::OverQuota { DmuTx::Quota } else { DmuTx::Error });
        match verdict {
            Verdict::OverQuota => DatasetError::OverQuota { pool: name, dataset },
            _ => DatasetError::NoSpace { name, needed_bytes: need.bytes(), available_bytes: 0 },
        }
    }
}

impl Engine {
    /// Writes txgs every `zfs_txg_timeout` or as memory fills, until all returned handles are dropped.
    pub fn sync_in_background(&self) -> Arc<AbortOnDrop<()>> {
        let mut running = self.0.throttle.background.lock();
        if let Some(running) = running.upgrade() {
            return running;
        }
        let (weak, due) = (Arc::downgrade(&self.0), self.0.throttle.due.clone());
        let runtime = self.0.runtime.clone();
        let task = async move {
            loop {
                let Some(timeout) = weak.upgrade().map(|it| it.background.settings().txg_timeout()) else {
                    return;
                };
                _ = runtime.timeout(timeout, due.notified()).await;
                let Some(engine) = weak.upgrade().map(Engine::of) else { return };
                if engine.0.has_work() && engine.sync_gently().await.is_err() {
                    return; // users of the engine get the error
                }
            }
        };
        let begun = Arc::new(self.0.runtime.spawn(task).abort_on_drop());
        *running = Arc::downgrade(&begun);
        begun
    }

    /// Throttles writers as memory fills.
    pub(crate) async fn wait_for_memory(&self) -> Result<()> {
        let (throttle, settings) = (&self.0.throttle, self.0.background.settings());
        loop {
            let (dirty, max) = (self.0.throttle.dirty.bytes(), throttle.max_bytes.load(Ordering::Relaxed));
            let is_due = dirty > max / 100 * settings.sync_percent();
            if is_due || throttle.dirty.finished_bytes() > SYNC_FINISHED_BYTES {
                throttle.due.notify_one();
            }
            if dirty >= max {
                self.0.kstats.tx(DmuTx::Throttled);
                self.sync_all().await?;
                continue;
            }
            if let Some(delay) = settings.delays().at(dirty, max) {
                self.0.kstats.tx(DmuTx::Delayed);
                self.0.on_disk.read().pool.devices().queue_settings().set_dirty_percent(100);
                let now = self.0.runtime.now();
                let until = {
                    let mut last = throttle.last_delay.lock();
                    *last = (now + delay).max(*last + delay);
                    *last
                };
                self.0.runtime.sleep(until.since(now)).await;
            }
            return Ok(());
        }
    }
}

impl Shared {
    pub(crate) fn has_work(&self) -> bool {
        self.is_dirty() || !self.tasks.lock().is_empty() || self.frees_now()
    }
}

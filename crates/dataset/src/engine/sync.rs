//! Writing the open group: the order of its steps.
//!
//! ```text
//!   close the group; freeze the layers of all object sets
//!   datasets     settle the intent log, write each frozen layer, settle births and deaths in the MOS
//!   tasks        change the MOS, may make new datasets: write those, too
//!   freeing      some of what was destroyed
//!   pass 1..     write the MOS, free what died, write space maps: they are objects of the MOS, so it has changed again
//!                from pass 2 on blocks of this group are overwritten in place, and deaths are left to the next group
//!   labels, uberblock
//! ```
//!
//! Why the passes end: each pass can only touch blocks of the MOS that no earlier one did; those touched again keep their place.
//!
//! Source: OpenZFS `spa.c` (`spa_sync`, `spa_sync_iterate_to_convergence`), `dsl_pool.c` (`dsl_pool_sync`).

use std::sync::Arc;

use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::pool as names;
use cenote_format::objset::ZilHeader;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{DatasetId, ObjectId, Txg, VdevId};
use cenote_pool::label::LabelUpdate;
use cenote_pool::{Place, ReadContext};

use super::context::SyncContext;
use super::create::MOS_DIR_NAME;
use super::{Inner, LiveDataset, Task};
use parking_lot::Mutex;

use crate::dsl::account::Account;
use crate::error::{DatasetError, Result};
use crate::live::Layer;
use crate::objset::Objset;
use crate::sync::blocks::{BlockSink, Group, Space, Tables};
use crate::sync::objset::write_objset;

/// `zfs_sync_pass_deferred_free`: from this pass on, blocks that die are freed in the next group.
const SYNC_PASS_DEFERRED_FREE: u32 = 2;
/// Passes after which something must be wrong; a handful is usual.
const MAX_PASSES: u32 = 64;

/// What a group leaves to be written.
struct Frozen {
    first_tasks: Vec<Task>,
    datasets: Vec<(LiveDataset, Arc<Layer>)>,
    tasks: Vec<Task>,
}

impl Frozen {
    fn has_tasks(&self) -> bool {
        !self.first_tasks.is_empty() || !self.tasks.is_empty()
    }
}

/// Closes the open group and brings it to the disk; answers its number, with an error as well.
pub(super) async fn sync_open_group(engine: &Arc<Inner>) -> Result<Txg, (Txg, DatasetError)> {
    let (txg, frozen) = engine.groups.close(|next| freeze(engine, next)).await;
    if frozen.datasets.is_empty()
        && !frozen.has_tasks()
        && !engine.mos.is_dirty()
        && !engine.freeing.is_pending()
    {
        return Ok(txg);
    }
    write_group(engine, txg, frozen).await.map_err(|error| (txg, error))?;
    Ok(txg)
}

async fn write_group(engine: &Arc<Inner>, txg: Txg, frozen: Frozen) -> Result<()> {
    engine.mos.relabel(txg);
    // Until the group is on disk, nobody opens what tasks are about to change. Not a moment earlier: who holds a group open may be waiting.
    let _names = if frozen.has_tasks() { Some(engine.names.write().await) } else { None };
    let mut context = SyncContext::new(engine, txg);
    context.write_frozen(frozen).await?;
    context.converge().await?;
    context.write_labels().await?;
    engine.allocator.finish(txg);
    engine.forget_records(txg);
    Ok(())
}

fn freeze(engine: &Inner, next: Txg) -> Frozen {
    let datasets = engine.datasets.lock();
    let closing = Txg(next.0 - 1);
    let has_log = |dataset: &LiveDataset| dataset.objset.log().is_some_and(|log| log.is_touched(closing));
    let is_dirty = |dataset: &&LiveDataset| dataset.objset.is_dirty() || has_log(dataset);
    let (dirty, idle): (Vec<&LiveDataset>, Vec<_>) = datasets.values().partition(is_dirty);
    let datasets = dirty.into_iter().map(|dataset| (dataset.clone(), dataset.objset.freeze(next))).collect();
    // Their next change belongs to the next group, and so does what the intent log says of it.
    idle.into_iter().for_each(|dataset| dataset.objset.relabel(next));
    let taken = |tasks: &Mutex<Vec<Task>>| std::mem::take(&mut *tasks.lock());
    Frozen { first_tasks: taken(&engine.first_tasks), datasets, tasks: taken(&engine.tasks) }
}

impl SyncContext {
    fn new(engine: &Arc<Inner>, txg: Txg) -> SyncContext {
        let pool = engine.pool.read().clone();
        let group = Group {
            pool,
            allocator: engine.allocator.clone(),
            txg,
            pass: 1,
            hole_birth: engine.features.hole_birth,
            embed: engine.features.embedded_data,
            compression: engine.features.compression,
            tables: Some(Tables { shared: engine.shared.clone(), mos: engine.mos.clone() }),
        };
        SyncContext {
            engine: engine.clone(),
            group,
            dead: Vec::new(),
            born_objsets: Vec::new(),
            config_changed: false,
            broken: None,
        }
    }

    async fn write_frozen(&mut self, frozen: Frozen) -> Result<()> {
        for task in frozen.first_tasks {
            self.run(task).await?;
        }
        for (dataset, layer) in frozen.datasets {
            self.write_dataset(&dataset, &layer).await?;
        }
        for task in frozen.tasks {
            self.run(task).await?;
            self.write_born().await?;
        }
        Ok(())
    }

    async fn run(&mut self, task: Task) -> Result<()> {
        task(self).await;
        match self.broken.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Writes datasets that a task has made, so that the next one may take a snapshot of them.
    async fn write_born(&mut self) -> Result<()> {
        for dataset in std::mem::take(&mut self.born_objsets) {
            let layer = dataset.objset.freeze(Txg(self.group.txg.0 + 1));
            self.write_dataset(&dataset, &layer).await?;
            self.engine.datasets.lock().insert(dataset.objset.dataset_id(), dataset);
        }
        Ok(())
    }

    async fn write_dataset(&mut self, dataset: &LiveDataset, layer: &Layer) -> Result<()> {
        let log = self.settle_log(&dataset.objset).await?;
        let id = dataset.objset.dataset_id();
        let dir = self.dataset_phys(ObjectId(id.0)).await?.dir;
        let has_livelist = self.livelist(dir).await?.is_some();
        let sink = BlockSink::new(&self.group, &dataset.policy).listing_births(has_livelist);
        let on_disk = write_objset(&sink, &dataset.objset.on_disk(), layer.freeze(), log).await?;
        let bp = *on_disk.bp();
        dataset.objset.synced(on_disk);
        let ledger = sink.take_ledger();
        self.activate_of_blocks(id, &ledger.features).await?;
        self.settle(id, bp, ledger, dataset.policy.reserved_bytes).await
    }

    /// Writes the MOS and space maps until writing them changes nothing more.
    async fn converge(&mut self) -> Result<()> {
        self.free_deferred().await?;
        self.free_pending().await?;
        while self.engine.mos.is_dirty() || !self.dead.is_empty() || self.has_missed() {
            if self.group.pass > MAX_PASSES {
                return Err(self.damaged("writing it changes it again and again"));
            }
            self.write_missed().await?;
            if self.config_changed {
                self.write_config().await?;
            }
            self.charge_mos().await?;
            self.write_mos().await?;
            self.free_dead().await?;
            self.write_shared().await?;
            self.write_space_maps().await?;
            self.group.pass += 1;
        }
        Ok(())
    }

    /// The pool's configuration, as this group leaves it, in the MOS.
    pub(super) async fn write_config(&mut self) -> Result<()> {
        let mut config = self.engine.config.lock().clone();
        config.txg = self.group.txg;
        let packed = config.encode().encode();
        *self.engine.config.lock() = config;
        let edit = self.edit();
        let object = self.directory_object(names::CONFIG).await?;
        let len = (packed.len() as u64).to_ne_bytes().to_vec();
        edit.write(object, 0, packed.into()).await?;
        edit.set_bonus(object, ObjectType::PACKED_NVLIST_SIZE, len.into()).await
    }

    /// The MOS can't be charged for while it is being written: what the last pass cost goes into this one, or into the next
    /// group.
    async fn charge_mos(&mut self) -> Result<()> {
        let space = std::mem::take(&mut *self.engine.uncharged.lock());
        if space == Space::default() {
            return Ok(());
        }
        let mos_dir = self.special_dir(MOS_DIR_NAME).await?;
        self.use_space(mos_dir, space, Account::Head).await
    }

    /// Writes what has changed in the MOS.
    async fn write_mos(&mut self) -> Result<()> {
        let engine = self.engine.clone();
        let layer = engine.mos.freeze(self.group.txg);
        let sink = BlockSink::new(&self.group, &engine.mos_policy);
        let on_disk = write_objset(&sink, &engine.mos.on_disk(), layer.freeze(), ZilHeader::EMPTY).await?;
        engine.mos.synced(on_disk);
        let ledger = sink.take_ledger();
        let mut cost = ledger.born;
        for bp in ledger.dead {
            cost = cost + -self.space_of(&bp);
            self.free(bp);
        }
        let mut uncharged = engine.uncharged.lock();
        *uncharged = *uncharged + cost;
        Ok(())
    }

    /// Frees what died: at once in the first pass, later on the list for the next group.
    async fn free_dead(&mut self) -> Result<()> {
        let dead = std::mem::take(&mut self.dead);
        if self.group.pass >= SYNC_PASS_DEFERRED_FREE && !dead.is_empty() {
            let list = self.directory_object(names::SYNC_BPOBJ).await?;
            return self.append_to_list(list, &dead).await;
        }
        for bp in dead {
            self.free_now(&bp).await?;
        }
        Ok(())
    }

    /// Frees what the last group has left over.
    async fn free_deferred(&mut self) -> Result<()> {
        let list = self.directory_object(names::SYNC_BPOBJ).await?;
        for bp in self.take_list(list).await? {
            self.free_now(&bp).await?;
        }
        Ok(())
    }

    /// Frees a block in this group. Nothing may refer to it when the group is on disk.
    pub(crate) async fn free_now(&self, bp: &Blkptr) -> Result<()> {
        match self.engine.shared.lock().await.release(&self.edit(), &self.group.pool, bp).await? {
            true => self.free_unshared(bp).await,
            false => Ok(()),
        }
    }

    async fn free_unshared(&self, bp: &Blkptr) -> Result<()> {
        let (pool, allocator) = (&self.group.pool, &self.group.allocator);
        Ok(pool.free(allocator, bp, &ReadContext::new(Place::default())).await?)
    }

    /// Brings the tables of shared blocks up to date, and frees what nobody has any more.
    async fn write_shared(&self) -> Result<()> {
        let free = self.engine.shared.lock().await.write(&self.edit(), &self.group.pool).await?;
        for bp in free {
            self.free_unshared(&bp).await?;
        }
        Ok(())
    }

    /// The group becomes what an import finds.
    async fn write_labels(&mut self) -> Result<()> {
        let pool = &self.group.pool;
        let uberblock = Uberblock {
            txg: self.group.txg,
            timestamp_s: pool.runtime().unix_time_ns() / 1_000_000_000,
            rootbp: *self.engine.mos.on_disk().bp(),
            checkpoint_txg: Txg(0),
            ..*pool.uberblock()
        };
        let config = self.engine.config.lock().clone();
        let all: Vec<VdevId> = config.vdev_tree.children.iter().map(|top| VdevId(top.id)).collect();
        let dirty = if self.config_changed { &all[..] } else { &[] };
        pool.write_labels(&LabelUpdate { config: &config, uberblock: &uberblock, dirty }).await?;
        let pool = pool.at(&uberblock);
        let (cache, root) = (&self.engine.cache, uberblock.rootbp);
        *self.engine.mos_on_disk.write() = Objset::open(&pool, cache, DatasetId(0), root, None).await?;
        *self.engine.pool.write() = pool;
        Ok(())
    }
}

//! Auxiliary devices, outside the vdev tree: hot spares and cache devices (L2ARC).
//!
//! ```text
//!   object directory --spares--> packed list: disk, disk, dspare "draid1-0-0" (space within a dRAID)
//!                   --l2cache-> packed list: disk
//! ```
//!
//! Their labels name no pool: several pools may share a spare.
//!
//! Source: OpenZFS `spa.c` (`spa_validate_aux_devs`, `spa_sync_aux_dev`), `vdev_draid.c`
//! (`vdev_draid_spare_create`).

use cenote_boxed::boxed;
use cenote_dataset::import::packed_nvlist;
use cenote_engine::{Engine, SyncContext};
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::features::SPA_VERSION_FEATURES;
use cenote_format::label::{AuxConfig, LabelConfig, VdevConfig, VdevKind};
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::units::Guid;
use cenote_object::{DatasetError, NewObject, Result, ZapEdit};
use cenote_pool::FoundDevice;
use cenote_pool::create::NewDevice;
use cenote_pool::label::init_device;

use crate::pool::take_tree::refuse_member;

/// `ASHIFT_MIN`.
const ASHIFT_MIN: u32 = 9;
/// Block size of a packed list, `SPA_CONFIG_BLOCKSIZE`.
const LIST_BLOCK_BYTES: u32 = 16 << 10;

/// The use of an auxiliary device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Spare,
    Cache,
}

impl Role {
    /// Its list in the object directory.
    fn list(self) -> &'static str {
        match self {
            Role::Spare => names::SPARES,
            Role::Cache => names::L2CACHE,
        }
    }
}

/// Adds cache devices; [`cenote_engine::L2arc::add`] opens them.
///
/// # Errors
/// A device fails.
#[boxed]
pub async fn add_cache(engine: &Engine, devices: Vec<NewDevice>) -> Result<()> {
    engine
        .run_on_pool(move |context| {
            Box::pin(async move { add_auxiliary(context, Role::Cache, &devices).await })
        })
        .await
}

/// Adds hot spares; [`spare_in`](crate::spare_in) activates one.
///
/// # Errors
/// A device fails.
#[boxed]
pub async fn add_spares(engine: &Engine, devices: Vec<NewDevice>) -> Result<()> {
    engine
        .run_on_pool(move |context| {
            Box::pin(async move { add_auxiliary(context, Role::Spare, &devices).await })
        })
        .await
}

/// Removes an unused spare or a cache device. Its label stays: other pools may share the spare.
///
/// # Errors
/// The spare is in use or distributed; no such device.
#[boxed]
pub async fn remove_beside(engine: &Engine, guid: Guid) -> Result<()> {
    engine.run_on_pool(move |context| Box::pin(async move { remove_sync(context, guid).await })).await?;
    engine.l2arc().devices().remove(guid);
    engine.pool().tree().forget_beside(guid);
    Ok(())
}

async fn remove_sync(context: &mut SyncContext, guid: Guid) -> Result<()> {
    let config = context.pool().tree().config();
    let refused = |why: &str| Err(DatasetError::unsuitable(&config.name, why));
    let is_it = |vdev: &&VdevConfig| vdev.guid == guid;
    if let Some(spare) = config.spares.iter().find(is_it) {
        if spare.kind == VdevKind::DistributedSpare {
            return refused("dRAID spares cannot be removed");
        }
        if config.vdevs.iter().flat_map(VdevConfig::leaves).any(|leaf| leaf.guid == guid) {
            return refused("the spare is in use; 'zpool detach' makes it available");
        }
        return remove_spare(context, guid).await;
    }
    match config.l2cache.iter().any(|vdev| vdev.guid == guid) {
        true => change_list(context, Role::Cache, |all| all.retain(|vdev| vdev.guid != guid)).await,
        false => refused("no such device in pool"),
    }
}

async fn add_auxiliary(context: &mut SyncContext, role: Role, devices: &[NewDevice]) -> Result<()> {
    let mut added = Vec::new();
    for new in devices {
        refuse_member(context, &new.path, None)?;
        let kind = if new.is_file { VdevKind::File } else { VdevKind::Disk };
        let mut vdev = VdevConfig::new(kind, 0, Guid(context.random().max(1)));
        (vdev.path, vdev.create_txg) = (Some(new.path.clone()), context.txg());
        let label = match role {
            Role::Spare => {
                vdev.is_spare = true;
                spare_label(&vdev)
            }
            Role::Cache => {
                vdev.ashift = new.device.info().sector_bytes.max(1 << ASHIFT_MIN).ilog2();
                LabelConfig::L2cache(AuxConfig { ashift: Some(vdev.ashift), ..aux_config(&vdev) })
            }
        };
        init_device(&*new.device, &label).await?;
        context.pool().tree().keep_beside(vdev.guid, FoundDevice::new(new.device.clone()));
        added.push(vdev);
    }
    change_list(context, role, |all| all.extend(added)).await
}

/// The label of an available hot spare.
pub(crate) fn spare_label(spare: &VdevConfig) -> LabelConfig {
    LabelConfig::Spare(aux_config(spare))
}

fn aux_config(vdev: &VdevConfig) -> AuxConfig {
    AuxConfig {
        version: SPA_VERSION_FEATURES,
        guid: vdev.guid,
        ashift: None,
        path: vdev.path.clone(),
        devid: vdev.devid.clone(),
        phys_path: vdev.phys_path.clone(),
        other: Nvlist::new(),
    }
}

/// Takes a device off the list of spares: it has replaced a leaf for good.
pub(crate) async fn remove_spare(context: &mut SyncContext, guid: Guid) -> Result<()> {
    change_list(context, Role::Spare, |all| all.retain(|spare| spare.guid != guid)).await
}

/// Adds the distributed spares of new dRAIDs.
pub(crate) async fn add_distributed_spares(context: &mut SyncContext, tops: &[VdevConfig]) -> Result<()> {
    let mut added = Vec::new();
    for top in tops {
        for spare in 0..top.draid.map_or(0, |shape| shape.spares) {
            let mut vdev = VdevConfig::new(VdevKind::DistributedSpare, 0, Guid(context.random().max(1)));
            vdev.path = Some(format!("draid{}-{}-{spare}", top.parity, top.id));
            (vdev.top_guid, vdev.spare_id) = (Some(top.guid), Some(spare));
            (vdev.is_spare, vdev.whole_disk) = (true, Some(true));
            (vdev.ashift, vdev.create_txg) = (top.ashift, context.txg());
            added.push(vdev);
        }
    }
    match added.is_empty() {
        true => Ok(()),
        false => change_list(context, Role::Spare, |all| all.extend(added)).await,
    }
}

/// Changes a list, on disk and in the open pool.
async fn change_list(
    context: &mut SyncContext,
    role: Role,
    change: impl FnOnce(&mut Vec<VdevConfig>),
) -> Result<()> {
    let edit = context.edit();
    let name = role.list();
    let (object, mut all) = match context.find_directory_object(name).await? {
        Some(object) => {
            let list = packed_nvlist(&edit.view(), object).await?;
            let all = VdevConfig::decode_array(&list, name);
            (object, all.map_err(|error| edit.view().format(object, error))?)
        }
        None => {
            let new = NewObject::of(ObjectType::PACKED_NVLIST)
                .block_bytes(LIST_BLOCK_BYTES)
                .bonus(ObjectType::PACKED_NVLIST_SIZE, vec![0; 8]);
            let object = edit.create(&new).await?;
            ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).add(name, object.0).await?;
            (object, Vec::new())
        }
    };
    change(&mut all);
    let mut list = Nvlist::new();
    list.insert(name, NvValue::NvlistArray(all.iter().map(VdevConfig::encode_auxiliary).collect()));
    edit.write_nvlist(object, &list).await?;
    context.pool().tree().set_beside(|config| match role {
        Role::Spare => config.spares = all,
        Role::Cache => config.l2cache = all,
    });
    Ok(())
}

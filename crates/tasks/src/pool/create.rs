//! Creates a pool: its first txg.
//!
//! ```text
//!   object directory
//!     root_dataset -> dir "pool" -> head: an empty file system
//!                       $MOS     space used by the MOS
//!                       $FREE    space being freed in the background
//!                       $ORIGIN  head, snapshot: the origin of all datasets
//!     features_for_read, features_for_write, feature_descriptions, feature_enabled_txg
//!     config, sync_bplist, free_bpobj, history, com.delphix:vdev_zap_map, org.illumos:checksum_salt
//! ```
//!
//! Source: OpenZFS `spa.c` (`spa_create`), `dsl_pool.c` (`dsl_pool_create`).

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_cache::CacheOptions;
use cenote_dataset::keys::Keyring;
use cenote_dataset::mos::ORIGIN_DIR_NAME;
use cenote_dataset::mos::{FREE_DIR_NAME, MOS_DIR_NAME};
use cenote_dataset::spacemaps::empty_metaslabs;
use cenote_dataset::{DatasetKind, KeySource, Value};
use cenote_engine::features::feature_of;
use cenote_engine::{Engine, NewEngine, SyncContext};
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::DS_FLAG_CI_DATASET;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names, vdev_zap};
use cenote_format::features::{Feature, SPA_VERSION_FEATURES};
use cenote_format::label::{LabelConfig, PoolConfig, VdevClass, VdevConfig, VdevKind};
use cenote_format::objset::ObjsetType;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{DatasetId, ObjectId, TXG_INITIAL, Txg, VdevId};
use cenote_object::{NewObject, NewZap, Result, ZapEdit, ZapValue};
use cenote_pool::alloc::Allocator;
use cenote_pool::create::Plan;
use cenote_pool::{Pool, Trusted};
use cenote_runtime::Runtime;

use crate::create::{is_case_insensitive, set_at_creation};
use crate::crypt::{NewCrypt, encrypt};
use crate::make::{make_dir, make_head, make_snapshot};
use crate::new_dataset::{Fill, Settings};
use crate::pool::auxiliary::add_distributed_spares;
use crate::pool::features::{enable_feature, make_feature_tables};
use crate::pool::take_tree::guid_sum;
use crate::set::{check_settings, not_enabled};

/// `SPA_CONFIG_BLOCKSIZE`.
const CONFIG_BLOCK_BYTES: u32 = 16 << 10;

/// Parameters of a new pool.
pub struct NewPool {
    /// Devices and vdevs.
    pub plan: Plan,
    /// Features to enable.
    pub features: Vec<&'static Feature>,
    /// Pool properties, as numbers.
    pub properties: Vec<(&'static str, u64)>,
    /// Properties of the root file system.
    pub root_properties: Settings,
    /// Provides the key of an encrypted root file system.
    pub keys: KeySource,
    /// Options of the block cache.
    pub cache: CacheOptions,
}

/// Creates a pool. The devices' former contents are lost.
///
/// # Errors
/// A property is invalid (nothing is written then), or a device fails.
#[boxed]
pub async fn create_pool(rt: &Runtime, mut new: NewPool, fill_root: Fill) -> Result<Engine> {
    check_root(&new)?;
    let keys = Keyring::new(new.keys.clone());
    let name = new.plan.config.name.clone();
    let crypt = NewCrypt::plan(rt, &new.keys, &name, None, &mut new.root_properties).await?;
    if crypt.is_some() && !new.features.iter().any(|feature| feature.name == "encryption") {
        return Err(not_enabled(&name, "encryption", "encryption"));
    }
    let config = new.plan.config.clone();
    init_devices(&config, &new.plan.found).await?;
    let before = Txg(TXG_INITIAL.0 - 1);
    let uberblock = Uberblock::before_first(SPA_VERSION_FEATURES, before, guid_sum(&config.vdev_tree));
    let mut salt = [0; 32];
    rt.fill_secret(&mut salt);
    // Blocks of the root file system may need the salt before it is on disk.
    let trusted = Trusted {
        config: new.plan.found.config.clone(),
        indirect: BTreeMap::new(),
        noted: BTreeMap::new(),
        behind: BTreeMap::new(),
        checksum_salt: Some(salt),
    };
    let pool = Pool::assemble(rt, &new.plan.found, &uberblock).await?.with_trusted(trusted).await?;
    let engine = Engine::of_new_pool(NewEngine {
        allocator: empty_space(&pool),
        pool,
        config,
        keys,
        cache: new.cache,
        features: new.features.clone(),
    });
    engine
        .run(move |context| Box::pin(async move { make_pool(context, &new, salt, crypt, fill_root).await }))
        .await?;
    Ok(engine)
}

async fn make_pool(
    context: &mut SyncContext,
    new: &NewPool,
    salt: [u8; 32],
    crypt: Option<NewCrypt>,
    fill_root: Fill,
) -> Result<()> {
    let edit = context.edit();
    NewZap::of(ObjectType::OBJECT_DIRECTORY).create_at(&edit, DMU_POOL_DIRECTORY_OBJECT).await?;
    let directory = ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT);
    let root = make_dir(context, None, "").await?;
    make_dir(context, Some(root), MOS_DIR_NAME).await?;
    make_dir(context, Some(root), FREE_DIR_NAME).await?;
    let frees = context.make_list().await?;
    directory.add(names::FREE_BPOBJ, frees.0).await?;
    let origin_dir = make_dir(context, Some(root), ORIGIN_DIR_NAME).await?;
    let origin_head = make_head(context, origin_dir, None, 0).await?;
    let origin = make_snapshot(context, origin_head, ORIGIN_DIR_NAME, 0).await?;
    make_feature_tables(context).await?;
    for feature in &new.features {
        enable_feature(context, feature).await?;
    }
    set_pool_properties(context, new).await?;
    let is_ci = new.root_properties.iter().any(is_case_insensitive);
    let flags = if is_ci { DS_FLAG_CI_DATASET } else { 0 };
    let head = make_head(context, root, Some(origin), flags).await?;
    context.make_history().await?;
    context.log_version("create").await?;
    if let Some(crypt) = &crypt {
        encrypt(context, root, head, crypt).await?;
    }
    set_at_creation(context, DatasetId(head.0), &new.root_properties).await?;
    let objset = context.make_objset(DatasetId(head.0), ObjsetType::Zfs).await?;
    fill_root(objset).await?;

    let config = NewObject::of(ObjectType::PACKED_NVLIST)
        .block_bytes(CONFIG_BLOCK_BYTES)
        .bonus(ObjectType::PACKED_NVLIST_SIZE, vec![0; 8]);
    directory.add(names::CONFIG, edit.create(&config).await?.0).await?;
    directory.add(names::CREATION_VERSION, SPA_VERSION_FEATURES).await?;
    directory.add(names::DEFLATE, 1).await?;
    let deferred = context.make_deferred_list().await?;
    directory.add(names::SYNC_BPOBJ, deferred.0).await?;
    directory.add(names::CHECKSUM_SALT, &ZapValue::new(1, salt.to_vec().into())).await?;
    make_vdev_zaps(context).await?;
    add_distributed_spares(context, &new.plan.config.vdev_tree.children).await
}

async fn set_pool_properties(context: &mut SyncContext, new: &NewPool) -> Result<()> {
    let edit = context.edit();
    if new.properties.is_empty() {
        return Ok(());
    }
    let props = NewZap::of(ObjectType::POOL_PROPS).create(&edit).await?;
    ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).add(names::PROPS, props.0).await?;
    for (name, value) in &new.properties {
        ZapEdit::new(&edit, props).update(*name, *value).await?;
        if *name == "multihost" {
            context.set_multihost(*value != 0);
        }
    }
    Ok(())
}

/// Creates missing ZAPs and metaslab arrays of vdevs (`vdev_construct_zaps`).
pub(crate) async fn make_vdev_zaps(context: &mut SyncContext) -> Result<()> {
    let edit = context.edit();
    let map = match context.find_directory_object(names::VDEV_ZAP_MAP).await? {
        Some(map) => map,
        None => context.make_linked_zap(names::VDEV_ZAP_MAP).await?,
    };
    // Newly active features change other parts of the configuration: copy only the tree.
    let mut tree = context.config().vdev_tree.clone();
    if tree.root_zap.0 == 0 && has_root_zap(context).await? {
        tree.root_zap = make_vdev_zap(context, map).await?;
    }
    for top in tree.children.iter_mut().filter(|top| top.kind.holds_data()) {
        if top.metaslab_array.0 == 0 {
            top.metaslab_array = edit.create(&NewObject::of(ObjectType::OBJECT_ARRAY)).await?;
            context.add_metaslab_array(VdevId(top.id), top.metaslab_array).await;
        }
        if top.top_zap.0 == 0 {
            top.top_zap = make_vdev_zap(context, map).await?;
            if top.class != VdevClass::Normal {
                let bias = ZapValue::from_text(top.class.name());
                ZapEdit::new(&edit, top.top_zap).add(vdev_zap::ALLOCATION_BIAS, &bias).await?;
            }
            if matches!(top.class, VdevClass::Special | VdevClass::Dedup) {
                context.use_feature("allocation_classes", 1).await?;
            }
            if top.kind == VdevKind::Draid {
                context.use_feature("draid", 1).await?;
            }
        }
        make_leaf_zaps(context, top, map).await?;
    }
    context.config().vdev_tree = tree;
    context.config_has_changed();
    Ok(())
}

/// Whether the root vdev gets a ZAP, too; activates the feature.
async fn has_root_zap(context: &mut SyncContext) -> Result<bool> {
    const FEATURE: &str = "vdev_zaps_v2";
    let Some(feature) = Feature::by_name(FEATURE) else { return Ok(false) };
    let count = context.count_of(feature).await?;
    if count == Some(0) {
        context.use_feature(FEATURE, 1).await?;
    }
    Ok(count.is_some())
}

async fn make_leaf_zaps(context: &mut SyncContext, top: &mut VdevConfig, map: ObjectId) -> Result<()> {
    let mut pending = vec![top];
    while let Some(vdev) = pending.pop() {
        if vdev.is_leaf() && vdev.leaf_zap.0 == 0 {
            vdev.leaf_zap = make_vdev_zap(context, map).await?;
        }
        pending.extend(vdev.children.iter_mut());
    }
    Ok(())
}

async fn make_vdev_zap(context: &mut SyncContext, map: ObjectId) -> Result<ObjectId> {
    let edit = context.edit();
    let id = NewZap::of(ObjectType::ZAP_METADATA).create(&edit).await?;
    ZapEdit::new(&edit, map).add(&format!("{:x}", id.0), id.0).await?;
    Ok(id)
}

/// Checks the properties of the root file system.
fn check_root(new: &NewPool) -> Result<()> {
    let pool = &new.plan.config.name;
    check_settings(pool, DatasetKind::Filesystem, &new.root_properties)?;
    for (property, value) in &new.root_properties {
        let Value::Number(number) = *value else { continue };
        let needed = feature_of(property, number);
        if let Some(needed) = needed.filter(|name| !new.features.iter().any(|f| f.name == *name)) {
            return Err(not_enabled(pool, property, needed));
        }
    }
    Ok(())
}

/// Writes labels of txg 0: the devices belong to no pool until the first txg is on disk.
async fn init_devices(config: &PoolConfig, found: &cenote_pool::FoundPool) -> Result<()> {
    for top in &config.vdev_tree.children {
        for leaf in top.leaves() {
            let Some(device) = found.device(leaf.guid) else { continue };
            let label =
                PoolConfig { txg: Txg(0), create_txg: Some(config.txg), ..config.for_leaf(top, leaf) };
            cenote_pool::label::init_device(&*device.device, &LabelConfig::Member(label)).await?;
        }
    }
    Ok(())
}

/// An allocator with everything free.
fn empty_space(pool: &Pool) -> Allocator {
    let allocator = Allocator::new();
    pool.tree().vdevs().tops().for_each(|vdev| allocator.add_vdev(vdev, empty_metaslabs(vdev)));
    allocator
}

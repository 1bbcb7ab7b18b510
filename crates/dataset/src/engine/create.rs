//! A new pool: its first group.
//!
//! ```text
//!   object directory
//!     root_dataset -> dir "pool" -> head: an empty file system
//!                       $MOS     what the MOS takes
//!                       $FREE    what is being freed in the background
//!                       $ORIGIN  head, snapshot: what all datasets descend from
//!     features_for_read, features_for_write, feature_descriptions, feature_enabled_txg
//!     config, sync_bplist, free_bpobj, history, com.delphix:vdev_zap_map, org.illumos:checksum_salt
//! ```
//!
//! Source: OpenZFS `spa.c` (`spa_create`), `dsl_pool.c` (`dsl_pool_create`).

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_cache::BlockCache;
use cenote_codec::compress::Compression;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::DS_FLAG_CI_DATASET;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names, vdev_zap};
use cenote_format::features::{Feature, SPA_VERSION_FEATURES};
use cenote_format::label::{LabelConfig, PoolConfig, VdevClass, VdevConfig, VdevKind};
use cenote_format::objset::{ObjsetPhys, ObjsetType};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{DatasetId, ObjectId, Txg, VdevId};
use cenote_pool::alloc::{Allocator, NewMetaslab};
use cenote_pool::create::Plan;
use cenote_pool::{Pool, Trusted};
use cenote_runtime::Runtime;
use futures::future::BoxFuture;

use super::freeing::Freeing;
use super::groups::Groups;
use super::missed::Missed;
use super::space::SpaceMaps;
use super::throttle::Throttle;
use super::{Engine, Features, Inner, SyncContext, feature_of};
use crate::dsl::crypt::NewCrypt;
use crate::dsl::make::{ORIGIN_DIR_NAME, TXG_INITIAL};
use crate::dsl::{DatasetKind, Settings, check_settings, is_case_insensitive, not_enabled};
use crate::error::Result;
use crate::keys::{KeySource, Keyring};
use crate::live::{LiveObjset, NewObject};
use crate::mos::FREE_DIR_NAME;
use crate::objset::Objset;
use crate::properties::Value;
use crate::spacemaps::metaslab_extent;
use crate::sync::blocks::Space;
use crate::sync::policy::StoragePolicy;
use crate::zap::{NewZap, ZapEdit, ZapValue};

/// The directory of what the MOS takes, `MOS_DIR_NAME`.
pub(super) const MOS_DIR_NAME: &str = "$MOS";
/// Blocks of the list of deferred frees, small since it is written in each group.
const DEFERRED_BLOCK_BYTES: u32 = 16 << 10;
/// `SPA_CONFIG_BLOCKSIZE`.
const CONFIG_BLOCK_BYTES: u32 = 16 << 10;

/// What a new pool is to be like.
pub struct NewPool {
    /// Its devices and vdevs.
    pub plan: Plan,
    /// Features to enable.
    pub features: Vec<&'static Feature>,
    /// Properties of the pool that are set, as numbers.
    pub properties: Vec<(&'static str, u64)>,
    /// Properties of the root file system that are set.
    pub root_properties: Settings,
    /// Who knows the key of the root file system, if that is to be encrypted.
    pub keys: KeySource,
    /// Memory for metadata blocks.
    pub cache_bytes: usize,
}

/// Fills the root file system, in the group that makes the pool.
pub type FillRoot = Box<dyn FnOnce(LiveObjset) -> BoxFuture<'static, Result<()>> + Send>;

impl Engine {
    /// Makes a pool. Whatever was on the devices is lost.
    ///
    /// # Errors
    /// A property can't be so, in which case nothing was written; or a device fails.
    pub async fn create(rt: &Runtime, mut new: NewPool, fill_root: FillRoot) -> Result<Engine> {
        check_root(&new)?;
        let keys = Keyring::new(new.keys.clone());
        let name = new.plan.config.name.clone();
        let crypt = NewCrypt::plan(rt, &keys, &name, None, &mut new.root_properties).await?;
        if crypt.is_some() && !new.features.iter().any(|feature| feature.name == "encryption") {
            return Err(not_enabled(&name, "encryption", "encryption"));
        }
        let config = new.plan.config.clone();
        init_devices(&config, &new.plan.found).await?;
        let before = Txg(TXG_INITIAL.0 - 1);
        let uberblock = Uberblock::before_first(SPA_VERSION_FEATURES, before, guid_sum(&config.vdev_tree));
        let mut salt = [0; 32];
        rt.fill_secret(&mut salt);
        // The root file system's blocks may need the salt before it is on disk.
        let trusted = Trusted {
            config: new.plan.found.config.clone(),
            indirect: BTreeMap::new(),
            behind: BTreeMap::new(),
            checksum_salt: Some(salt),
        };
        let pool = Pool::assemble(rt, &new.plan.found, &uberblock).await?.with_trusted(trusted).await?;
        let cache = Arc::new(BlockCache::new(new.cache_bytes));
        let nothing = Objset::empty(&pool, &cache, DatasetId(0), None, ObjsetPhys::empty(ObjsetType::Meta));
        let has = |name| new.features.iter().any(|feature| feature.name == name);
        let compression = if has("lz4_compress") { Compression::Lz4 } else { Compression::Lzjb };
        let inner = Inner {
            runtime: rt.clone(),
            allocator: Arc::new(empty_space(&pool)),
            keys: Arc::new(keys),
            groups: Arc::new(Groups::after(uberblock.txg)),
            mos_on_disk: nothing.clone().into(),
            room: Arc::default(),
            freeing: Freeing::default(),
            throttle: Throttle::new(rt),
            mos: LiveObjset::new(nothing, TXG_INITIAL),
            mos_policy: Arc::new(StoragePolicy::of_mos()),
            features: Features {
                hole_birth: has("hole_birth"),
                embedded_data: has("embedded_data"),
                compression,
            },
            config: config.into(),
            space_maps: SpaceMaps::default().into(),
            shared: Arc::default(),
            missed: Missed::default().into(),
            uncharged: Space::default().into(),
            datasets: Default::default(),
            first_tasks: Vec::new().into(),
            tasks: Vec::new().into(),
            names: tokio::sync::RwLock::default(),
            syncing: tokio::sync::Mutex::default(),
            pool: pool.into(),
            cache,
        };
        let engine = Engine(Arc::new(inner));
        engine
            .run(move |context| {
                Box::pin(async move { context.make_pool(&new, salt, crypt, fill_root).await })
            })
            .await?;
        Ok(engine)
    }
}

impl SyncContext {
    async fn make_pool(
        &mut self,
        new: &NewPool,
        salt: [u8; 32],
        crypt: Option<NewCrypt>,
        fill_root: FillRoot,
    ) -> Result<()> {
        let edit = self.edit();
        NewZap::of(ObjectType::OBJECT_DIRECTORY).create_at(&edit, DMU_POOL_DIRECTORY_OBJECT).await?;
        let directory = ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT);
        let root = self.make_dir(None, "").await?;
        self.make_dir(Some(root), MOS_DIR_NAME).await?;
        self.make_dir(Some(root), FREE_DIR_NAME).await?;
        let frees = self.make_list().await?;
        directory.add(names::FREE_BPOBJ, frees.0).await?;
        let origin_dir = self.make_dir(Some(root), ORIGIN_DIR_NAME).await?;
        let origin_head = self.make_head(origin_dir, None, 0).await?;
        let origin = self.make_snapshot(origin_head, ORIGIN_DIR_NAME, 0).await?;
        self.make_feature_tables().await?;
        for feature in &new.features {
            self.enable_feature(feature).await?;
        }
        self.set_pool_properties(new).await?;
        let is_ci = new.root_properties.iter().any(is_case_insensitive);
        let flags = if is_ci { DS_FLAG_CI_DATASET } else { 0 };
        let head = self.make_head(root, Some(origin), flags).await?;
        self.make_history().await?;
        self.log_version("create").await?;
        if let Some(crypt) = &crypt {
            self.encrypt(root, head, crypt).await?;
        }
        self.set_at_creation(DatasetId(head.0), &new.root_properties).await?;
        let objset = self.make_objset(DatasetId(head.0), ObjsetType::Zfs).await?;
        fill_root(objset).await?;

        let config = NewObject::of(ObjectType::PACKED_NVLIST)
            .block_bytes(CONFIG_BLOCK_BYTES)
            .bonus(ObjectType::PACKED_NVLIST_SIZE, vec![0; 8]);
        directory.add(names::CONFIG, edit.create(&config).await?.0).await?;
        directory.add(names::CREATION_VERSION, SPA_VERSION_FEATURES).await?;
        directory.add(names::DEFLATE, 1).await?;
        // Not compressed: passes settle sooner if sizes don't change.
        let deferred = self.make_list().await?;
        edit.set_block_bytes(deferred, DEFERRED_BLOCK_BYTES).await?;
        edit.set_storage(deferred, 0, cenote_codec::compress::Compression::Off as u8).await?;
        directory.add(names::SYNC_BPOBJ, deferred.0).await?;
        directory.add(names::CHECKSUM_SALT, &ZapValue::new(1, salt.to_vec().into())).await?;
        self.make_vdev_zaps().await?;
        self.add_distributed_spares(&new.plan.config.vdev_tree.children).await
    }

    async fn set_pool_properties(&mut self, new: &NewPool) -> Result<()> {
        let edit = self.edit();
        if new.properties.is_empty() {
            return Ok(());
        }
        let props = NewZap::of(ObjectType::POOL_PROPS).create(&edit).await?;
        ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).add(names::PROPS, props.0).await?;
        for (name, value) in &new.properties {
            ZapEdit::new(&edit, props).update(*name, *value).await?;
        }
        Ok(())
    }

    /// ZAPs and metaslab arrays of vdevs that have none yet (`vdev_construct_zaps`).
    pub(super) async fn make_vdev_zaps(&mut self) -> Result<()> {
        let edit = self.edit();
        let map = match self.find_directory_object(names::VDEV_ZAP_MAP).await? {
            Some(map) => map,
            None => self.make_linked_zap(names::VDEV_ZAP_MAP).await?,
        };
        let mut config = self.engine.config.lock().clone();
        for top in config.vdev_tree.children.iter_mut().filter(|top| top.kind.holds_data()) {
            if top.metaslab_array.0 == 0 {
                top.metaslab_array = edit.create(&NewObject::of(ObjectType::OBJECT_ARRAY)).await?;
                self.engine.space_maps.lock().await.add_vdev(VdevId(top.id), top.metaslab_array);
            }
            if top.top_zap.0 == 0 {
                top.top_zap = self.make_vdev_zap(map).await?;
                if top.class != VdevClass::Normal {
                    let bias = ZapValue::from_text(top.class.name());
                    ZapEdit::new(&edit, top.top_zap).add(vdev_zap::ALLOCATION_BIAS, &bias).await?;
                }
                if matches!(top.class, VdevClass::Special | VdevClass::Dedup) {
                    self.use_feature("allocation_classes", 1).await?;
                }
                if top.kind == VdevKind::Draid {
                    self.use_feature("draid", 1).await?;
                }
            }
            self.make_leaf_zaps(top, map).await?;
        }
        *self.engine.config.lock() = config;
        self.config_changed = true;
        Ok(())
    }

    async fn make_leaf_zaps(&mut self, top: &mut VdevConfig, map: ObjectId) -> Result<()> {
        let mut pending = vec![top];
        while let Some(vdev) = pending.pop() {
            if vdev.is_leaf() && vdev.leaf_zap.0 == 0 {
                vdev.leaf_zap = self.make_vdev_zap(map).await?;
            }
            pending.extend(vdev.children.iter_mut());
        }
        Ok(())
    }

    async fn make_vdev_zap(&mut self, map: ObjectId) -> Result<ObjectId> {
        let edit = self.edit();
        let id = NewZap::of(ObjectType::ZAP_METADATA).create(&edit).await?;
        ZapEdit::new(&edit, map).add(&format!("{:x}", id.0), id.0).await?;
        Ok(id)
    }
}

/// Sees that the root file system can be as it is to be.
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

/// Labels of group 0: until the first group is on disk the devices belong to no pool.
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

/// `ub_guid_sum`: which vdevs the pool has, as a sum of their guids.
pub(super) fn guid_sum(root: &VdevConfig) -> u64 {
    root.walk().fold(0, |sum: u64, vdev| sum.wrapping_add(vdev.guid.0))
}

/// Vdevs of which nothing is allocated.
fn empty_space(pool: &Pool) -> Allocator {
    let allocator = Allocator::new();
    pool.vdevs().tops().for_each(|vdev| allocator.add_vdev(vdev, empty_metaslabs(vdev)));
    allocator
}

/// Metaslabs of a vdev on which nothing was ever allocated.
pub(super) fn empty_metaslabs(vdev: &VdevConfig) -> Vec<NewMetaslab> {
    let metaslab = |index| {
        let (start_bytes, size_bytes) = metaslab_extent(vdev, index);
        NewMetaslab { index, start_bytes, size_bytes, allocated: Default::default() }
    };
    (0..vdev.asize_bytes >> vdev.metaslab_shift).map(metaslab).collect()
}

//! Object set: a numbered array of objects, the content of a dataset, snapshot or the pool itself (the MOS).
//!
//! Idea: the head holds the meta dnode, an object whose data are all other dnodes, 512 bytes a slot. So
//! object N is a read of the meta dnode at N x 512. A dnode may take several slots; the numbers of its inner
//! slots are no objects.
//!
//! ```text
//!   block pointer --> objset head (1, 2 or 4 KiB)
//!                       meta dnode --> [dnode 0..31] [dnode 32..63] ...     16 KiB blocks
//!                       user, group, project accounting: objects -1, -2, -3
//! ```
//!
//! Single lookups go through the block cache; [`Objset::dnodes`] reads all in disk order and bypasses it.
//!
//! Source: OpenZFS `dmu_objset.c`, `dnode.c` (`dnode_hold_impl`).

mod dnodes;
mod gather;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_cache::{BlockCache, Caching, CachingCell, Scope};
use cenote_format::FormatError;
use cenote_format::blkptr::{Blkptr, CryptParams};
use cenote_format::bytes::Endian;
use cenote_format::dnode::{DNODE_MIN_BYTES, Dnode, DnodeHead, DnodeTree};
use cenote_format::objset::ObjsetPhys;
use cenote_format::units::{BlockId, DatasetId, ObjectId};
use cenote_pool::IoClass;
use cenote_pool::alloc::KeptSpace;
use cenote_pool::{DatasetKey, Pool, PoolError, ReadContext, Zbookmark};
use parking_lot::Mutex;

use crate::error::{DatasetError, Result};
use crate::live::layers::Layers;
use crate::object::Object;
use crate::prefetch::Prefetcher;
use crate::traffic::Traffic;

pub use dnodes::{DnodeBatch, Dnodes};
pub use gather::Gathered;

/// `DMU_USERUSED_OBJECT`: space used by user.
pub const USERUSED_OBJECT: ObjectId = ObjectId(u64::MAX);
/// `DMU_GROUPUSED_OBJECT`: space used by group.
pub const GROUPUSED_OBJECT: ObjectId = ObjectId(u64::MAX - 1);
/// `DMU_PROJECTUSED_OBJECT`: space used by project.
pub const PROJECTUSED_OBJECT: ObjectId = ObjectId(u64::MAX - 2);
/// `DMU_META_DNODE_OBJECT`: the object of dnodes.
pub const META_DNODE_OBJECT: ObjectId = ObjectId(0);

/// The objects whose dnodes are in a head, above all blocks of the set.
pub fn objects_of_head(head: ObjsetPhys) -> impl Iterator<Item = (ObjectId, Dnode)> {
    let objects = [
        (META_DNODE_OBJECT, head.meta_dnode),
        (PROJECTUSED_OBJECT, head.projectused_dnode),
        (GROUPUSED_OBJECT, head.groupused_dnode),
        (USERUSED_OBJECT, head.userused_dnode),
    ];
    objects.into_iter().filter_map(|(object, dnode)| Some((object, dnode?)))
}

/// An open object set. A clone is cheap.
#[derive(Clone)]
pub struct Objset {
    tree: Arc<ObjsetTree>,
    /// Changes not on disk yet.
    layers: Layers,
    /// Keeps this state of a changing set whole on disk.
    kept: Option<KeptSpace>,
}

#[derive(Clone)]
struct ObjsetTree {
    pool: Pool,
    cache: Arc<BlockCache>,
    /// Shared by all states of the set, like the next two.
    caching: Arc<CachingCell>,
    prefetcher: Arc<Prefetcher>,
    traffic: Arc<Traffic>,
    dataset: DatasetId,
    key: Option<Arc<DatasetKey>>,
    bp: Blkptr,
    phys: ObjsetPhys,
    meta: Option<Dnode>,
    raw: Option<Arc<RawHead>>,
}

/// From the source pool: properties of an encrypted set written without its key.
///
/// Locking: `dnodes` for one access.
#[derive(Debug)]
pub struct RawHead {
    /// Levels of the meta dnode's tree.
    pub levels: u8,
    /// log2 of the size of its indirect blocks.
    pub indirect_block_shift: u8,
    /// Its last block.
    pub max_block_id: BlockId,
    /// Its checksum.
    pub checksum_id: u8,
    /// Its compression.
    pub compression_id: u8,
    /// The set's final MAC.
    pub portable_mac: [u8; 32],
    /// Encryption of announced dnode blocks.
    pub dnodes: Mutex<BTreeMap<BlockId, CryptParams>>,
}

impl Objset {
    /// Reads a head. `dataset` is 0 for the MOS.
    ///
    /// # Errors
    /// Unreadable or invalid head.
    #[boxed]
    pub async fn open(
        pool: &Pool,
        cache: &Arc<BlockCache>,
        dataset: DatasetId,
        bp: Blkptr,
        key: Option<Arc<DatasetKey>>,
    ) -> Result<Objset> {
        let ctx = ReadContext::new(Zbookmark { dataset, ..Zbookmark::default() }).with_key(key.clone());
        let block = cache.read(pool, &bp, &ctx, Caching::default()).await?;
        let phys = ObjsetPhys::decode(&block, bp.endian()).map_err(|source| DatasetError::Format {
            dataset,
            object: META_DNODE_OBJECT,
            source,
        })?;
        Ok(Objset::of(pool, cache, dataset, bp, key, phys))
    }

    fn of(
        pool: &Pool,
        cache: &Arc<BlockCache>,
        dataset: DatasetId,
        bp: Blkptr,
        key: Option<Arc<DatasetKey>>,
        phys: ObjsetPhys,
    ) -> Objset {
        let meta = phys.meta_dnode.clone();
        let (pool, cache) = (pool.clone(), cache.clone());
        let (caching, prefetcher, traffic) = Default::default();
        let raw = None;
        let tree =
            ObjsetTree { pool, cache, caching, prefetcher, traffic, dataset, key, bp, phys, meta, raw };
        Objset { tree: Arc::new(tree), layers: Layers::default(), kept: None }
    }

    /// A set with nothing on disk.
    pub fn empty(
        pool: &Pool,
        cache: &Arc<BlockCache>,
        dataset: DatasetId,
        key: Option<Arc<DatasetKey>>,
        phys: ObjsetPhys,
    ) -> Objset {
        let phys = ObjsetPhys { meta_dnode: None, ..phys };
        Objset::of(pool, cache, dataset, Blkptr::HOLE, key, phys)
    }

    /// A later state, with a head just written.
    pub(crate) fn with_head(&self, pool: &Pool, bp: Blkptr, phys: ObjsetPhys) -> Objset {
        let (pool, meta) = (pool.clone(), phys.meta_dnode.clone());
        let tree = ObjsetTree { pool, bp, phys, meta, ..(*self.tree).clone() };
        Objset { tree: Arc::new(tree), layers: Layers::default(), kept: None }
    }

    /// In a later view of its pool.
    #[must_use]
    pub fn in_view(&self, pool: &Pool) -> Objset {
        let tree = ObjsetTree { pool: pool.clone(), ..(*self.tree).clone() };
        Objset { tree: Arc::new(tree), layers: self.layers.clone(), kept: None }
    }

    /// To be written without its key.
    #[must_use]
    pub fn written_raw(&self, raw: Arc<RawHead>) -> Objset {
        let tree = ObjsetTree { raw: Some(raw), ..(*self.tree).clone() };
        Objset { tree: Arc::new(tree), ..self.clone() }
    }

    /// `None`: written with its key.
    pub fn raw(&self) -> Option<&Arc<RawHead>> {
        self.tree.raw.as_ref()
    }

    /// A long-lived view that does not keep its space: a snapshot's lasts as long as the snapshot; a changing
    /// set's is kept for each view ([`crate::LiveObjset::view`]).
    #[must_use]
    pub fn not_keeping(&self) -> Objset {
        self.in_view(&self.tree.pool.keeping(None))
    }

    /// Keeps the present state on disk.
    pub(crate) fn keeping_now(&self) -> Objset {
        Objset { kept: self.tree.pool.keep_now(), ..self.clone() }
    }

    /// Sets the caching policy of a set just opened.
    #[must_use]
    pub fn cached_as(self, caching: Caching) -> Objset {
        self.tree.caching.set(caching);
        self
    }

    /// Reads without caching.
    pub(crate) fn uncached(&self) -> Objset {
        let none = Caching { primary: Scope::None, secondary: Scope::None, prefetch: Scope::None };
        let caching = Arc::new(CachingCell::new(none));
        let tree = ObjsetTree { caching, ..(*self.tree).clone() };
        Objset { tree: Arc::new(tree), ..self.clone() }
    }

    /// For read-ahead tasks, which must not keep the prefetcher alive.
    pub(crate) fn apart(&self, class: IoClass) -> Objset {
        let (pool, prefetcher) = (self.tree.pool.for_class(class), Arc::default());
        let tree = ObjsetTree { pool, prefetcher, ..(*self.tree).clone() };
        Objset { tree: Arc::new(tree), ..self.clone() }
    }

    pub(crate) fn prefetcher(&self) -> &Prefetcher {
        &self.tree.prefetcher
    }

    /// Its caching policy.
    pub fn caching(&self) -> &Arc<CachingCell> {
        &self.tree.caching
    }

    /// Statistics of its users.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.tree.traffic
    }

    /// The tree under changes not on disk yet.
    pub(crate) fn under(&self, layers: Layers) -> Objset {
        Objset { tree: self.tree.clone(), layers, kept: self.kept.clone() }
    }

    pub(crate) fn layers(&self) -> &Layers {
        &self.layers
    }

    /// Its pool.
    pub fn pool(&self) -> &Pool {
        &self.tree.pool
    }

    /// The cache of its metadata.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.tree.cache
    }

    /// Whether an object has changes not on disk.
    pub fn is_changed(&self, object: ObjectId) -> bool {
        self.layers.touches(object)
    }

    /// Whether an object has blocks written or freed that are not on disk: its size there is not final.
    pub fn has_changed_blocks(&self, object: ObjectId) -> bool {
        self.layers.touches_blocks(object)
    }

    /// Its dataset; 0 for the MOS.
    pub fn dataset_id(&self) -> DatasetId {
        self.tree.dataset
    }

    /// The key of its encrypted blocks.
    pub fn key(&self) -> Option<&Arc<DatasetKey>> {
        self.tree.key.as_ref()
    }

    /// The head.
    pub fn phys(&self) -> &ObjsetPhys {
        &self.tree.phys
    }

    /// The pointer to the head.
    pub fn bp(&self) -> &Blkptr {
        &self.tree.bp
    }

    /// The object of dnodes; `None` in an empty set.
    pub fn meta(&self) -> Option<Object> {
        self.tree.meta.clone().map(|dnode| Object::new(self.clone(), META_DNODE_OBJECT, dnode))
    }

    /// End of the object numbers, by the meta dnode's size.
    pub fn last_object(&self) -> ObjectId {
        let Some(meta) = &self.tree.meta else { return ObjectId(0) };
        let blocks = meta.max_block_id.0.saturating_add(1);
        ObjectId(blocks.saturating_mul(u64::from(meta.data_block_bytes)) / DNODE_MIN_BYTES as u64)
    }

    /// The dnode of an object.
    ///
    /// # Errors
    /// [`DatasetError::NoObject`] if the slot is free, inside a large dnode, or beyond the end.
    #[boxed]
    pub async fn dnode(&self, object: ObjectId) -> Result<Dnode> {
        let Some(changed) = self.layers.object(object) else { return self.dnode_on_disk(object).await };
        let head = changed.head.ok_or_else(|| self.no_object(object))?;
        let mut tree = match changed.fresh {
            true => DnodeTree::default(),
            false => self.dnode_on_disk(object).await?.tree(),
        };
        if let Some(spill) = self.layers.spill(object) {
            // No address yet, but it takes room in the dnode.
            tree.spill = spill.map(|_| tree.spill.unwrap_or(Blkptr::HOLE));
        }
        head.build(&tree).map_err(|e| self.format(object, e))
    }

    /// The dnode without block pointers: cheap for one changed lately.
    ///
    /// # Errors
    /// As [`Objset::dnode`].
    #[boxed]
    pub async fn head(&self, object: ObjectId) -> Result<DnodeHead> {
        let Some(head) = self.layers.head(object) else {
            let dnode = self.dnode_on_disk(object).await?;
            return Ok(if self.raw().is_some() { dnode.encrypted_head() } else { dnode.head() });
        };
        let mut head = head.ok_or_else(|| self.no_object(object))?;
        if let Some(spill) = self.layers.spill(object) {
            head.set_spill(spill.is_some());
        }
        Ok(head)
    }

    pub(crate) async fn dnode_on_disk(&self, object: ObjectId) -> Result<Dnode> {
        if let Some(special) = self.accounting_dnode(object) {
            return special.ok_or_else(|| self.no_object(object));
        }
        let meta = self.meta().ok_or_else(|| self.no_object(object))?;
        let block_bytes = meta.dnode().data_block_bytes as usize;
        let per_block = (block_bytes / DNODE_MIN_BYTES) as u64;
        if per_block == 0 || object >= self.last_object() || object.0 == 0 {
            return Err(self.no_object(object));
        }
        let block_id = BlockId(object.0 / per_block);
        let bp = meta.blkptr(0, block_id).await?;
        if bp.is_hole() {
            return Err(self.no_object(object));
        }
        let block = match &self.tree.key {
            None if bp.is_encrypted() => {
                let ctx = self.context(META_DNODE_OBJECT, 0, block_id);
                self.pool().as_stored().read(&bp, &ctx).await?
            }
            _ => meta.read_metadata(0, block_id, &bp).await?,
        };
        self.dnode_in(&block, &mut 0, (object.0 % per_block) as usize, object, &bp)
    }

    /// Opens an object.
    ///
    /// # Errors
    /// As [`Objset::dnode`].
    #[boxed]
    pub async fn object(&self, object: ObjectId) -> Result<Object> {
        let dnode = self.dnode(object).await?;
        Ok(Object::new(self.clone(), object, dnode))
    }

    pub(crate) fn dnodes_on_disk(&self, from: ObjectId, to: ObjectId) -> Dnodes {
        Dnodes::new(self.under(Layers::default()), from, to)
    }

    /// Objects in `from..to`, in order.
    pub fn dnodes(&self, from: ObjectId, to: ObjectId) -> Dnodes {
        Dnodes::new(self.clone(), from, to)
    }

    /// Bypasses the cache. Without the key an encrypted block comes as stored: pointers and sizes are in
    /// clear, the bonus is ciphertext.
    pub(crate) async fn read_dnode_blocks(
        &self,
        requests: Vec<(Blkptr, ReadContext)>,
    ) -> Vec<Result<Bytes, PoolError>> {
        if self.tree.key.is_some() || !requests.iter().any(|(bp, _)| bp.is_encrypted()) {
            return self.pool().read_many(requests).await;
        }
        let mut blocks = Vec::with_capacity(requests.len());
        for (bp, ctx) in &requests {
            blocks.push(if bp.is_encrypted() {
                self.pool().as_stored().read(bp, ctx).await
            } else {
                self.pool().read(bp, ctx).await
            });
        }
        blocks
    }

    /// Position and key of a block.
    pub fn context(&self, object: ObjectId, level: u8, block: BlockId) -> ReadContext {
        let place = self.place(object, level, block);
        let (key, kept) = (self.tree.key.clone(), self.kept.clone());
        ReadContext { key, kept, ..ReadContext::new(place) }
    }

    pub(crate) fn place(&self, object: ObjectId, level: u8, block: BlockId) -> Zbookmark {
        Zbookmark { dataset: self.tree.dataset, object, level, block }
    }

    /// A damage error.
    pub fn damaged(&self, object: ObjectId, why: impl Into<Arc<str>>) -> DatasetError {
        DatasetError::Damaged { dataset: self.tree.dataset, object, why: why.into() }
    }

    /// A decoding error.
    pub fn format(&self, object: ObjectId, source: FormatError) -> DatasetError {
        DatasetError::Format { dataset: self.tree.dataset, object, source }
    }

    fn no_object(&self, object: ObjectId) -> DatasetError {
        DatasetError::NoObject { dataset: self.tree.dataset, object }
    }

    fn accounting_dnode(&self, object: ObjectId) -> Option<Option<Dnode>> {
        match object {
            USERUSED_OBJECT => Some(self.tree.phys.userused_dnode.clone()),
            GROUPUSED_OBJECT => Some(self.tree.phys.groupused_dnode.clone()),
            PROJECTUSED_OBJECT => Some(self.tree.phys.projectused_dnode.clone()),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Objset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Objset({:?} dataset {})", self.tree.pool, self.tree.dataset)
    }
}

/// Slots of a dnode; 1 if free. Reads single bytes, so byte order does not matter.
fn slots_of(slot: &[u8]) -> usize {
    const EXTRA_SLOTS: usize = 12;
    match slot {
        [0, ..] => 1,
        _ => slot.get(EXTRA_SLOTS).map_or(1, |&extra| usize::from(extra) + 1),
    }
}

pub(crate) fn used_dnodes(block: &[u8]) -> u64 {
    let (mut used, mut slot) = (0, 0);
    while let Some(bytes) = block.get(slot * DNODE_MIN_BYTES..).filter(|bytes| !bytes.is_empty()) {
        used += u64::from(bytes[0] != 0);
        slot += slots_of(bytes);
    }
    used
}

/// The dnodes of a block with their slots.
pub fn dnodes_of_block(
    block: &Bytes,
    endian: Endian,
) -> impl Iterator<Item = (usize, Result<Dnode, FormatError>)> + '_ {
    let mut slot = 0;
    std::iter::from_fn(move || {
        while (slot + 1) * DNODE_MIN_BYTES <= block.len() {
            let here = slot;
            let bytes = block.slice(here * DNODE_MIN_BYTES..);
            slot += slots_of(&bytes);
            match Dnode::decode(bytes, endian) {
                Ok(None) => continue,
                Ok(Some(dnode)) => return Some((here, Ok(dnode))),
                Err(error) => {
                    // Its size can't be trusted either: try the next slot.
                    slot = here + 1;
                    return Some((here, Err(error)));
                }
            }
        }
        None
    })
}

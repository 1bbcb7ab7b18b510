//! Writing a frozen layer of an object set: from changes to the pointer to a new head.
//!
//! ```text
//!   objects     each tree bottom up, many at once     -> new dnodes
//!   accounting  changed use of owners                 -> three more objects
//!   dnodes      into their blocks, object 0's tree    -> new meta dnode
//!   head                                              -> the new root pointer
//! ```
//!
//! Neither the layer nor the old tree changes: readers use them until the caller replaces them by the new
//! tree.
//!
//! An object with an unreadable old tree is given up: it stays as it is on disk, its new blocks are freed,
//! and the others go on. Changes read the blocks they need before they are accepted (`live/reach`), so this
//! takes a disk that fails in between.
//!
//! Source: OpenZFS `dmu_objset.c` (`dmu_objset_sync`).

use std::collections::BTreeMap;
use std::pin::pin;

use bytes::{Bytes, BytesMut};
use cenote_codec::compress::Compression;
use cenote_format::bytes::Endian;
use cenote_format::dnode::{
    DN_MAX_NBLKPTR, DNODE_BLOCK_BYTES, DNODE_MIN_BYTES, DNODES_PER_BLOCK, Dnode, DnodeHead, ObjectType,
};
use cenote_format::features::Since;
use cenote_format::objset::{
    OBJSET_FLAG_USERACCOUNTING_COMPLETE, OBJSET_PHYS_SIZE_V1, OBJSET_PHYS_SIZE_V3, ObjsetPhys, ZilHeader,
};
use cenote_format::units::{BlockId, Lsize, ObjectId};
use cenote_pool::write::StoredBlock;
use futures::TryStreamExt;

use crate::error::{DatasetError, Result};
use crate::live::layer::Changed;
use crate::object::Object;
use crate::objset::{
    GROUPUSED_OBJECT, META_DNODE_OBJECT, Objset, PROJECTUSED_OBJECT, RawHead, USERUSED_OBJECT, used_dnodes,
};
use crate::write::batches::in_batches;
use crate::write::owners::{self, Owners};
use crate::write::sink::{BlockSink, NewBlock};
use crate::write::tree::{free_tree, write_tree};

const OBJECTS_PER_TASK: usize = 32;
/// Levels with which 3 pointers reach `DN_MAX_OBJECT`, 2^48 dnodes.
const META_DNODE_LEVELS: u8 = 6;

/// A written object set.
pub struct WrittenObjset {
    /// The set as on disk now.
    pub on_disk: Objset,
    /// Objects given up, and objects with leaked blocks; and why.
    pub damaged: Vec<(ObjectId, DatasetError)>,
}

/// Writes the changes of the set `old`, with its log header.
///
/// # Errors
/// The set itself is unreadable; a write fails.
pub async fn write_objset(
    sink: &impl BlockSink,
    old: &Objset,
    changed: BTreeMap<ObjectId, Changed>,
    log: ZilHeader,
) -> Result<WrittenObjset> {
    let mut damaged = Vec::new();
    let mut phys = ObjsetPhys { zil_header: log, ..old.phys().clone() };
    let mut blocks: BTreeMap<BlockId, BytesMut> = BTreeMap::new();
    let mut owners = Owners::default();
    let write = |(object, changed)| {
        let (sink, old) = (sink.clone(), old.clone());
        async move { write_object(&sink, &old, object, changed).await }
    };
    let mut batches = pin!(in_batches(sink.pool().runtime(), changed, OBJECTS_PER_TASK, write));
    while let Some(batch) = batches.try_next().await? {
        for written in batch {
            let mut written = match written {
                Ok(written) => written,
                Err(given_up) => {
                    damaged.push(given_up);
                    continue;
                }
            };
            damaged.extend(written.lost.take().map(|why| (written.object, why)));
            // The owner of an encrypted object is unknown.
            if old.raw().is_none() {
                owners.replace(&phys, written.before.as_ref(), written.after.as_ref());
            }
            match accounting_slot(written.object, &mut phys) {
                Some(slot) => *slot = written.after,
                None => put_dnode(old, &mut blocks, written).await?,
            }
        }
    }
    let (accounts, unreadable) = owners.settle(old, sink.txg()).await?;
    damaged.extend(unreadable);
    for (object, changed) in accounts {
        match write_object(sink, old, object, changed).await? {
            Ok(written) => {
                if let Some(slot) = accounting_slot(object, &mut phys) {
                    *slot = written.after;
                }
            }
            Err(given_up) => damaged.push(given_up),
        }
    }
    let blocks = blocks.into_iter().map(|(block, bytes)| (block, bytes.freeze())).collect();
    let meta = write_meta_dnode(sink, old, blocks).await?;
    let fill = meta.blkptrs().map(|bp| bp.fill()).sum();
    phys.meta_dnode = Some(meta);
    if let Some(raw) = old.raw() {
        (phys.portable_mac, phys.local_mac) = (raw.portable_mac, [0; 32]);
        phys.flags &= !OBJSET_FLAG_USERACCOUNTING_COMPLETE;
    }
    let on_disk = write_head(sink, old, &phys, fill).await?;
    Ok(WrittenObjset { on_disk, damaged })
}

struct WrittenObject {
    object: ObjectId,
    before: Option<Dnode>,
    /// `None`: freed.
    after: Option<Dnode>,
    /// The number's earlier object had blocks not found.
    lost: Option<DatasetError>,
}

type GivenUp = (ObjectId, DatasetError);

async fn write_object(
    sink: &impl BlockSink,
    old: &Objset,
    object: ObjectId,
    changed: Changed,
) -> Result<Result<WrittenObject, GivenUp>> {
    let sink = sink.for_object();
    match write_or_fail(&sink, old, object, changed).await {
        Ok(written) => {
            sink.object_is_written().await?;
            Ok(Ok(written))
        }
        Err(error) if error.is_damage() => {
            sink.object_is_given_up();
            Ok(Err((object, error)))
        }
        Err(error) => Err(error),
    }
}

async fn write_or_fail(
    sink: &impl BlockSink,
    old: &Objset,
    object: ObjectId,
    changed: Changed,
) -> Result<WrittenObject> {
    let mut before = match old.dnode(object).await {
        Ok(dnode) => Some(Object::new(old.clone(), object, dnode)),
        Err(crate::error::DatasetError::NoObject { .. }) => None,
        Err(error) => return Err(error),
    };
    let dnode_before = before.as_ref().map(|before| before.dnode().clone());
    let mut lost = None;
    if changed.fresh
        && let Some(gone) = before.take()
    {
        let freed = free_tree(&sink.uncounted(), &gone).await;
        if changed.head.is_none() {
            freed?;
        } else {
            // A new object already has the number.
            lost = freed.err();
        }
    }
    let Some(mut head) = changed.head.clone() else {
        return Ok(WrittenObject { object, before: dnode_before, after: None, lost });
    };
    if object < PROJECTUSED_OBJECT && old.raw().is_none() {
        head.flags |= owners::dnode_flags(old.phys());
    }
    let least_levels = changed.least_levels.max(1);
    let tree = write_tree(sink, object, &head, before.as_ref(), changed, least_levels).await?;
    let after = head.build(&tree).map_err(|e| old.format(object, e))?;
    Ok(WrittenObject { object, before: dnode_before, after: Some(after), lost })
}

async fn put_dnode(
    old: &Objset,
    blocks: &mut BTreeMap<BlockId, BytesMut>,
    WrittenObject { object, before, after, .. }: WrittenObject,
) -> Result<()> {
    let slots = before.iter().chain(&after).map(|dnode| dnode.slots).max().unwrap_or(0);
    let id = BlockId(object.0 / DNODES_PER_BLOCK);
    let block = match blocks.entry(id) {
        std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
        std::collections::btree_map::Entry::Vacant(entry) => entry.insert(dnode_block(old, id).await?),
    };
    let at = (object.0 % DNODES_PER_BLOCK) as usize * DNODE_MIN_BYTES;
    let end = (at + usize::from(slots) * DNODE_MIN_BYTES).min(block.len());
    block[at..end].fill(0);
    if let Some(dnode) = after {
        let raw = dnode.raw();
        let Some(place) = block.get_mut(at..at + raw.len()) else {
            return Err(old.damaged(object, "is too large for what is left of its block"));
        };
        place.copy_from_slice(raw);
    }
    Ok(())
}

async fn dnode_block(old: &Objset, id: BlockId) -> Result<BytesMut> {
    let Some(meta) = old.meta() else { return Ok(BytesMut::zeroed(DNODE_BLOCK_BYTES)) };
    let (bytes, endian) = match old.raw() {
        None => meta.read_block(id).await?,
        // As stored: bonuses are ciphertext.
        Some(_) => {
            let bp = meta.blkptr(0, id).await?;
            if bp.is_hole() {
                return Ok(BytesMut::zeroed(DNODE_BLOCK_BYTES));
            }
            (old.pool().as_stored().read(&bp, &old.context(META_DNODE_OBJECT, 0, id)).await?, bp.endian())
        }
    };
    if endian != Endian::NATIVE {
        return Err(old.damaged(META_DNODE_OBJECT, "was written by a machine of the other byte order"));
    }
    Ok(BytesMut::from(&bytes[..]))
}

async fn write_meta_dnode(
    sink: &impl BlockSink,
    old: &Objset,
    blocks: BTreeMap<BlockId, Bytes>,
) -> Result<Dnode> {
    let before = old.meta();
    let mut head = before.as_ref().map_or_else(new_meta_head, |meta| meta.dnode().head());
    if let Some((&last, _)) = blocks.last_key_value() {
        head.max_block_id = head.max_block_id.max(last);
    }
    let mut changed = Changed { blocks, ..Changed::default() };
    // The kernel module accepts a growing tree of dnodes only in the MOS.
    let mut least_levels = if old.dataset_id().0 == 0 { 1 } else { META_DNODE_LEVELS };
    if let Some(raw) = old.raw() {
        least_levels = raw.levels;
        head.indirect_block_shift = raw.indirect_block_shift;
        head.max_block_id = head.max_block_id.max(raw.max_block_id);
        (head.checksum_id, head.compression_id) = (raw.checksum_id, raw.compression_id);
        encrypted_dnodes(old, raw, &mut changed).await?;
    }
    changed.head = Some(head.clone());
    let sink = sink.for_object();
    let tree = write_tree(&sink, META_DNODE_OBJECT, &head, before.as_ref(), changed, least_levels).await?;
    sink.object_is_written().await?;
    head.build(&tree).map_err(|e| old.format(META_DNODE_OBJECT, e))
}

/// Blocks with dnodes keep the salt, IV and MAC they came with.
async fn encrypted_dnodes(old: &Objset, raw: &RawHead, changed: &mut Changed) -> Result<()> {
    for (block, bytes) in std::mem::take(&mut changed.blocks) {
        if used_dnodes(&bytes) == 0 {
            changed.blocks.insert(block, bytes);
            continue;
        }
        let announced = raw.dnodes.lock().remove(&block);
        let crypt = match (announced, old.meta()) {
            (Some(crypt), _) => Some(crypt),
            (None, Some(meta)) => {
                Some(meta.blkptr(0, block).await?).filter(|bp| bp.is_encrypted()).map(|bp| bp.crypt_params())
            }
            (None, None) => None,
        };
        let why = "has dnodes of which nobody said how they are encrypted";
        let crypt = Some(crypt.ok_or_else(|| old.damaged(META_DNODE_OBJECT, why))?);
        let (lsize, compression, endian) = (Lsize(bytes.len() as u64), Compression::Off, Endian::NATIVE);
        changed.arrive(block, StoredBlock { bytes, lsize, compression, endian, crypt });
    }
    Ok(())
}

fn new_meta_head() -> DnodeHead {
    DnodeHead {
        object_type: ObjectType::DNODE,
        bonus_type: ObjectType::NONE,
        bonus: Bytes::new(),
        rest: Bytes::new(),
        checksum_id: 0,
        compression_id: 0,
        flags: 0,
        indirect_block_shift: 17,
        blkptr_count: DN_MAX_NBLKPTR,
        slots: 1,
        data_block_bytes: DNODE_BLOCK_BYTES as u32,
        max_block_id: BlockId(0),
    }
}

async fn write_head(sink: &impl BlockSink, old: &Objset, phys: &ObjsetPhys, fill: u64) -> Result<Objset> {
    let has_accounts = sink.pool().uberblock().has(Since::Userspace);
    let head_bytes = if has_accounts { OBJSET_PHYS_SIZE_V3 } else { OBJSET_PHYS_SIZE_V1 };
    let data = Bytes::from(phys.encode(head_bytes));
    let as_written = ObjsetPhys::decode(&data, Endian::NATIVE);
    let as_written = as_written.map_err(|e| old.format(META_DNODE_OBJECT, e))?;
    let new = NewBlock {
        object: META_DNODE_OBJECT,
        object_type: ObjectType::OBJSET,
        level: 0,
        block: BlockId(0),
        data,
        old: *old.bp(),
        fill,
        checksum_id: 0,
        compression_id: 0,
        keeps_birth: false,
        moves: false,
    };
    let sink = sink.for_object();
    let bp = sink.write(new).await?;
    sink.object_is_written().await?;
    Ok(old.with_head(sink.pool(), bp, as_written))
}

fn accounting_slot(object: ObjectId, phys: &mut ObjsetPhys) -> Option<&mut Option<Dnode>> {
    match object {
        USERUSED_OBJECT => Some(&mut phys.userused_dnode),
        GROUPUSED_OBJECT => Some(&mut phys.groupused_dnode),
        PROJECTUSED_OBJECT => Some(&mut phys.projectused_dnode),
        _ => None,
    }
}

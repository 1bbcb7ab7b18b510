//! OBJECT records: from now on the object exists, with these attributes.
//!
//! ```text
//!   number free here       made
//!   another object has it  freed and made: another type of dnode, other blocks
//!   the same object        attributes change, blocks stay
//! ```
//!
//! Idea: an equal number does not prove the same object. A different block size means another, except for a
//! file of several blocks with the same generation: an earlier stream split its blocks, and they stay small.
//!
//! Source: OpenZFS `dmu_recv.c` (`receive_object`, `receive_handle_existing_object`).

use bytes::{Bytes, BytesMut};
use cenote_codec::checksum::Checksum;
use cenote_codec::compress::Compression;
use cenote_format::blkptr::BLKPTR_BYTES;
use cenote_format::bytes::Endian;
use cenote_format::dnode::{
    DN_MAX_LEVELS, DN_MAX_NBLKPTR, DNODE_CORE_BYTES, DNODE_MIN_BYTES, DNODES_PER_BLOCK, Dnode, DnodeHead,
    ObjectType,
};
use cenote_format::stream::{ObjectRecord, RecordFlags};
use cenote_format::units::{BlockId, ObjectId, SPA_MINBLOCKSIZE};
use cenote_format::zap::swap_words;
use cenote_object::{DatasetError, Edit, NewObject, Result};

use crate::receive::apply::{MAX_BLOCKS, Way};

/// `DNODES_PER_BLOCK`: a dnode fits into a block.
pub(super) const MAX_SLOTS: u8 = 32;
/// `SA_MAGIC`.
const SA_MAGIC: u32 = 0x2f_505a;
/// Offset of a file's generation: `SA_GEN_OFFSET`, and in old attributes (`zp_gen`).
const SA_GEN_OFFSET: usize = 16;
const ZP_GEN_OFFSET: usize = 64;

/// Slots of an object's dnode.
pub(super) fn slots_of(record: &ObjectRecord) -> u8 {
    record.slots.max(1)
}

/// Whether it takes slots that other objects may have.
pub(super) fn needs_slots(record: &ObjectRecord) -> bool {
    record.slots > 1
}

pub(super) async fn receive(edit: &Edit, way: Way, record: &ObjectRecord, payload: Bytes) -> Result<()> {
    let object = record.object;
    check(edit, way, record)?;
    if way.is_raw {
        return receive_raw(edit, record, payload).await;
    }
    let bonus = bonus_of(edit, way, record, payload)?;
    let new = NewObject {
        object_type: record.object_type,
        block_bytes: record.block_bytes,
        bonus_type: record.bonus_type,
        bonus: bonus.clone(),
        slots: slots_of(record),
        indirect_block_shift: NewObject::of(record.object_type).indirect_block_shift,
        spills: record.flags.has(RecordFlags::OBJECT_SPILL),
    };
    let before = match edit.view().dnode(object).await {
        Ok(dnode) => Some(dnode.detach()),
        Err(DatasetError::NoObject { .. }) => None,
        Err(error) => return Err(error),
    };
    let has_spill = record.flags.has(RecordFlags::OBJECT_SPILL);
    match before {
        None => {
            refuse_within(edit, object).await?;
            edit.create_at(object, &new).await?;
        }
        Some(before) if is_another(edit, way, record, &before, &bonus)? => {
            let opened = edit.view().object(object).await?;
            let spill = if way.tells_of_spills && has_spill { opened.read_spill().await? } else { None };
            drop(opened);
            edit.destroy(object).await?;
            edit.create_at(object, &new).await?;
            if let Some((_, spill)) = spill {
                edit.set_spill(object, Some(spill)).await?;
            }
        }
        Some(before) => {
            let is_same = before.object_type == record.object_type
                && before.bonus_type == record.bonus_type
                && before.bonus().len() == bonus.len();
            if before.object_type != record.object_type {
                edit.set_type(object, record.object_type).await?;
            }
            let keeps_spill = if way.tells_of_spills { has_spill } else { is_same };
            if !keeps_spill && before.spill().is_some() {
                edit.set_spill(object, None).await?;
            }
            edit.set_bonus(object, record.bonus_type, bonus).await?;
        }
    }
    edit.set_storage(object, record.checksum_id, record.compression_id).await
}

/// Refuses a slot of another object's dnode.
async fn refuse_within(edit: &Edit, object: ObjectId) -> Result<()> {
    let (view, block) = (edit.view(), object.0 - object.0 % DNODES_PER_BLOCK);
    for before in (block..object.0).rev().map(ObjectId) {
        match view.dnode(before).await {
            Ok(dnode) if before.0 + u64::from(dnode.slots) > object.0 => {
                return Err(view.damaged(object, "is a slot of another object"));
            }
            Ok(_) => return Ok(()),
            Err(DatasetError::NoObject { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn check(edit: &Edit, way: Way, record: &ObjectRecord) -> Result<()> {
    let wrong = |why| Err(edit.view().damaged(record.object, why));
    let block_bytes = u64::from(record.block_bytes);
    let slots = slots_of(record);
    if record.object_type == ObjectType::NONE {
        return wrong("it has no type");
    }
    if !(SPA_MINBLOCKSIZE..=way.limits.block_bytes).contains(&block_bytes)
        || !block_bytes.is_multiple_of(SPA_MINBLOCKSIZE)
    {
        return wrong("its blocks have no such size");
    }
    let end_slot = record.object.0 % u64::from(MAX_SLOTS) + u64::from(slots);
    if slots > way.limits.slots || end_slot > u64::from(MAX_SLOTS) {
        return wrong("its dnode has no such size");
    }
    if record.bonus_bytes as usize > DnodeHead::bonus_room(slots, 1) {
        return wrong("its bonus is too long");
    }
    // Checksums of labels, gang headers and log blocks lie within these, so no object has them.
    let is_checksum = Checksum::try_from(record.checksum_id)
        .is_ok_and(|own| own.is_of_pointer() || matches!(own, Checksum::Inherit | Checksum::On));
    if !is_checksum || Compression::try_from(record.compression_id).is_err() {
        return wrong("its checksum or compression is not one of objects");
    }
    let allowed = if way.tells_of_spills { RecordFlags::OBJECT_SPILL } else { RecordFlags::default() };
    if way.is_raw {
        return check_raw(edit, record);
    }
    let is_of_raw = record.raw_bonus_bytes != 0
        || record.blkptr_count != 0
        || record.indirect_block_shift != 0
        || record.levels != 0;
    match record.flags.without(allowed) != RecordFlags::default() || is_of_raw {
        true => wrong("its record has what belongs to other streams"),
        false => Ok(()),
    }
}

fn check_raw(edit: &Edit, record: &ObjectRecord) -> Result<()> {
    let wrong = |why| Err(edit.view().damaged(record.object, why));
    let has_spill = record.flags.has(RecordFlags::OBJECT_SPILL);
    if record.flags.has(RecordFlags::RAW_BYTESWAP) {
        return wrong("its dnode is of the other byte order");
    }
    if !(1..=DN_MAX_NBLKPTR).contains(&record.blkptr_count)
        || !(12..=17).contains(&record.indirect_block_shift)
        || !(1..=DN_MAX_LEVELS).contains(&record.levels)
        || record.max_block_id.0 >= MAX_BLOCKS
    {
        return wrong("its dnode has no such tree");
    }
    let spill_bytes = if has_spill { BLKPTR_BYTES } else { 0 };
    let pointers = usize::from(record.blkptr_count) * BLKPTR_BYTES;
    let room = usize::from(slots_of(record)) * DNODE_MIN_BYTES - DNODE_CORE_BYTES;
    let bonus_bytes = record.raw_bonus_bytes as usize;
    match bonus_bytes + pointers + spill_bytes > room || record.raw_bonus_bytes < record.bonus_bytes {
        true => wrong("its bonus is too long"),
        false => Ok(()),
    }
}

/// Makes an object bit for bit as at the sender: its dnode's MAC covers it.
async fn receive_raw(edit: &Edit, record: &ObjectRecord, payload: Bytes) -> Result<()> {
    let object = record.object;
    let bonus_bytes = (record.bonus_bytes as usize).min(payload.len());
    let mut head = DnodeHead {
        object_type: record.object_type,
        bonus_type: record.bonus_type,
        bonus: payload.slice(..bonus_bytes),
        rest: payload.slice(bonus_bytes..),
        checksum_id: record.checksum_id,
        compression_id: record.compression_id,
        flags: 0,
        indirect_block_shift: record.indirect_block_shift,
        blkptr_count: record.blkptr_count,
        slots: slots_of(record),
        data_block_bytes: record.block_bytes,
        max_block_id: record.max_block_id,
    };
    let before = match edit.view().dnode(object).await {
        Ok(dnode) => Some(dnode.detach()),
        Err(DatasetError::NoObject { .. }) => None,
        Err(error) => return Err(error),
    };
    let Some(before) = before else {
        refuse_within(edit, object).await?;
        return edit.put_head(object, head, record.levels, true).await;
    };
    let is_another = before.slots != head.slots
        || before.data_block_bytes != head.data_block_bytes
        || before.indirect_block_shift != head.indirect_block_shift
        || before.blkptr_count != head.blkptr_count
        || before.levels > record.levels;
    if is_another {
        edit.destroy(object).await?;
        return edit.put_head(object, head, record.levels, true).await;
    }
    let has_spill = record.flags.has(RecordFlags::OBJECT_SPILL);
    if !has_spill && before.spill().is_some() {
        edit.set_spill(object, None).await?;
    }
    let first = BlockId(record.max_block_id.0 + 1);
    edit.punch(object, first, MAX_BLOCKS.saturating_sub(first.0)).await?;
    head.flags = before.flags;
    head.set_spill(has_spill && before.spill().is_some());
    edit.put_head(object, head, record.levels, false).await
}

/// The bonus, in native byte order.
fn bonus_of(edit: &Edit, way: Way, record: &ObjectRecord, payload: Bytes) -> Result<Bytes> {
    let bonus = payload.slice(..(record.bonus_bytes as usize).min(payload.len()));
    if way.endian == Endian::NATIVE || bonus.is_empty() {
        return Ok(bonus);
    }
    match record.bonus_type {
        // Attributes mark their own byte order.
        ObjectType::SA => Ok(bonus),
        ObjectType::UINT64_OTHER | ObjectType::FUID_SIZE | ObjectType::PACKED_NVLIST_SIZE => {
            let mut swapped = BytesMut::from(&bonus[..]);
            swap_words(&mut swapped);
            Ok(swapped.freeze())
        }
        _ => Err(edit.view().damaged(record.object, "its bonus is of the other byte order")),
    }
}

/// Whether another object than the record's has the number.
fn is_another(edit: &Edit, way: Way, record: &ObjectRecord, before: &Dnode, bonus: &[u8]) -> Result<bool> {
    if before.slots != slots_of(record) || blkptr_count(record) < before.blkptr_count {
        return Ok(true);
    }
    if before.data_block_bytes == record.block_bytes {
        return Ok(false);
    }
    let plain = ObjectType::PLAIN_FILE_CONTENTS;
    if way.is_whole
        || record.object_type != plain
        || before.object_type != plain
        || before.max_block_id.0 == 0
    {
        return Ok(true);
    }
    let wrong = |why| edit.view().damaged(record.object, why);
    let no_file = || wrong("it is no file, and has blocks of another size here");
    let old = generation(before.bonus_type, before.bonus()).ok_or_else(no_file)?;
    let new = generation(record.bonus_type, bonus).ok_or_else(no_file)?;
    if old != new {
        return Ok(true);
    }
    match record.block_bytes > before.data_block_bytes {
        true => Ok(false),
        false => Err(wrong("it has larger blocks here than where it was sent from")),
    }
}

/// Number of block pointers of the dnode (`deduce_nblkptr`).
fn blkptr_count(record: &ObjectRecord) -> u8 {
    if record.bonus_type == ObjectType::SA {
        return 1;
    }
    let spare = DnodeHead::bonus_room(1, 1).saturating_sub(record.bonus_bytes as usize) / BLKPTR_BYTES;
    (1 + spare).min(DN_MAX_NBLKPTR.into()) as u8
}

fn generation(bonus_type: ObjectType, bonus: &[u8]) -> Option<u64> {
    let word = |at: usize| bonus.get(at..)?.first_chunk::<8>().copied();
    match bonus_type {
        ObjectType::SA => {
            let endian = match bonus.first_chunk::<4>().map(|magic| u32::from_ne_bytes(*magic)) {
                Some(SA_MAGIC) => Endian::NATIVE,
                _ => Endian::NATIVE.swapped(),
            };
            let layout = endian.u16(*bonus.get(4..)?.first_chunk::<2>()?);
            let header_bytes = usize::from(layout >> 10) << 3;
            Some(endian.u64(word(header_bytes + SA_GEN_OFFSET)?))
        }
        ObjectType::ZNODE => Some(u64::from_ne_bytes(word(ZP_GEN_OFFSET)?)),
        _ => None,
    }
}

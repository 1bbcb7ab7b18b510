//! Records become changes of objects.
//!
//! Idea: records gather until worth a hold, then all are applied in one txg. Each is checked against its
//! object, which may have other sizes than the sender's. Two kinds are applied alone, since they wait or take
//! long: an object that needs slots of others, and a freed range of numbers.
//!
//! Source: OpenZFS `dmu_recv.c` (`receive_process_record` and its callees).

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cenote_codec::compress::Compression;
use cenote_engine::{Engine, Need};
use cenote_format::blkptr::{BPE_PAYLOAD_BYTES, Blkptr, BlockIdentity, CryptParams};
use cenote_format::bytes::Endian;
use cenote_format::dnode::{DNODES_PER_BLOCK, ObjectType};
use cenote_format::stream::{
    CryptFields, FreeObjects, ObjectRange, ObjectRecord, Range, Record, RecordFlags, Spill, Write,
    WriteEmbedded,
};
use cenote_format::units::{BlockId, Guid, Lsize, ObjectId, SPA_MAXBLOCKSIZE, SPA_MINBLOCKSIZE, Txg};
use cenote_format::zap::{swap_block, swap_words};
use cenote_object::objset::RawHead;
use cenote_object::{DatasetError, Edit, LiveObjset, Result};
use cenote_pool::write::StoredBlock;
use cenote_tasks::Progress;

use crate::reader::Item;
use crate::receive::object;
use crate::receive::reshare::Reshare;

/// Most payload applied under one hold.
pub(super) const BATCH_BYTES: u64 = 4 << 20;
/// Most records applied under one hold.
const BATCH_RECORDS: usize = 1024;
/// Memory and space for a record besides its payload.
pub(super) const RECORD_BYTES: u64 = 4096;
/// Block numbers are below this: offsets are signed, and no block is smaller than a sector.
pub(super) const MAX_BLOCKS: u64 = 1 << 54;
/// `DN_MAX_OBJECT`: object numbers are below this.
pub(super) const DN_MAX_OBJECT: u64 = 1 << 48;

/// The context of a stream's records.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// Byte order of the sender.
    pub(super) endian: Endian,
    /// Flags of spill blocks are reliable (`DRR_FLAG_SPILL_BLOCK`).
    pub(super) tells_of_spills: bool,
    /// A full stream, not an increment.
    pub(super) is_whole: bool,
    /// Blocks come encrypted.
    pub(super) is_raw: bool,
    pub(super) limits: Limits,
}

/// Limits by the pool's features: beyond them, other software could not read the pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The largest block (`spa_maxblocksize`).
    pub(super) block_bytes: u64,
    /// Slots of the largest dnode. More than one need a feature that BEGIN declares.
    pub(super) slots: u8,
    pub(super) has_lz4: bool,
    pub(super) has_zstd: bool,
}

impl Limits {
    /// Whether a block may stay compressed like this.
    fn allow(self, compression_id: u8) -> bool {
        match Compression::try_from(compression_id) {
            Ok(Compression::Lz4) => self.has_lz4,
            Ok(Compression::Zstd) => self.has_zstd,
            _ => true,
        }
    }
}

/// The head being filled.
pub(super) struct Filling {
    engine: Engine,
    live: LiveObjset,
    way: Way,
    /// The dataset that the records name; all the same.
    of_records: Option<Guid>,
    /// Of a raw stream.
    raw: Option<Arc<RawHead>>,
    /// Of `--reshare`.
    reshare: Option<Reshare>,
    /// The objects whose dnode encryption was announced.
    announced: std::ops::Range<u64>,
    /// Bytes before the stream.
    start_bytes: u64,
    /// The lowest number of a further object.
    next_object: u64,
    /// The last object in the stream, and its last block.
    last_told: ObjectId,
    last_block: Option<(ObjectId, u64)>,
    /// The stream mentions objects before all blocks of the objects before them.
    tells_ahead: bool,
    batch: Vec<Item>,
    batch_bytes: u64,
    /// The last applied block.
    progress: Option<Progress>,
    /// The progress after this batch.
    next: Option<Progress>,
    max_object: ObjectId,
}

impl Filling {
    pub(super) fn new(
        engine: &Engine,
        live: LiveObjset,
        way: Way,
        raw: Option<Arc<RawHead>>,
        reshare: Option<Reshare>,
        start_bytes: u64,
    ) -> Filling {
        Filling {
            engine: engine.clone(),
            live,
            way,
            of_records: None,
            raw,
            reshare,
            announced: 0..0,
            start_bytes,
            next_object: 0,
            last_told: ObjectId(0),
            last_block: None,
            tells_ahead: false,
            batch: Vec::new(),
            batch_bytes: 0,
            progress: None,
            next: None,
            max_object: ObjectId(0),
        }
    }

    /// The progress of this stream alone.
    pub(super) fn progress(&self) -> Option<Progress> {
        self.progress
    }

    /// Takes a record, and applies it now or with others.
    pub(super) async fn take(&mut self, item: Item) -> Result<()> {
        self.check(&item)?;
        match &item.record {
            Record::FreeObjects(range) => {
                let range = range.clone();
                self.flush().await?;
                return self.free_objects(range).await;
            }
            Record::ObjectRange(range) => return self.announce(&range.clone()),
            Record::Object(record) if self.raw.is_some() && !self.announced.contains(&record.object.0) => {
                return Err(self.wrong(record.object, "nobody said how its dnode is encrypted"));
            }
            Record::Object(record) if object::needs_slots(record) => {
                let record = record.clone();
                self.make_way(&record).await?;
            }
            _ => {}
        }
        self.batch_bytes += item.payload.len() as u64 + RECORD_BYTES;
        self.batch.push(item);
        match self.batch_bytes >= BATCH_BYTES || self.batch.len() >= BATCH_RECORDS {
            true => self.flush().await,
            false => Ok(()),
        }
    }

    /// Applies all records taken.
    pub(super) async fn flush(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let (batch, way) = (std::mem::take(&mut self.batch), self.way);
        let need = Need::Write(std::mem::take(&mut self.batch_bytes));
        let reshare = self.reshare.clone();
        let change = move |edit: Edit| async move {
            for item in batch {
                apply(&edit, way, reshare.as_ref(), item).await?;
            }
            Ok::<(), DatasetError>(())
        };
        self.engine.change(&self.live, need, change).await?;
        self.progress = self.next;
        match &self.reshare {
            Some(reshare) if reshare.is_full() => reshare.settle(&self.engine, &self.live).await,
            _ => Ok(()),
        }
    }

    /// Shares the blocks that were written twice, at the end of the stream.
    pub(super) async fn settle(&self) -> Result<()> {
        match &self.reshare {
            Some(reshare) => reshare.settle(&self.engine, &self.live).await,
            None => Ok(()),
        }
    }

    /// Frees all objects after the last one of a full stream received as a clone.
    pub(super) async fn free_beyond(&mut self) -> Result<()> {
        let first = ObjectId(self.max_object.0 + 1);
        self.free_range(first..ObjectId(DN_MAX_OBJECT)).await
    }

    /// Checks that all records are of one dataset, and that objects and offsets ascend.
    fn check(&mut self, item: &Item) -> Result<()> {
        let (object, offset, to_guid) = match &item.record {
            Record::Object(record) => (record.object, Some(0), record.to_guid),
            Record::Write(record) => (record.object, Some(record.offset), record.to_guid),
            Record::WriteEmbedded(record) => (record.object, Some(record.offset), record.to_guid),
            Record::Free(record) | Record::Redact(record) => (record.object, None, record.to_guid),
            Record::Spill(record) => (record.object, None, record.to_guid),
            Record::FreeObjects(record) => (ObjectId(1), None, record.to_guid),
            Record::ObjectRange(record) if self.raw.is_some() => (ObjectId(1), None, record.to_guid),
            _ => return Err(self.wrong(ObjectId(0), "a record of this kind can't be received")),
        };
        // Records of what was received in part (`zfs send --saved`) name its head, not the snapshot of BEGIN.
        if to_guid != *self.of_records.get_or_insert(to_guid) {
            return Err(self.wrong(object, "a record is of another snapshot"));
        }
        if object.0 == 0 || object.0 >= DN_MAX_OBJECT {
            return Err(self.wrong(object, "there can be no object of that number"));
        }
        if let Record::Object(record) = &item.record {
            if object.0 < self.next_object {
                return Err(self.wrong(object, "comes after one that should follow it"));
            }
            self.next_object = object.0 + u64::from(object::slots_of(record));
            self.last_told = object;
        }
        if !matches!(item.record, Record::FreeObjects(_) | Record::ObjectRange(_)) {
            self.max_object = self.max_object.max(object);
        }
        let Some(offset) = offset else { return Ok(()) };
        if matches!(item.record, Record::Object(_)) {
            // Old senders mention some objects before the blocks of the first.
            if self.last_block.is_some() && !self.tells_ahead {
                self.next = Some(self.progress_to(object, offset, item));
            }
            return Ok(());
        }
        if self.last_block.is_some_and(|last| (object, offset) < last) {
            return Err(self.wrong(object, "a block comes after one that should follow it"));
        }
        self.tells_ahead |= object < self.last_told;
        self.last_block = Some((object, offset));
        self.next = Some(self.progress_to(object, offset, item));
        Ok(())
    }

    /// Notes the encryption of the dnodes of the following objects, one block of dnodes.
    fn announce(&mut self, range: &ObjectRange) -> Result<()> {
        let is_block = range.slots == DNODES_PER_BLOCK && range.first.0.is_multiple_of(DNODES_PER_BLOCK);
        let is_swapped = range.flags.has(RecordFlags::RAW_BYTESWAP);
        let Some(raw) =
            self.raw.as_ref().filter(|_| is_block && !is_swapped && range.first.0 < DN_MAX_OBJECT)
        else {
            return Err(self.wrong(range.first, "its dnodes can't be received as they are"));
        };
        let CryptFields { salt, iv, mac } = range.crypt;
        raw.dnodes.lock().insert(BlockId(range.first.0 / DNODES_PER_BLOCK), CryptParams { salt, iv, mac });
        self.announced = range.first.0..range.first.0 + DNODES_PER_BLOCK;
        Ok(())
    }

    fn progress_to(&self, object: ObjectId, offset: u64, item: &Item) -> Progress {
        Progress { object, offset, bytes: item.end_bytes.saturating_sub(self.start_bytes) }
    }

    async fn free_objects(&mut self, FreeObjects { first, count, .. }: FreeObjects) -> Result<()> {
        let end = first.0.checked_add(count).ok_or_else(|| self.wrong(first, "a range has no end"))?;
        self.free_range(first.max(ObjectId(1))..ObjectId(end.min(DN_MAX_OBJECT))).await
    }

    async fn free_range(&self, range: std::ops::Range<ObjectId>) -> Result<()> {
        let mut next = Some(range.start).filter(|start| *start < range.end);
        while let Some(start) = next {
            let range = start..range.end;
            let free = move |edit: Edit| async move { edit.destroy_some(range).await };
            next = self.engine.change(&self.live, Need::Free, free).await?;
        }
        Ok(())
    }

    /// Frees the objects whose slots another object takes, in an earlier txg: within one txg, the owner of
    /// the slots would be ambiguous.
    async fn make_way(&mut self, record: &ObjectRecord) -> Result<()> {
        let end = ObjectId(record.object.0.saturating_add(u64::from(object::slots_of(record))));
        let range = ObjectId(record.object.0 + 1)..end;
        let (mut is_taken, mut was_taken) = (false, false);
        let view = self.live.view();
        for object in (range.start.0..range.end.0).map(ObjectId) {
            was_taken |= view.is_changed(object);
            is_taken |= match view.dnode(object).await {
                Ok(_) => true,
                Err(DatasetError::NoObject { .. }) => false,
                Err(error) => return Err(error),
            };
        }
        drop(view);
        if !is_taken && !was_taken {
            return Ok(());
        }
        self.flush().await?;
        self.free_range(range).await?;
        self.engine.sync_all().await
    }

    fn wrong(&self, object: ObjectId, why: &str) -> DatasetError {
        self.live.view().damaged(object, why)
    }
}

async fn apply(
    edit: &Edit,
    way: Way,
    reshare: Option<&Reshare>,
    Item { record, payload, .. }: Item,
) -> Result<()> {
    match record {
        Record::Object(record) => object::receive(edit, way, &record, payload).await,
        Record::Write(record) => write(edit, way, reshare, &record, payload).await,
        Record::WriteEmbedded(record) => write_embedded(edit, way, &record, payload).await,
        // As in OpenZFS, blocks that the sender left out are holes here.
        Record::Free(range) | Record::Redact(range) => free(edit, &range).await,
        Record::Spill(record) => spill(edit, way, &record, payload).await,
        _ => Ok(()),
    }
}

fn wrong(edit: &Edit, object: ObjectId, why: &str) -> DatasetError {
    edit.view().damaged(object, why)
}

async fn write(
    edit: &Edit,
    way: Way,
    reshare: Option<&Reshare>,
    record: &Write,
    payload: Bytes,
) -> Result<()> {
    let object = record.object;
    let len = record.logical_bytes;
    if len == 0
        || len > SPA_MAXBLOCKSIZE
        || !len.is_multiple_of(SPA_MINBLOCKSIZE)
        || record.offset.checked_add(len).is_none_or(|end| end > 1 << 63)
    {
        return Err(wrong(edit, object, "a block has no such size or place"));
    }
    if way.is_raw {
        return write_raw(edit, way, record, payload).await;
    }
    let data = match record.compression_id {
        0 => in_native_order(edit, way, object, record.object_type, payload.clone())?,
        // A wrong block must be refused now: later, its source would be unknown.
        id => decompressed(edit, object, id, &payload, len)?,
    };
    if let Some(reshare) = reshare
        && reshare.share(edit, object, record.offset, &data).await?
    {
        return Ok(());
    }
    if record.compression_id != 0 {
        let head = edit.view().head(object).await?;
        let is_block = u64::from(head.data_block_bytes) == len && record.offset.is_multiple_of(len);
        let id = record.compression_id;
        let stays = way.limits.allow(id) && id != Compression::Off as u8;
        if is_block && edit.view().key().is_none() && stays {
            let stored = stored_block(edit, object, id, (payload, len), None)?;
            return edit.write_stored(object, BlockId(record.offset / len), stored).await;
        }
    }
    write_data(edit, object, record.offset, data).await
}

fn stored_block(
    edit: &Edit,
    object: ObjectId,
    compression_id: u8,
    (bytes, len): (Bytes, u64),
    crypt: Option<CryptParams>,
) -> Result<StoredBlock> {
    let compression = Compression::try_from(compression_id).ok().filter(|compression| {
        !matches!(compression, Compression::Inherit | Compression::On | Compression::Empty)
    });
    let compression = compression.ok_or_else(|| wrong(edit, object, "no block is compressed like that"))?;
    let is_whole = compression == Compression::Off && bytes.len() as u64 != len;
    let is_size = crypt.is_none() || (bytes.len() as u64).is_multiple_of(SPA_MINBLOCKSIZE);
    if is_whole || !is_size || bytes.is_empty() || bytes.len() as u64 > len {
        return Err(wrong(edit, object, "a block has another size than it says"));
    }
    Ok(StoredBlock { bytes, lsize: Lsize(len), compression, endian: Endian::NATIVE, crypt })
}

fn params(fields: CryptFields) -> Option<CryptParams> {
    Some(CryptParams { salt: fields.salt, iv: fields.iv, mac: fields.mac })
}

/// Writes a block that stays encrypted.
async fn write_raw(edit: &Edit, way: Way, record: &Write, payload: Bytes) -> Result<()> {
    let (object, len) = (record.object, record.logical_bytes);
    let is_allowed = way.limits.allow(record.compression_id);
    if record.flags.has(RecordFlags::RAW_BYTESWAP) || !record.offset.is_multiple_of(len) || !is_allowed {
        return Err(wrong(edit, object, "a block can't be received as it is"));
    }
    let stored = stored_block(edit, object, record.compression_id, (payload, len), params(record.crypt))?;
    edit.write_stored(object, BlockId(record.offset / len), stored).await
}

async fn write_data(edit: &Edit, object: ObjectId, offset: u64, data: Bytes) -> Result<()> {
    let block_bytes = u64::from(edit.view().head(object).await?.data_block_bytes);
    if data.len() as u64 == block_bytes && offset.is_multiple_of(block_bytes) {
        return edit.write_block(object, BlockId(offset / block_bytes), data).await;
    }
    edit.write(object, offset, data).await
}

fn decompressed(edit: &Edit, object: ObjectId, id: u8, payload: &[u8], len: u64) -> Result<Bytes> {
    let compression = Compression::try_from(id).map_err(|error| wrong(edit, object, &error.to_string()))?;
    let data = compression.decompress(payload, len as usize);
    data.map(Bytes::from).map_err(|error| wrong(edit, object, &error.to_string()))
}

/// A block of tables, converted from the other byte order.
pub(super) fn in_native_order(
    edit: &Edit,
    way: Way,
    object: ObjectId,
    object_type: ObjectType,
    payload: Bytes,
) -> Result<Bytes> {
    if way.endian == Endian::NATIVE {
        return Ok(payload);
    }
    let mut block = BytesMut::from(&payload[..]);
    match object_type {
        _ if object_type.is_zap() => swap_block(&mut block),
        // Bytes, or structures that mark their own byte order.
        ObjectType::PLAIN_FILE_CONTENTS
        | ObjectType::ZVOL
        | ObjectType::PLAIN_OTHER
        | ObjectType::SA
        | ObjectType::SYSACL
        | ObjectType::FUID
        | ObjectType::PACKED_NVLIST => {}
        ObjectType::UINT64_OTHER | ObjectType::FUID_SIZE => swap_words(&mut block),
        _ => return Err(wrong(edit, object, "its blocks are of the other byte order")),
    }
    Ok(block.freeze())
}

async fn write_embedded(edit: &Edit, way: Way, record: &WriteEmbedded, payload: Bytes) -> Result<()> {
    let (object, len) = (record.object, record.length);
    let bytes = payload.get(..record.physical_bytes as usize).unwrap_or_default();
    if way.is_raw || record.embedded_type != 0 || bytes.is_empty() || bytes.len() > BPE_PAYLOAD_BYTES {
        return Err(wrong(edit, object, "an embedded block is not what one can be"));
    }
    let logical = u64::from(record.logical_bytes);
    let has_end = record.offset.checked_add(len).is_some_and(|end| end <= 1 << 63);
    if logical == 0 || logical > SPA_MAXBLOCKSIZE || !(has_end || record.is_spill()) {
        return Err(wrong(edit, object, "an embedded block has no such size or place"));
    }
    // A wrong block must be refused now: later, its source would be unknown.
    let data = match Compression::try_from(record.compression_id) {
        Ok(Compression::Off) if logical <= bytes.len() as u64 => {
            Bytes::copy_from_slice(&bytes[..logical as usize])
        }
        _ => decompressed(edit, object, record.compression_id, bytes, logical)?,
    };
    if record.is_spill() {
        return edit.set_spill(object, Some(data)).await;
    }
    let head = edit.view().head(object).await?;
    let block_bytes = u64::from(head.data_block_bytes);
    let is_as_here = way.endian == Endian::NATIVE && block_bytes == logical && edit.view().key().is_none();
    let stays = way.limits.allow(record.compression_id);
    if !is_as_here || !stays || !record.offset.is_multiple_of(block_bytes) {
        let data = in_native_order(edit, way, object, head.object_type, data)?;
        return write_data(edit, object, record.offset, data).await;
    }
    let identity =
        BlockIdentity { lsize: Lsize(logical), object_type: head.object_type, level: 0, birth: Txg(0) };
    let bp = Blkptr::embedded(&identity, record.compression_id, bytes);
    let bp = bp.ok_or_else(|| wrong(edit, object, "an embedded block is not what one can be"))?;
    edit.share_blocks(object, BlockId(record.offset / block_bytes), &[bp]).await
}

/// Frees a range, and zeros its parts of other blocks.
async fn free(edit: &Edit, range: &Range) -> Result<()> {
    let object = range.object;
    let head = edit.view().head(object).await?;
    let block_bytes = u64::from(head.data_block_bytes);
    let content_end = head.max_block_id.0.saturating_add(1).saturating_mul(block_bytes);
    let end = match range.length {
        u64::MAX => u64::MAX,
        length => {
            range.offset.checked_add(length).ok_or_else(|| wrong(edit, object, "a range has no end"))?
        }
    };
    if range.offset >= content_end || block_bytes == 0 {
        return Ok(());
    }
    let (first, last) = (range.offset.div_ceil(block_bytes), end / block_bytes);
    let is_to_end = end >= content_end;
    if first < last || is_to_end {
        let count = if is_to_end { MAX_BLOCKS.saturating_sub(first) } else { last - first };
        edit.punch(object, BlockId(first), count).await?;
    }
    let whole = first.saturating_mul(block_bytes)..last.saturating_mul(block_bytes);
    zero(edit, object, range.offset..whole.start.min(end).min(content_end)).await?;
    match is_to_end || whole.end < whole.start {
        true => Ok(()),
        false => zero(edit, object, whole.end..end).await,
    }
}

/// Zeros a part of a block, unless a hole.
async fn zero(edit: &Edit, object: ObjectId, range: std::ops::Range<u64>) -> Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let opened = edit.view().object(object).await?;
    let block = BlockId(range.start / opened.block_bytes().max(1));
    if opened.next_data_block(block).await? != Some(block) {
        return Ok(());
    }
    edit.write(object, range.start, Bytes::from(vec![0; (range.end - range.start) as usize])).await
}

async fn spill(edit: &Edit, way: Way, record: &Spill, payload: Bytes) -> Result<()> {
    let object = record.object;
    let is_known = edit.view().dnode(object).await?.spill().is_some();
    if way.tells_of_spills && record.flags.has(RecordFlags::SPILL_UNMODIFIED) && is_known {
        return Ok(());
    }
    let len = record.length;
    let is_block =
        (SPA_MINBLOCKSIZE..=way.limits.block_bytes).contains(&len) && len.is_multiple_of(SPA_MINBLOCKSIZE);
    if way.is_raw {
        let is_native = !record.flags.has(RecordFlags::RAW_BYTESWAP);
        if !is_block || !is_native || !way.limits.allow(record.compression_id) {
            return Err(wrong(edit, object, "a spill block can't be received as it is"));
        }
        let stored = stored_block(edit, object, record.compression_id, (payload, len), params(record.crypt))?;
        return edit.set_stored_spill(object, stored).await;
    }
    if !is_block || payload.len() as u64 != len {
        return Err(wrong(edit, object, "a spill block has no such size"));
    }
    let data = in_native_order(edit, way, object, record.object_type, payload)?;
    edit.set_spill(object, Some(data)).await
}

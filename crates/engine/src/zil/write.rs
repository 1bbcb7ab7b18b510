//! One commit on its way to the disk: records into blocks, blocks to their places, one flush.
//!
//! Idea: a block points to its successor, so it is closed only when that has a place. The next block's size
//! follows from the rest of this commit or, at its end, from recent commits. A write that does not fit is
//! split.
//!
//! Memory: the blocks of a window, besides the records.
//!
//! Source: OpenZFS `zil.c` (`zil_lwb_assign`, `zil_lwb_plan`, `zil_lwb_write_close`), `zio.c`
//! (`zio_alloc_zil`).

use std::collections::BTreeSet;

use bytes::Bytes;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::gang::EmbeddedChecksum;
use cenote_format::units::{BlockId, ObjectId, Txg, VdevId};
use cenote_format::zil::record::{LR_BYTES, LogRecord, Operation, WriteData};
use cenote_format::zil::{LogBlock, LogLayout, ZIL_CHAIN_BYTES, ZIL_MIN_BLKSZ, ZIL_ZC_SEQ};
use cenote_object::{DatasetError, LiveObjset, Result};
use cenote_pool::alloc::AllocClass;
use cenote_pool::write::WriteProps;
use cenote_pool::{Durable, FlushMark, Zbookmark};
use futures::future::try_join_all;

use crate::engine::Engine;
use crate::kstat::Zil;
use crate::txgs::Hold;
use crate::zil::content::Content;
use crate::zil::log::Log;
use crate::zil::records::{Note, WriteNote};
use crate::zil::turn::Turn;

/// `zil_maxblocksize`.
const MAX_BLOCK_BYTES: u64 = 128 << 10;
const MAX_ROOM_BYTES: u64 = MAX_BLOCK_BYTES - ZIL_CHAIN_BYTES as u64;
const WRITE_BYTES: u64 = (LR_BYTES + 4 * 8 + BLKPTR_BYTES) as u64;
/// `zil_max_waste_space`: with less room, a write is not split.
const WORTH_A_PIECE_BYTES: u64 = (MAX_ROOM_BYTES - WRITE_BYTES) / 16;
/// Bytes of blocks written concurrently.
const WINDOW_BYTES: usize = 4 << 20;

pub(crate) struct LogWriter<'a> {
    log: &'a Log,
    engine: &'a Engine,
    live: &'a LiveObjset,
    turn: &'a mut Turn,
    block: Blkptr,
    filled: Vec<u8>,
    window: Vec<(Blkptr, Bytes)>,
    /// Vdevs to flush.
    vdevs: BTreeSet<VdevId>,
    /// Flush mark and txg of the first write to be flushed.
    since: (FlushMark, Txg),
    burst_bytes: u64,
    left_bytes: u64,
}

impl<'a> LogWriter<'a> {
    /// Needs an existing chain.
    pub(crate) fn new(
        log: &'a Log,
        engine: &'a Engine,
        live: &'a LiveObjset,
        notes: &[(Txg, Note)],
        turn: &'a mut Turn,
    ) -> Result<LogWriter<'a>> {
        let block =
            log.0.chain.lock().foretold().ok_or_else(|| live.view().damaged(ObjectId(0), "has no log"))?;
        let burst_bytes = notes.iter().map(|(_, note)| note_bytes(note)).sum();
        let (window, vdevs) = Default::default();
        let (filled, left_bytes) = (Vec::new(), burst_bytes);
        let since = (engine.pool().log_blocks().mark(), block.physical_birth().txg());
        Ok(LogWriter {
            log,
            engine,
            live,
            turn,
            block,
            filled,
            window,
            vdevs,
            since,
            burst_bytes,
            left_bytes,
        })
    }

    /// Returns false if a note's data is gone: only a txg can make it durable.
    pub(crate) async fn write(mut self, notes: Vec<(Txg, Note)>) -> Result<bool> {
        let kstats = &self.engine.0.kstats;
        kstats.log(Zil::Records, notes.len() as u64);
        for (txg, note) in notes {
            if let Note::WriteNote(written) = &note {
                let (count, bytes) = match written.is_apart {
                    true => (Zil::Indirect, Zil::IndirectBytes),
                    false => (Zil::NeedCopy, Zil::NeedCopyBytes),
                };
                kstats.log(count, 1);
                kstats.log(bytes, written.range.end - written.range.start);
            }
            let was_there = match note {
                Note::Said(operation) => self.add(txg, *operation).await.map(|()| true)?,
                Note::WriteNote(written) => self.add_written(txg, &written).await?,
            };
            if !was_there {
                return Ok(false);
            }
        }
        if !self.filled.is_empty() {
            self.turn.note(self.burst_bytes);
            self.left_bytes = 0;
            self.close(0).await?;
        }
        if self.vdevs.is_empty() && self.window.len() == 1 {
            self.write_window(Durable::AtOnce).await?;
        } else {
            self.write_window(Durable::Flushed).await?;
            let vdevs: Vec<VdevId> = self.vdevs.iter().copied().collect();
            let (mark, first) = self.since;
            self.engine.pool().log_blocks().flush(&vdevs, mark, (first, self.engine.open_txg())).await?;
        }
        self.log.0.chain.lock().all_written();
        Ok(true)
    }

    /// Adds a pointer to the data's block, or data in as many pieces as needed. Returns false if gone.
    async fn add_written(&mut self, txg: Txg, written: &WriteNote) -> Result<bool> {
        let (object, mut offset) = (written.object, written.range.start);
        let mut data = match self.log.content(self.engine, self.live, written).await? {
            None => return Ok(false),
            Some(Content::Here(data)) => data,
            Some(Content::InBlock(bp)) => {
                self.vdevs.extend(bp.dvas().map(|dva| dva.vdev));
                let len = written.range.end - offset;
                self.add(txg, write_of(object, offset, len, bp, WriteData::Indirect)).await?;
                return Ok(true);
            }
        };
        while !data.is_empty() {
            let all = WRITE_BYTES + (data.len() as u64).next_multiple_of(8);
            if all > self.room() && self.room() < WRITE_BYTES + WORTH_A_PIECE_BYTES {
                self.close(all.min(MAX_ROOM_BYTES)).await?;
                continue;
            }
            let piece = data.split_to(data.len().min((self.room() - WRITE_BYTES) as usize));
            let len = piece.len() as u64;
            self.add(txg, write_of(object, offset, len, Blkptr::HOLE, WriteData::Copied(piece))).await?;
            offset += len;
        }
        Ok(true)
    }

    async fn add(&mut self, txg: Txg, operation: Operation) -> Result<()> {
        let mut record = LogRecord { txg, seq: 0, case_insensitive: false, operation };
        let len = record_bytes(&record.operation);
        if len > MAX_ROOM_BYTES {
            return Err(self.live.view().damaged(ObjectId(0), "has a record too long for its log"));
        }
        while len > self.room() {
            self.close(len).await?;
        }
        record.seq = self.log.0.chain.lock().next_record();
        self.filled.extend(record.encode(Endian::NATIVE));
        self.left_bytes = self.left_bytes.saturating_sub(len);
        Ok(())
    }

    fn room(&self) -> u64 {
        self.block.lsize().0 - (ZIL_CHAIN_BYTES + self.filled.len()) as u64
    }

    /// Closes the block with a pointer to the next, which has room for `room_bytes`.
    async fn close(&mut self, room_bytes: u64) -> Result<()> {
        let mut words = self.block.checksum();
        words[ZIL_ZC_SEQ] += 1;
        let hold = self.engine.hold().await?;
        let next = self.log.place(self.engine, &hold, self.next_bytes(room_bytes), words)?;
        self.log.0.chain.lock().foretell(next, hold.txg());
        drop(hold);
        // A commit of many blocks makes few, large writes anyway.
        if self.left_bytes == 0 && self.window.is_empty() {
            make_ready(self.engine, &next).await;
        }
        let eck = EmbeddedChecksum { endian: Endian::NATIVE, checksum: [0; 4] };
        let is_on_log_device = self.log.0.engine.has_log_device();
        let (used, size) = (self.filled.len() as u64, self.block.lsize().0);
        self.engine.0.kstats.log_block(is_on_log_device, used, size);
        let records = std::mem::take(&mut self.filled).into();
        let full = LogBlock { endian: Endian::NATIVE, next, eck, records };
        let bytes = full.encode(LogLayout::Head, self.block.lsize().0 as usize);
        let bytes = bytes.map_err(|source| self.live.view().format(ObjectId(0), source))?;
        self.window.push((self.block, bytes.into()));
        self.block = next;
        if self.window.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() >= WINDOW_BYTES {
            self.write_window(Durable::Flushed).await?;
        }
        Ok(())
    }

    fn next_bytes(&self, room_bytes: u64) -> u64 {
        let wanted = match self.left_bytes {
            0 => self.turn.bursts.iter().copied().max().unwrap_or(0),
            // Spread bytes evenly: a nearly empty last block wastes space.
            left => left.div_ceil(left.div_ceil(MAX_ROOM_BYTES - WRITE_BYTES)),
        };
        let bytes = wanted.max(room_bytes).saturating_add(ZIL_CHAIN_BYTES as u64).min(MAX_BLOCK_BYTES);
        bytes.next_multiple_of(ZIL_MIN_BLKSZ as u64)
    }

    async fn write_window(&mut self, durable: Durable) -> Result<()> {
        let pool = self.engine.pool();
        let policy = self.engine.policy_of(self.log.0.dataset);
        let key = policy.as_ref().and_then(|policy| policy.key.as_deref());
        let window = std::mem::take(&mut self.window);
        self.vdevs.extend(window.iter().flat_map(|(bp, _)| bp.dvas()).map(|dva| dva.vdev));
        let place = |bp: &Blkptr| self.log.place_of(bp);
        let write = async |(bp, bytes): (Blkptr, Bytes)| {
            pool.log_blocks().write(&bp, bytes, key, place(&bp), durable).await
        };
        try_join_all(window.into_iter().map(write)).await.map_err(DatasetError::from)?;
        Ok(())
    }
}

async fn make_ready(engine: &Engine, next: &Blkptr) {
    if !engine.pool().log_blocks().is_in_hole(next).await {
        return;
    }
    let (engine, next) = (engine.clone(), *next);
    let fill = {
        let engine = engine.clone();
        async move {
            if let Ok(hold) = engine.hold().await {
                engine.pool().log_blocks().fill_behind(engine.allocator(), &next, hold.txg()).await;
            }
        }
    };
    // A separate task survives cancellation; its failure does not matter.
    drop(engine.runtime().spawn(fill).await);
}

impl Log {
    pub(crate) fn place(&self, engine: &Engine, hold: &Hold, len: u64, words: [u64; 4]) -> Result<Blkptr> {
        let place = Zbookmark { dataset: self.0.dataset, ..Zbookmark::default() };
        let props = WriteProps {
            class: Some(AllocClass::Log),
            key: engine.policy_of(self.0.dataset).and_then(|policy| policy.key.clone()),
            ..WriteProps::new(place, ObjectType::INTENT_LOG)
        };
        Ok(engine.pool().log_blocks().allocate(engine.allocator(), len, words, &props, hold.txg())?)
    }

    fn place_of(&self, bp: &Blkptr) -> Zbookmark {
        Zbookmark {
            dataset: self.0.dataset,
            block: BlockId(bp.checksum()[ZIL_ZC_SEQ]),
            ..Zbookmark::default()
        }
    }
}

/// `bp` points to the data if it has its own block.
fn write_of(object: ObjectId, offset: u64, len: u64, bp: Blkptr, data: WriteData) -> Operation {
    let (offset_bytes, length_bytes) = (offset, len);
    let (already_synced, block_offset) = (false, 0);
    Operation::Write { already_synced, object, offset_bytes, length_bytes, block_offset, bp, data }
}

fn note_bytes(note: &Note) -> u64 {
    match note {
        Note::Said(operation) => record_bytes(operation),
        Note::WriteNote(written) if written.is_apart => WRITE_BYTES,
        Note::WriteNote(written) => {
            WRITE_BYTES + (written.range.end - written.range.start).next_multiple_of(8)
        }
    }
}

fn record_bytes(operation: &Operation) -> u64 {
    match operation {
        Operation::Write { data: WriteData::Copied(data), .. } => {
            WRITE_BYTES + (data.len() as u64).next_multiple_of(8)
        }
        Operation::Write { data: WriteData::Indirect, .. } => WRITE_BYTES,
        other => other.encoded_bytes() as u64,
    }
}

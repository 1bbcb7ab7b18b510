//! Writes one copy of a block: every column of every row, with parity, to every leaf of its slot.
//!
//! ```text
//!   block    | d0 d1 d2 | d3 d4 |            whole sectors, the end filled with zeros
//!   columns  | P | d0 d1 d2 | d3 d4 0 |      data columns are slices of the block: no copy
//!                                   ^ dRAID fills rows on disk as well: a rebuild reads whole rows
//! ```
//!
//! A column is written if at least one of its leaves has it; a row, if no more columns failed than it has
//! parity. Every leaf that failed, is absent or is out of use has missed the txg ([`Missed`]).
//!
//! Source: OpenZFS `vdev_raidz_io_start_write`, `vdev_draid_map_alloc_write`, `vdev_mirror.c`,
//! `vdev_dtl_dirty`.

use super::leaf::Leaf;
use super::map::{Column, MapError, Row};
use super::missed::Missed;
use super::queue::IoClass;
use super::unflushed::{FlushMark, Stake};
use super::{Layout, Slot, Top, VdevTree};
use bytes::{Bytes, BytesMut};
use cenote_codec::raidz;
use cenote_device::DeviceError;
use cenote_format::blkptr::Dva;
use cenote_format::label::VdevClass;
use cenote_format::units::{PhysicalBirth, Psize, TXG_INITIAL, Txg, VdevId};
use cenote_runtime::{Runtime, WorkKind};
use futures::future::join_all;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(crate) struct NotWritten {
    pub(crate) vdev: VdevId,
    pub(crate) why: Arc<str>,
}

/// When a write becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// With the next flush.
    Flushed,
    /// On completion: one step instead of two for a lone write.
    AtOnce,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    pub(crate) class: IoClass,
    pub(crate) durable: Durable,
    pub(crate) stake: Stake,
}

/// Why a column was not written.
struct NotTaken {
    why: Arc<str>,
    /// Another machine has one of its devices.
    is_fenced: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    Tree(Txg),
    /// Writes since a mark, in txgs first to last.
    Since(FlushMark, (Txg, Txg)),
}

impl VdevTree {
    pub(crate) async fn write(
        &self,
        runtime: &Runtime,
        dva: &Dva,
        data: &Bytes,
        txg: Txg,
        how: How,
    ) -> Result<(), NotWritten> {
        let failed = |why: Arc<str>| NotWritten { vdev: dva.vdev, why };
        let top = self.layout_of(dva.vdev).ok_or_else(|| failed("the pool has no such vdev".into()))?;
        top.check_writable().map_err(|why| failed(why.into()))?;
        let data = whole_sectors(data, top.config.ashift);
        let birth = PhysicalBirth::in_txg(txg);
        let _inside = self.enter(dva, data.len(), birth).await;
        let map =
            self.map(dva, data.len(), birth).map_err(|error: MapError| failed(error.to_string().into()))?;
        let mut writes = Vec::new();
        for row in &map.rows {
            if row.parity > 0 {
                let bytes = row.data().iter().map(|column| column.len as u64).sum();
                runtime.work(WorkKind::ParityGenerate, bytes).await;
            }
            let contents = top.contents(row, &data).map_err(|error| failed(error.to_string().into()))?;
            let columns = row.columns.iter().zip(contents).filter(|(_, bytes)| !bytes.is_empty());
            let columns: Vec<(Column, Bytes)> = columns.map(|(column, bytes)| (*column, bytes)).collect();
            let write = |(column, bytes)| top.write_column(column, bytes, (txg, &self.missed), how);
            let copies: Vec<_> = columns.iter().filter_map(copied).collect();
            // A power cut decides which of the two is read.
            writes.extend([(row.parity, join_all(columns.into_iter().map(write)))]);
            writes
                .extend((!copies.is_empty()).then(|| (row.parity, join_all(copies.into_iter().map(write)))));
        }
        let (bearable, writes): (Vec<usize>, Vec<_>) = writes.into_iter().unzip();
        for (bearable, outcomes) in bearable.into_iter().zip(join_all(writes).await) {
            let mut errors: Vec<NotTaken> = outcomes.into_iter().filter_map(Result::err).collect();
            errors.sort_by_key(|error| !error.is_fenced);
            match errors.first() {
                Some(error) if error.is_fenced || errors.len() > bearable => {
                    return Err(failed(error.why.clone()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Vdevs with more devices out of use than they can lose.
    pub(crate) fn unwritable(&self) -> Vec<VdevId> {
        let is_lost = |slot: &&Slot| slot.leaves.iter().all(|leaf| leaf.is_out_of_use());
        let takes_writes = |top: &Top| {
            top.check_writable().is_ok() && top.slots().iter().filter(is_lost).count() <= top.config.parity
        };
        (0..).map(VdevId).zip(&self.tops).filter(|(_, top)| !takes_writes(top)).map(|(id, _)| id).collect()
    }

    pub(crate) async fn has_hole(&self, dva: &Dva, psize: Psize, birth: PhysicalBirth) -> bool {
        let Ok(map) = self.map(dva, psize.0 as usize, birth) else { return false };
        for row in &map.rows {
            let Some(top) = self.layout_of(row.top) else { continue };
            for column in &row.columns {
                for leaf in top.leaves(column.slot, column.offset_bytes) {
                    if leaf.has_hole(column.offset_bytes, column.len as u64).await {
                        return true;
                    }
                }
            }
        }
        false
    }

    pub(crate) async fn idle(&self) {
        join_all(self.leaves.iter().map(|leaf| leaf.idle())).await;
    }

    /// Makes earlier writes durable. A leaf that fails, now or at another caller's flush, has missed the lost
    /// writes. It is an error if a vdev may then lack part of `asked`, except a log vdev in a flush of all:
    /// the txg contains the log's records.
    pub(crate) async fn flush(&self, only: Option<&[VdevId]>, asked: Asked) -> Result<(), NotWritten> {
        let all = (0..).map(VdevId).zip(&self.tops);
        let tops: Vec<_> = all.filter(|(id, _)| only.is_none_or(|only| only.contains(id))).collect();
        let leaves = tops.iter().flat_map(|(_, top)| top.slots()).flat_map(|slot| &slot.leaves);
        join_all(leaves.map(|leaf| leaf.flush(&self.missed))).await;
        for (_, top) in tops.iter().filter(|(_, top)| top.is_being_copied()) {
            // Copied sectors are older than the txg, of unknown births.
            let leaves = top.slots().iter().flat_map(|slot| &slot.leaves);
            let failed = leaves.filter(|leaf| leaf.is_out_of_use() || asked.why_lost(leaf).is_some());
            failed.for_each(|leaf| self.missed.note_all(leaf.guid, (TXG_INITIAL, asked.txgs().1)));
        }
        for (vdev, top) in tops.iter().filter(|(_, top)| only.is_some() || top.config.class != VdevClass::Log)
        {
            let mut of_top = top.slots().iter().flat_map(|slot| &slot.leaves);
            let Some(why) = of_top.find_map(|leaf| asked.why_lost(leaf)) else { continue };
            let has_all = |leaf: &Arc<Leaf>| {
                let is_lost = leaf.is_out_of_use() || asked.why_lost(leaf).is_some();
                !is_lost && !self.missed.has_not_taken(leaf.guid, asked.txgs())
            };
            let lost = top.slots().iter().filter(|slot| !slot.leaves.iter().any(has_all)).count();
            if lost > top.config.parity {
                return Err(NotWritten { vdev: *vdev, why });
            }
        }
        Ok(())
    }
}

impl Asked {
    fn txgs(&self) -> (Txg, Txg) {
        match *self {
            Asked::Tree(txg) => (txg, txg),
            Asked::Since(_, txgs) => txgs,
        }
    }

    /// Why a leaf may lack data although all writes succeeded.
    fn why_lost(&self, leaf: &Leaf) -> Option<Arc<str>> {
        // It was not flushed.
        if leaf.is_hung() {
            return Some("a device does not answer".into());
        }
        let lost = match *self {
            Asked::Tree(txg) => leaf.lost_of(txg),
            Asked::Since(mark, _) => leaf.lost_since(mark),
        };
        lost.map(|error| error.to_string().into())
    }
}

impl Top {
    fn check_writable(&self) -> Result<(), &'static str> {
        match &self.layout {
            Layout::Copies(_) | Layout::Raidz(..) | Layout::Draid(..) => Ok(()),
            Layout::Indirect(_) => Err("it was removed"),
            Layout::Absent => Err("it is missing or a hole"),
        }
    }

    /// Whether an expansion has unrecorded copies.
    fn is_being_copied(&self) -> bool {
        let Layout::Raidz(raidz, _) = &self.layout else { return false };
        raidz.reflow.as_ref().map(|reflow| reflow.at()).is_some_and(|at| at.next_bytes > at.synced_bytes)
    }

    fn contents(&self, row: &Row, data: &Bytes) -> Result<Vec<Bytes>, raidz::RaidzError> {
        let of = |column: &Column| data.slice(column.data_at..column.data_at + column.len);
        if row.parity == 0 {
            return Ok(row.columns.iter().map(of).collect());
        }
        let row_bytes = row.columns[0].len;
        let mut parity = BytesMut::zeroed(row.parity * row_bytes);
        let mut columns: Vec<Bytes> = row.data().iter().map(of).collect();
        let mut targets: Vec<&mut [u8]> = parity.chunks_mut(row_bytes).collect();
        let sources: Vec<&[u8]> = columns.iter().map(|column| &column[..]).collect();
        raidz::generate(&mut targets, &sources)?;
        if matches!(self.layout, Layout::Draid(..)) {
            columns.iter_mut().for_each(|column| *column = extended(column, row_bytes));
        }
        let parity = parity.freeze();
        let parity = (0..row.parity).map(|index| parity.slice(index * row_bytes..(index + 1) * row_bytes));
        Ok(parity.chain(columns).collect())
    }

    /// Writes to every leaf that should hold the column. Fails only if none has it, or one belongs to another
    /// machine now, which would not see the others' copies.
    async fn write_column(
        &self,
        column: Column,
        bytes: Bytes,
        (txg, missed): (Txg, &Arc<Missed>),
        How { class, durable, stake }: How,
    ) -> Result<(), NotTaken> {
        let holders = self.holders(column.slot, column.offset_bytes);
        let (away, writable): (Vec<&Arc<Leaf>>, Vec<_>) =
            holders.leaves.iter().partition(|leaf| leaf.is_out_of_use());
        let absent = holders.absent.iter().copied().chain(away.iter().map(|leaf| leaf.guid));
        absent.for_each(|leaf| missed.note(leaf, txg));
        let writes = writable.iter().map(async |leaf| match durable {
            Durable::Flushed => {
                leaf.write_padded(class, stake, column.offset_bytes, bytes.clone(), column.padding).await
            }
            Durable::AtOnce => leaf.write_through(stake, column.offset_bytes, bytes.clone(), missed).await,
        });
        let outcomes = join_all(writes).await;
        let mut last = NotTaken { why: "none of its devices is present".into(), is_fenced: false };
        let mut written = false;
        for (leaf, outcome) in writable.iter().zip(outcomes) {
            match outcome {
                Ok(()) => written = true,
                Err(error) => {
                    missed.note(leaf.guid, txg);
                    let is_fenced = last.is_fenced || matches!(error, DeviceError::Fenced { .. });
                    last = NotTaken { why: error.to_string().into(), is_fenced };
                }
            }
        }
        if written && !last.is_fenced { Ok(()) } else { Err(last) }
    }
}

fn copied((column, bytes): &(Column, Bytes)) -> Option<(Column, Bytes)> {
    let (slot, offset_bytes) = column.also_at?;
    Some((Column { slot, offset_bytes, also_at: None, ..*column }, bytes.clone()))
}

/// The data padded with zeros.
fn whole_sectors(data: &Bytes, ashift: u32) -> Bytes {
    extended(data, data.len().next_multiple_of(1 << ashift))
}

fn extended(data: &Bytes, len: usize) -> Bytes {
    if data.len() == len {
        return data.clone();
    }
    let mut longer = BytesMut::with_capacity(len);
    longer.extend_from_slice(data);
    longer.resize(len, 0);
    longer.freeze()
}

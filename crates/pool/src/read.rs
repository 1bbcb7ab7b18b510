//! The read pipeline: from a block pointer to bytes.
//!
//! ```text
//!   embedded?   the payload is in the pointer
//!   hole?       zeros
//!   gang?       read the header, then each piece (`gang`)
//!   kept?       it is not on disk yet (`write::later`)
//!   cached?     a cache device may have it (`second`)
//!   each copy:  map its address, read the data columns, verify;
//!               recover unreadable columns from other leaves and parity;
//!               or else try every other copy and combination of columns (`recover`)
//!   decrypt     if the crypt bit is set
//!   decompress
//! ```
//!
//! Invariant: no byte is interpreted before its checksum has been verified. If another machine or the kernel
//! writes to the pool, a block may be reused after its pointer is read. So if the pool was left active, all
//! copies are read once more before the block is called damaged.
//!
//! Damage found on the way (`mismatch`) is noted (`read_errors`) and repaired later.

use crate::buffers;
use crate::check::{Check, decompression_work};
use crate::config::VdevClass;
use crate::context::{Form, ReadContext};
use crate::crypt;
use crate::error::{PoolError, Result};
use crate::mismatch::Mismatch;
use crate::pool::Pool;
use crate::recover::{CopyError, Recovered, Version, recover, recover_simply};
use crate::second::{Offer, SecondLevel, Secondary};
use crate::suspend::state::Waits;
use crate::vdev::map::{BlockMap, Column, Row};
use crate::vdev::patience::SLOW;
use crate::vdev::queue::IoClass;
use crate::vdev::{VdevTree, leaf::Leaf};
use crate::zbookmark::Zbookmark;
use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_codec::checksum::ChecksumError;
use cenote_codec::compress::Compression;
use cenote_device::DeviceError;
use cenote_format::blkptr::{Blkptr, Dva};
use cenote_format::units::{PhysicalBirth, SPA_MAXBLOCKSIZE, Txg};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// How long those who look wait for a block whose devices do not answer.
const BRIEFLY: Duration = Duration::from_secs(9);

impl Pool {
    /// Reads a block: verified, decrypted, decompressed; `lsize` bytes, unless the context asks for another
    /// [`Form`]. A hole reads as zeros.
    #[boxed]
    pub async fn read(&self, bp: &Blkptr, ctx: &ReadContext) -> Result<Bytes> {
        let stored = self.as_stored().read(bp, ctx).await?;
        self.decode(bp, stored, ctx).await
    }

    pub(crate) async fn read_second(
        &self,
        second: &dyn SecondLevel,
        bp: &Blkptr,
        check: &Check<'_>,
    ) -> Option<Bytes> {
        let stored = second.read(bp)?.await?;
        self.runtime().work(check.work(), stored.len() as u64).await;
        if check.verify(&stored).is_err() {
            second.reject(bp);
            return None;
        }
        Some(stored)
    }

    pub(crate) fn offer(&self, second: &dyn SecondLevel, bp: &Blkptr, stored: &Bytes, secondary: Secondary) {
        if secondary == Secondary::No {
            return;
        }
        let class = bp.dvas().next().and_then(|dva| self.tree().vdevs().class_of(dva.vdev));
        let is_special = class == Some(VdevClass::Special);
        second.offer(bp, stored, Offer { is_ahead: secondary == Secondary::Ahead, is_special });
    }

    /// From stored bytes to the owner's bytes.
    pub(crate) async fn decode(&self, bp: &Blkptr, stored: Bytes, ctx: &ReadContext) -> Result<Bytes> {
        let place = ctx.place;
        let lsize = bp.lsize().0;
        if lsize > SPA_MAXBLOCKSIZE {
            return Err(bad_pointer(place, format!("a block can't have {lsize} bytes")));
        }
        if bp.is_hole() {
            return Ok(vec![0; lsize as usize].into());
        }
        if bp.is_embedded() && bp.embedded_type() != 0 {
            return Err(bad_pointer(place, format!("unknown embedded type {}", bp.embedded_type())));
        }
        if ctx.form == Form::Stored {
            return Ok(stored);
        }
        let crypt = !bp.is_embedded() && bp.uses_crypt();
        let clear = if crypt { crypt::decrypt(bp, stored, ctx)? } else { stored };
        if ctx.form == Form::Compressed {
            return Ok(clear);
        }
        let data = self.decompress(bp, clear, lsize as usize, place).await?;
        if crypt {
            crypt::check_clear(bp, &data, ctx)?;
        }
        Ok(data)
    }

    async fn decompress(&self, bp: &Blkptr, clear: Bytes, lsize: usize, place: Zbookmark) -> Result<Bytes> {
        let failed = |why: String| PoolError::Decompress { place, why: why.into() };
        let compression = Compression::try_from(bp.compression_id()).map_err(|e| failed(e.to_string()))?;
        if compression == Compression::Off {
            // A block may be stored longer than it is: padded to the vdev's sector size.
            let short = || failed(format!("{} bytes stored for {lsize}", clear.len()));
            return clear.get(..lsize).map(|data| clear.slice_ref(data)).ok_or_else(short);
        }
        self.runtime().work(decompression_work(compression), lsize as u64).await;
        buffers::filled(lsize, |block| compression.decompress_into(&clear, block))
            .map_err(|e| failed(e.to_string()))
    }

    pub(crate) async fn read_copies(
        &self,
        bp: &Blkptr,
        psize: usize,
        check: &Check<'_>,
        ctx: &ReadContext,
    ) -> Result<Bytes> {
        self.read_rest(bp, psize, check, ctx, Vec::new()).await
    }

    /// Reuses the columns already read of the first copy. Some views wait for failed devices here, others not
    /// even for silent ones.
    pub(crate) async fn read_rest(
        &self,
        bp: &Blkptr,
        psize: usize,
        check: &Check<'_>,
        ctx: &ReadContext,
        had: Vec<Option<Version>>,
    ) -> Result<Bytes> {
        self.in_time(bp, ctx.place, self.read_patiently(bp, psize, check, ctx, had)).await
    }

    /// A read, which some views wait for briefly only.
    ///
    /// # Errors
    /// Its own; [`PoolError::Unreadable`]: a device has not answered in time.
    pub async fn in_time<T>(
        &self,
        bp: &Blkptr,
        place: Zbookmark,
        read: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        if self.waits() != Waits::Briefly {
            return read.await;
        }
        let patience = if self.devices().unanswering().is_empty() { BRIEFLY } else { BRIEFLY - SLOW };
        let silent = |_| {
            let (leaf, since) = self.devices().unanswering().into_iter().max_by_key(|(_, since)| *since)?;
            let path = self.tree().device(leaf).map(|device| device.path.clone());
            Some(format!("{} has not answered for {} s", path.unwrap_or_default(), since.as_secs()))
        };
        self.runtime().timeout(patience, read).await.unwrap_or_else(|late| {
            let why = silent(late).unwrap_or_else(|| "its devices do not answer".into()).into();
            Err(PoolError::Unreadable { place, at: addresses(bp), why })
        })
    }

    async fn read_patiently(
        &self,
        bp: &Blkptr,
        psize: usize,
        check: &Check<'_>,
        ctx: &ReadContext,
        had: Vec<Option<Version>>,
    ) -> Result<Bytes> {
        let (mut tries, mut may_be_back) = (self.begin_tries(), false);
        let mut read = self.try_copies(bp, psize, check, ctx, had).await;
        while let Err(error @ PoolError::Unreadable { .. }) = &read {
            may_be_back = self.may_be_back(bp).await;
            if !may_be_back || ctx.in_log.is_some() || !self.does_read_wait() {
                break;
            }
            self.wait_out(&mut tries, Txg(self.uberblock().txg.0 + 1), error.clone()).await?;
            may_be_back = false;
            read = self.try_copies(bp, psize, check, ctx, Vec::new()).await;
        }
        match read {
            Ok(data) => {
                self.end_tries(tries);
                Ok(data)
            }
            Err(error @ PoolError::BadPointer { .. }) => Err(error),
            Err(error) => {
                let meaning = self.meaning(check, ctx);
                if !may_be_back {
                    self.note_lost(bp, ctx.place, meaning);
                }
                match (error, meaning) {
                    (PoolError::Checksum { place, at, .. }, Mismatch::MayBeReused) => {
                        Err(PoolError::Reused { place, at })
                    }
                    (error, _) => Err(error),
                }
            }
        }
    }

    async fn try_copies(
        &self,
        bp: &Blkptr,
        psize: usize,
        check: &Check<'_>,
        ctx: &ReadContext,
        mut had: Vec<Option<Version>>,
    ) -> Result<Bytes> {
        let place = ctx.place;
        let attempts = if self.may_be_live() { 2 } else { 1 };
        let mut error = bad_pointer(place, "it has no address".to_owned());
        for _ in 0..attempts {
            let mut worst = None;
            for dva in bp.dvas() {
                let had = std::mem::take(&mut had);
                match self.read_copy(&dva, psize, bp.physical_birth(), check, ctx, had).await {
                    Ok(Copy { data, is_bad }) => {
                        if is_bad || worst.is_some() {
                            self.note_bad(bp, place, self.meaning_of_part(check, ctx));
                        }
                        return Ok(data);
                    }
                    Err(copy_error) => worst = CopyError::worse(worst, copy_error),
                }
            }
            let Some(copy_error) = worst else { break };
            let is_mismatch = matches!(copy_error, CopyError::Mismatch(_));
            error = copy_failed(bp, place, copy_error);
            if !is_mismatch {
                break;
            }
        }
        Err(error)
    }

    /// The data columns, or else any recoverable combination.
    async fn read_copy(
        &self,
        dva: &Dva,
        psize: usize,
        birth: PhysicalBirth,
        check: &Check<'_>,
        ctx: &ReadContext,
        had: Vec<Option<Version>>,
    ) -> Result<Copy, CopyError> {
        let vdevs = self.tree().vdevs();
        let _inside = vdevs.enter(dva, psize, birth).await;
        let map = vdevs.map(dva, psize, birth)?;
        self.runtime().work(check.work(), psize as u64).await;
        let had = match had.is_empty() {
            true => read_data(&vdevs, &map, self.reads()).await,
            false => Err(had),
        };
        let simply = match had {
            Ok(data) => {
                let data = data.slice(..psize);
                if check.verify(&data).is_ok() {
                    return Ok(Copy { data, is_bad: false });
                }
                None
            }
            Err(had) => recover_simply(self, &vdevs, &map, psize, check, had).await,
        };
        let Recovered { data, faults } = match simply {
            Some(recovered) => recovered,
            None => recover(self, &vdevs, &map, psize, check, ctx).await?,
        };
        // Data that a leaf is known to lack comes with its resilver.
        let is_bad = faults.iter().any(|fault| !vdevs.lacks(&fault.leaf, map.birth));
        Ok(Copy { data, is_bad })
    }
}

struct Copy {
    data: Bytes,
    is_bad: bool,
}

/// Each column from its best leaf. On failure returns the non-empty columns read.
async fn read_data(vdevs: &VdevTree, map: &BlockMap, class: IoClass) -> Result<Bytes, Vec<Option<Version>>> {
    if let [row] = &map.rows[..]
        && let [column] = row.data()
    {
        let leaf = preferred(vdevs, map, row, column, class).ok_or_else(Vec::new)?;
        let read = read_column(vdevs, &leaf, row, column, class).await;
        return read.map_err(|_| vec![Some(Version { leaf, bytes: None })]);
    }
    let columns = map.rows.iter().flat_map(|row| row.data().iter().map(move |column| (row, column)));
    let columns: Vec<_> = columns.filter(|(_, column)| column.len > 0).collect();
    let reads: Option<Vec<_>> = columns
        .iter()
        .map(|(row, column)| {
            let leaf = preferred(vdevs, map, row, column, class)?;
            Some(async move { (read_column(vdevs, &leaf, row, column, class).await, leaf) })
        })
        .collect();
    let read = futures::future::join_all(reads.ok_or_else(Vec::new)?).await;
    if read.iter().any(|(bytes, _)| bytes.is_err()) {
        return Err(read
            .into_iter()
            .map(|(bytes, leaf)| Some(Version { leaf, bytes: bytes.ok() }))
            .collect());
    }
    let mut block = vec![0; map.data_bytes];
    for ((_, column), bytes) in columns.iter().zip(read.iter().filter_map(|(bytes, _)| bytes.as_ref().ok())) {
        block[column.data_at..column.data_at + column.len].copy_from_slice(bytes);
    }
    Ok(block.into())
}

/// Does not wait for a slow device if others may have the column.
pub(crate) async fn read_column(
    vdevs: &VdevTree,
    leaf: &Leaf,
    row: &Row,
    column: &Column,
    class: IoClass,
) -> Result<Bytes, DeviceError> {
    let slot = vdevs.layout_of(row.top).and_then(|top| top.slots().get(column.slot));
    match row.parity > 0 || slot.is_some_and(|slot| slot.leaves.len() > 1) {
        true => leaf.read_hastily(class, column.offset_bytes, column.len).await,
        false => leaf.read(class, column.offset_bytes, column.len).await,
    }
}

/// The leaf to read a column from: one with the block, if possible, and the least busy. Equal mirrors share
/// the work by offset. `None`: other columns are to be read instead.
pub(crate) fn preferred(
    vdevs: &VdevTree,
    map: &BlockMap,
    row: &Row,
    column: &Column,
    class: IoClass,
) -> Option<Arc<Leaf>> {
    /// Neighbouring blocks go to one leaf, for its read-ahead.
    const SHARE_SHIFT: u32 = 22;
    let slot = vdevs.layout_of(row.top)?.slots().get(column.slot)?;
    let have =
        || slot.leaves.iter().filter(|leaf| !vdevs.lacks(leaf, map.birth) && !is_avoided(leaf, row, class));
    match have().count() {
        0 if slot.leaves.iter().any(|leaf| is_avoided(leaf, row, class)) => None,
        // The column is rebuilt from parity.
        0 if row.parity > 0 && vdevs.is_missed(slot, map.birth) => None,
        0 => vdevs.leaves_of(row, column, map.birth).into_iter().next(),
        1 => have().next().cloned(),
        count => {
            let turn = (column.offset_bytes >> SHARE_SHIFT) as usize % count;
            // The first of equals is chosen.
            let first = have().cycle().skip(turn).take(count);
            first.min_by_key(|leaf| (leaf.is_slow(), leaf.read_cost(column.offset_bytes))).cloned()
        }
    }
}

/// Whether parity is read in a leaf's place. Scrubs and resilvers read every leaf.
pub(crate) fn is_avoided(leaf: &Leaf, row: &Row, class: IoClass) -> bool {
    row.parity > 0 && matches!(class, IoClass::SyncRead | IoClass::AsyncRead) && leaf.sits_out()
}

pub(crate) fn checked_psize(bp: &Blkptr, place: Zbookmark) -> Result<usize> {
    let psize = bp.psize().0;
    if psize > SPA_MAXBLOCKSIZE {
        return Err(bad_pointer(place, format!("a block can't have {psize} bytes")));
    }
    Ok(psize as usize)
}

pub(crate) fn bad_pointer(place: Zbookmark, why: String) -> PoolError {
    PoolError::BadPointer { place, why: why.into() }
}

pub(crate) fn damaged(bp: &Blkptr, place: Zbookmark, source: ChecksumError) -> PoolError {
    PoolError::Checksum { place, at: addresses(bp), source }
}

fn copy_failed(bp: &Blkptr, place: Zbookmark, error: CopyError) -> PoolError {
    match error {
        CopyError::Mismatch(source) => damaged(bp, place, source),
        CopyError::Unreadable(why) => PoolError::Unreadable { place, at: addresses(bp), why: why.into() },
        CopyError::BadAddress(why) => bad_pointer(place, why),
    }
}

fn addresses(bp: &Blkptr) -> Arc<str> {
    let mut text = String::new();
    for dva in bp.dvas() {
        let space = if text.is_empty() { "" } else { " " };
        // Writing to a string can't fail.
        let _ = write!(text, "{space}{}:{:x}:{:x}", dva.vdev, dva.offset_bytes, dva.asize.0);
    }
    text.into()
}

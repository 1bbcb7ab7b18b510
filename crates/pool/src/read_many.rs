//! Reads many blocks: sorted by offset, read in large extents, decoded in parallel.
//!
//! ```text
//!   requests --sort by first address--> batches, a task each --> extents --> blocks --decode--> results
//! ```
//!
//! [`Pool::read`] handles the rest, some at a time: gangs, failed extents, wrong checksums, missing devices.
//! Blocks on second-level devices are read there concurrently. Results come in the order of the requests.
//!
//! Memory: the results, plus one batch of stored blocks per core, with the gaps between them.

use crate::batches::cut;
use crate::check::Check;
use crate::context::ReadContext;
use crate::error::Result;
use crate::extents::{Extents, Fetched, Ticket};
use crate::pool::Pool;
use crate::read::{checked_psize, preferred};
use crate::recover::Version;
use crate::vdev::VdevTree;
use crate::vdev::leaf::Leaf;
use crate::vdev::map::BlockMap;
use crate::vdev::queue::IoClass;
use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_codec::compress::Compression;
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Large enough to merge reads, small enough to spread over cores.
const BATCH_BYTES: std::ops::RangeInclusive<u64> = 256 << 10..=4 << 20;
const BATCH_BLOCKS: usize = 2_048;
/// Blocks read at a time that no extent has, such as those to be rebuilt from parity.
const ALONE: usize = 16;

type Request = (usize, Blkptr, ReadContext);

impl Pool {
    /// Reads many blocks, neighbours on disk together; returns results in the order of the requests.
    #[boxed]
    pub async fn read_many(&self, requests: Vec<(Blkptr, ReadContext)>) -> Vec<Result<Bytes>> {
        let mut results: Vec<Option<Result<Bytes>>> = (0..requests.len()).map(|_| None).collect();
        let batches = batches(requests, self.runtime().parallelism() as u64);
        let step = |batch: Vec<Request>| {
            let pool = self.clone();
            async move { pool.read_batch(batch).await }
        };
        // A single batch runs here; several are distributed.
        if batches.len() <= 1 {
            for batch in batches {
                place(&mut results, step(batch).await);
            }
        } else {
            let mut done =
                std::pin::pin!(self.runtime().map_bounded(self.runtime().parallelism(), batches, step));
            while let Some(batch) = done.next().await {
                place(&mut results, batch);
            }
        }
        results.into_iter().flatten().collect()
    }

    async fn read_batch(&self, batch: Vec<Request>) -> Vec<(usize, Result<Bytes>)> {
        let (indices, requests): (Vec<usize>, Vec<_>) =
            batch.into_iter().map(|(index, bp, ctx)| (index, (bp, ctx))).unzip();
        let mut blocks = Vec::with_capacity(requests.len());
        self.read_each(requests, &mut |block| blocks.push(block)).await;
        indices.into_iter().zip(blocks).collect()
    }

    /// Reads many blocks, neighbours together, and decodes them one by one. `each` gets them in order, and
    /// the next one reuses the memory that it drops, so few decoded bytes exist, in the processor's cache.
    ///
    /// Memory: the stored blocks with the gaps between them; the caller bounds the number of requests.
    #[boxed]
    pub async fn read_each(
        &self,
        requests: Vec<(Blkptr, ReadContext)>,
        each: &mut (dyn FnMut(Result<Bytes>) + Send),
    ) {
        let (vdevs, mut extents, second) = (self.tree().vdevs(), Extents::default(), self.second_level());
        let second = second.as_deref();
        let (mut wanted, mut reads) = (Vec::with_capacity(requests.len()), Vec::new());
        let mut alone = Vec::new();
        let mut inside = Vec::new();
        for (index, (bp, ctx)) in requests.iter().enumerate() {
            if self.kept(bp).is_some() {
                wanted.push(None);
                continue;
            }
            let read = second.and_then(|second| second.read(bp));
            if let Some(dva) = bp.dvas().next().filter(|_| read.is_none() && is_sought(bp)) {
                inside.extend(vdevs.enter(&dva, bp.psize().0 as usize, bp.physical_birth()).await);
            }
            let sought =
                if read.is_some() { None } else { seek(&vdevs, &mut extents, bp, ctx, self.reads()) };
            alone.extend((read.is_none() && sought.is_none()).then_some(index));
            wanted.push(sought);
            reads.extend(read.map(|read| async move { Some((index, read.await?)) }));
        }
        let (fetched, read) = futures::join!(extents.fetch(self.reads()), futures::future::join_all(reads));
        drop(inside);
        let is_alone: BTreeSet<usize> = alone.iter().copied().collect();
        let alone = alone.into_iter().map(|index| self.read(&requests[index].0, &requests[index].1));
        let mut alone = futures::stream::iter(alone).buffered(ALONE);
        let mut from_second: BTreeMap<usize, Bytes> = read.into_iter().flatten().collect();
        for (index, ((bp, ctx), sought)) in requests.iter().zip(wanted).enumerate() {
            if is_alone.contains(&index)
                && let Some(read) = alone.next().await
            {
                each(read);
                continue;
            }
            // An uncompressed block is returned as stored, so it must not keep a whole extent alive.
            let stays = Compression::try_from(bp.compression_id()).is_ok_and(|c| c == Compression::Off);
            let take = if stays { Fetched::bytes } else { Fetched::shared };
            let was_sought = sought.is_some();
            let (stored, had) = match sought {
                Some(sought) => match sought.put_together(&fetched, take) {
                    Some(stored) => (Some(stored), Vec::new()),
                    None => (None, sought.had(&fetched)),
                },
                None => (from_second.remove(&index), Vec::new()),
            };
            let is_right = stored.as_ref().is_some_and(|stored| self.is_right(bp, stored));
            match second {
                Some(second) if is_right && was_sought => {
                    stored.iter().for_each(|stored| self.offer(second, bp, stored, ctx.secondary));
                }
                Some(second) if !is_right && !was_sought && stored.is_some() => second.reject(bp),
                _ => {}
            }
            each(match stored.filter(|_| is_right) {
                Some(stored) => {
                    self.charge(bp, stored.len()).await;
                    self.decode(bp, stored, ctx).await
                }
                None => self.read_alone(bp, ctx, had).await,
            });
        }
    }

    /// Reuses the data columns that it `had`.
    async fn read_alone(&self, bp: &Blkptr, ctx: &ReadContext, had: Vec<Option<Version>>) -> Result<Bytes> {
        match Check::of(bp, self.salt()) {
            Ok(check) if had.iter().any(Option::is_some) => {
                let psize = checked_psize(bp, ctx.place)?;
                let stored = self.read_rest(bp, psize, &check, ctx, had).await?;
                self.decode(bp, stored, ctx).await
            }
            _ => self.read(bp, ctx).await,
        }
    }

    fn is_right(&self, bp: &Blkptr, stored: &[u8]) -> bool {
        Check::of(bp, self.salt()).is_ok_and(|check| check.verify(stored).is_ok())
    }

    async fn charge(&self, bp: &Blkptr, bytes: usize) {
        if let Ok(check) = Check::of(bp, self.salt()) {
            self.runtime().work(check.work(), bytes as u64).await;
        }
    }
}

fn place(results: &mut [Option<Result<Bytes>>], batch: Vec<(usize, Result<Bytes>)>) {
    for (index, result) in batch {
        results[index] = Some(result);
    }
}

fn batches(requests: Vec<(Blkptr, ReadContext)>, cores: u64) -> Vec<Vec<Request>> {
    let mut requests: Vec<Request> =
        requests.into_iter().enumerate().map(|(index, (bp, ctx))| (index, bp, ctx)).collect();
    requests.sort_by_cached_key(|(_, bp, _)| bp.dvas().next().map(|dva| (dva.vdev, dva.offset_bytes)));
    let total: u64 = requests.iter().map(|(_, bp, _)| bp.psize().0).sum();
    let share = (total / cores.max(1)).clamp(*BATCH_BYTES.start(), *BATCH_BYTES.end());
    cut(requests, BATCH_BLOCKS, share, |(_, bp, _)| bp.psize().0)
}

struct Sought {
    map: BlockMap,
    psize: usize,
    /// Leaf, offset in the block and ticket of each data column.
    columns: Vec<(Arc<Leaf>, usize, Ticket)>,
}

fn is_sought(bp: &Blkptr) -> bool {
    bp.kind() == BlkptrKind::Normal && !bp.is_gang()
}

/// `None` if the block must be read alone.
fn seek(
    vdevs: &VdevTree,
    extents: &mut Extents,
    bp: &Blkptr,
    ctx: &ReadContext,
    class: IoClass,
) -> Option<Sought> {
    if !is_sought(bp) {
        return None;
    }
    let psize = checked_psize(bp, ctx.place).ok()?;
    let map = vdevs.map(&bp.dvas().next()?, psize, bp.physical_birth()).ok()?;
    let columns = map.rows.iter().flat_map(|row| row.data().iter().map(move |column| (row, column)));
    let chosen: Option<Vec<_>> = columns
        .filter(|(_, column)| column.len > 0)
        .map(|(row, column)| Some((preferred(vdevs, &map, row, column, class)?, column)))
        .collect();
    // All leaves are present; request only now, so that no read is in vain.
    let want = |(leaf, column): (Arc<Leaf>, &crate::vdev::map::Column)| {
        let ticket = extents.want(&leaf, column.offset_bytes, column.len);
        (leaf, column.data_at, ticket)
    };
    let columns = chosen?.into_iter().map(want).collect();
    Some(Sought { map, psize, columns })
}

impl Sought {
    /// `take` extracts a block in one piece.
    fn put_together(&self, fetched: &Fetched, take: fn(&Fetched, Ticket) -> Option<Bytes>) -> Option<Bytes> {
        if let [(_, 0, ticket)] = self.columns[..] {
            return take(fetched, ticket).map(|bytes| bytes.slice(..self.psize));
        }
        let mut block = vec![0; self.map.data_bytes];
        for &(_, data_at, ticket) in &self.columns {
            let bytes = fetched.slice(ticket)?;
            block[data_at..data_at + bytes.len()].copy_from_slice(bytes);
        }
        Some(Bytes::from(block).slice(..self.psize))
    }

    /// The columns read, though another failed.
    fn had(&self, fetched: &Fetched) -> Vec<Option<Version>> {
        let version = |(leaf, _, ticket): &(Arc<Leaf>, usize, Ticket)| {
            let bytes = Some(fetched.bytes(*ticket)?);
            Some(Version { leaf: leaf.clone(), bytes })
        };
        self.columns.iter().map(version).collect()
    }
}

//! Workload: the sequence of a worker's operations.
//!
//! An iterator of [`Operation`]s, endless with `time_based`, at about ten nanoseconds each. It knows no time:
//! rates, pauses and the end of `runtime` belong to the executor.
//!
//! Reads and writes each have a *lane*: its sizes, and the alignment of its offsets (its smallest size). An
//! [`Order`] determines where a lane goes next. Random reads and writes with the same alignment share one
//! order, so that a pass visits each block once, by a read or a write, as with fio's random map. Sequential
//! lanes advance independently, each from the start.
//!
//! Invariants:
//! - The sequence depends only on job, worker number and region: the same seed gives the same operations on
//!   any machine. (Arithmetic is integer or plain IEEE; logarithms come from the `libm` crate, not the
//!   system.) Writes therefore need no log: another `Workload` with the same arguments repeats them, up to
//!   the [`Operation::number`] of the last one done.
//! - `offset` is a multiple of the lane's smallest size from the region's start, and the operation lies
//!   within the region.
//! - In each hundred operations of a mix, exactly the requested share are reads, in random order.
//!
//! Source: fio's HOWTO for the meaning of options; its get_next_offset, get_next_buflen and rwmix for the
//! behaviour at a region's end.

pub mod buffer;
pub(crate) mod content;
mod order;
pub(crate) mod permutation;
pub(crate) mod random;
mod sizes;
mod zipf;

use std::ops::Range;

use crate::load::job::{BlockSizes, Job};
use crate::{LabError, Result};
use order::Order;
use random::Random;
use sizes::Sizes;

/// Kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// `fsync`: offset and bytes are 0.
    Sync,
    /// `fdatasync`: offset and bytes are 0.
    Datasync,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Read, write or sync.
    pub kind: Kind,
    /// Position in bytes from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// Index of this read or write of the worker, from 0; for a sync, that of the next read or write. Written
    /// data contain it, see [`buffer`].
    pub number: u64,
}

#[derive(Debug)]
struct Lane {
    sizes: Sizes,
    /// Index of its order.
    order: usize,
}

/// Sequence of operations of one worker.
#[derive(Debug)]
pub struct Workload {
    random: Random,
    region: Range<u64>,
    reads: Deck,
    read: Lane,
    write: Lane,
    orders: Vec<Order>,
    /// Bytes until the end; None means endless.
    left_bytes: Option<u64>,
    /// Reads and writes issued so far.
    given: u64,
    written: u64,
    fsync_every: u64,
    fdatasync_every: u64,
    /// Syncs due before the next operation.
    due: [Option<Kind>; 2],
}

impl Workload {
    /// Operations of worker number `worker` of `job` in `region` (bytes of the file or device).
    ///
    /// Number the workers of all concurrent jobs from 0: workers with equal number and seed do the same.
    /// `end_fsync` is left to the executor, which alone knows when time is up.
    ///
    /// # Errors
    /// The region is smaller than a block, or the job has conflicting options.
    pub fn new(job: &Job, worker: u32, region: Range<u64>) -> Result<Workload> {
        refuse_contradiction(job)?;
        let mut random = Random::new(job.seed, u64::from(worker));
        let region_bytes = region.end.saturating_sub(region.start);
        let read =
            Sizes::new(used(&job.block_sizes.read, &job.block_sizes.write, job.pattern.read_percent > 0));
        let write =
            Sizes::new(used(&job.block_sizes.write, &job.block_sizes.read, job.pattern.read_percent < 100));
        for sizes in [&read, &write] {
            if u64::from(sizes.smallest()) > region_bytes {
                return Err(LabError::Refused(format!(
                    "job {}: blocks of {} bytes in a region of {region_bytes} bytes: choose a smaller bs or \
                     a larger size",
                    job.name,
                    sizes.smallest(),
                )));
            }
        }
        let shared = job.pattern.random && read.smallest() == write.smallest();
        let mut orders = vec![Order::new(job, region_bytes, read.smallest(), &mut random)];
        if !shared {
            orders.push(Order::new(job, region_bytes, write.smallest(), &mut random));
        }
        let unit = u64::from(read.smallest().min(write.smallest()));
        let pass_bytes = job.io_size_bytes.unwrap_or(region_bytes - region_bytes % unit);
        Ok(Workload {
            reads: Deck::new(job.pattern.read_percent),
            read: Lane { sizes: read, order: 0 },
            write: Lane { sizes: write, order: orders.len() - 1 },
            orders,
            left_bytes: (!job.time_based).then_some(pass_bytes),
            given: 0,
            written: 0,
            fsync_every: u64::from(job.fsync_every),
            fdatasync_every: u64::from(job.fdatasync_every),
            due: [None; 2],
            random,
            region,
        })
    }

    fn note_written(&mut self) {
        self.written += 1;
        let due = |every: u64| every > 0 && self.written.is_multiple_of(every);
        self.due = [
            due(self.fdatasync_every).then_some(Kind::Datasync),
            due(self.fsync_every).then_some(Kind::Sync),
        ];
    }
}

impl Iterator for Workload {
    type Item = Operation;

    #[inline]
    fn next(&mut self) -> Option<Operation> {
        if let Some(kind) = self.due.iter_mut().find_map(Option::take) {
            return Some(Operation { kind, offset: 0, bytes: 0, number: self.given });
        }
        if self.left_bytes == Some(0) {
            return None;
        }
        let kind = if self.reads.draw(&mut self.random) { Kind::Read } else { Kind::Write };
        let lane = if kind == Kind::Read { &self.read } else { &self.write };
        let bytes = lane.sizes.next(&mut self.random);
        let smallest = lane.sizes.smallest();
        let (offset, bytes) = self.orders[lane.order].next(&mut self.random, bytes, smallest);
        if let Some(left) = &mut self.left_bytes {
            *left = left.saturating_sub(u64::from(bytes));
        }
        let number = self.given;
        self.given += 1;
        if kind == Kind::Write && self.fsync_every | self.fdatasync_every != 0 {
            self.note_written();
        }
        Some(Operation { kind, offset: self.region.start + offset, bytes, number })
    }
}

fn refuse_contradiction(job: &Job) -> Result<()> {
    match job.contradiction() {
        Some(what) => Err(LabError::Refused(format!("job {}: {what}", job.name))),
        None => Ok(()),
    }
}

/// A direction that never occurs does not affect alignment: the other's sizes replace its own.
fn used<'a>(own: &'a BlockSizes, other: &'a BlockSizes, comes: bool) -> &'a BlockSizes {
    if comes { own } else { other }
}

/// Yes or no with an exact share of yes: a deck of a hundred cards, drawn one by one and reshuffled when
/// empty.
#[derive(Debug)]
struct Deck {
    yes_percent: u64,
    cards: u64,
    yes: u64,
}

impl Deck {
    fn new(yes_percent: u8) -> Deck {
        Deck { yes_percent: u64::from(yes_percent.min(100)), cards: 0, yes: 0 }
    }

    #[inline]
    fn draw(&mut self, random: &mut Random) -> bool {
        match self.yes_percent {
            0 => return false,
            100 => return true,
            _ => {}
        }
        if self.cards == 0 {
            (self.cards, self.yes) = (100, self.yes_percent);
        }
        let yes = random.below(self.cards) < self.yes;
        self.cards -= 1;
        self.yes -= u64::from(yes);
        yes
    }
}

//! The content of write buffers.
//!
//! A plain job fills its buffers once ([`Filler::prepare`]), and each write changes eight bytes in every 512,
//! as fio does: blocks stay distinct for deduplication and nop-writes, at almost no cost. New data are
//! generated for each write only with `refill_buffers`, compression, copies or verification.
//!
//! All data are a function of (seed, worker; origin, serial): AES in counter mode, where the counter is the
//! origin in units of 16 bytes and the serial. So nothing needs to be remembered:
//!
//! | job | origin | serial |
//! |---|---|---|
//! | fresh data | 0 | a new one each time |
//! | `dedupe_percent` | 0 | for that share of writes, one used before |
//! | `verify` | the offset in the file | the operation's number |
//!
//! `compress_percent` leaves the first part of every 4 KiB random and the rest zero, which any compressor
//! finds, in records of any size from 4 KiB. (fio does so in every 512 bytes.) Copies are whole buffers: they
//! become equal records if `bs` is a multiple of the record size.
//!
//! Prepare a buffer again after reading into it, or use separate buffers for reads and writes.

mod keystream;
mod sector;

use std::path::Path;

use crate::load::job::{Content, Job};
use crate::load::workload::random::{Random, scramble};
use crate::load::workload::{Deck, Operation, refuse_contradiction};
use crate::{LabError, Result};
use keystream::Keystream;
pub use sector::SECTOR_BYTES;

/// Compressible and random parts alternate in pieces of this size.
const PIECE_BYTES: usize = 4096;

/// Fills the write buffers of one worker, and verifies data read back.
#[derive(Debug)]
pub struct Filler {
    keystream: Keystream,
    /// Derived from seed and worker: distinguishes this filler's data from others'.
    tag: u64,
    content: Content,
    verify: bool,
    /// All writes have one size, so no write can partially overlap another.
    one_size: bool,
    /// Random bytes per piece.
    random_bytes: usize,
    copies: Deck,
    random: Random,
    /// Serials used so far, not counting copies.
    serials: u64,
}

impl Filler {
    /// For worker number `worker` of `job`, as in [`Workload::new`](crate::load::workload::Workload::new).
    ///
    /// # Errors
    /// The job has conflicting options; the text says which.
    pub fn new(job: &Job, worker: u32) -> Result<Filler> {
        let mut random = Random::new(job.seed, u64::from(worker) | 1 << 32);
        refuse_contradiction(job)?;
        let fresh = job.verify || job.dedupe_percent > 0 || job.compress_percent > 0;
        Ok(Filler {
            keystream: Keystream::new([random.bits(), random.bits()]),
            tag: random.bits(),
            content: if fresh { Content::Fresh } else { job.content },
            verify: job.verify,
            one_size: job.block_sizes.write.0.len() == 1,
            random_bytes: PIECE_BYTES * usize::from(100 - job.compress_percent.min(100)) / 100,
            copies: Deck::new(job.dedupe_percent),
            random,
            serials: 0,
        })
    }

    /// Fills a new buffer, or one read into.
    pub fn prepare(&mut self, buffer: &mut [u8]) {
        match self.content {
            Content::Zeros => buffer.fill(0),
            Content::Fresh => {}
            Content::Stamped | Content::Reused => {
                let serial = self.new_serial();
                self.fill(buffer, 0, serial);
            }
        }
    }

    /// Prepares the buffer, of `operation.bytes`, for a write.
    #[inline]
    pub fn renew(&mut self, buffer: &mut [u8], operation: &Operation) {
        match self.content {
            Content::Zeros | Content::Reused => {}
            Content::Stamped => stamp(buffer, scramble(self.tag ^ operation.number)),
            Content::Fresh if self.verify => {
                self.fill(buffer, operation.offset, operation.number);
                sector::mark(buffer, self.tag, operation);
            }
            Content::Fresh => {
                let copy = self.copies.draw(&mut self.random) && self.serials > 0;
                let serial = if copy { self.random.below(self.serials) } else { self.new_serial() };
                self.fill(buffer, 0, serial);
            }
        }
    }

    /// Verifies data read from the place of `written`, a write by a filler of the same job and worker that
    /// may have been overwritten later.
    ///
    /// # Errors
    /// [`LabError::Verify`] with the first wrong offset and the data found: other data, an older write, or
    /// part of one.
    pub fn check(&self, path: &Path, buffer: &[u8], written: &Operation) -> Result<()> {
        let (at, what) = match self.first_wrong(buffer, written) {
            None => return Ok(()),
            Some(wrong) => wrong,
        };
        Err(LabError::Verify { path: path.to_owned(), offset: written.offset + at as u64, what })
    }

    fn first_wrong(&self, buffer: &[u8], written: &Operation) -> Option<(usize, String)> {
        let mut expected = [0; SECTOR_BYTES];
        let mut first_number = None;
        for (index, found) in buffer.chunks(SECTOR_BYTES).enumerate() {
            let at = index * SECTOR_BYTES;
            let offset = written.offset + at as u64;
            let number = match sector::number(found, self.tag, offset, written.number) {
                Ok(number) => number,
                Err(what) => return Some((at, what)),
            };
            let first = *first_number.get_or_insert(number);
            if self.one_size && number != first {
                return Some((
                    at,
                    format!("from write {number}, but the block starts with write {first}: it is torn"),
                ));
            }
            self.fill(&mut expected, offset, number);
            if let Some((byte, what)) = sector::difference(found, &expected) {
                return Some((at + byte, what));
            }
        }
        None
    }

    fn new_serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials - 1
    }

    fn fill(&self, buffer: &mut [u8], origin: u64, serial: u64) {
        if self.random_bytes == PIECE_BYTES {
            return self.keystream.write(buffer, origin, serial);
        }
        let mut origin = origin;
        let mut rest = buffer;
        while !rest.is_empty() {
            let at = (origin % PIECE_BYTES as u64) as usize;
            let (piece, after) = rest.split_at_mut((PIECE_BYTES - at).min(rest.len()));
            let (random, zeros) = piece.split_at_mut(self.random_bytes.saturating_sub(at).min(piece.len()));
            self.keystream.write(random, origin, serial);
            zeros.fill(0);
            origin += piece.len() as u64;
            rest = after;
        }
    }
}

/// Changes each sector slightly.
#[inline]
fn stamp(buffer: &mut [u8], mut value: u64) {
    for sector in buffer.chunks_mut(SECTOR_BYTES) {
        if let Some(first) = sector.first_chunk_mut() {
            *first = value.to_le_bytes();
        }
        value = value.wrapping_add(1);
    }
}

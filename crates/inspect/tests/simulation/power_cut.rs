//! The content of disks after a power cut at some moment of a run.
//!
//! A write is durable if it completed before the request of a flush of its disk that completed before the
//! cut. Of all other writes requested before the cut any part may survive, sector by sector, in any order:
//! the seed decides. A failed flush decides the fate of all writes before it for good: no later flush makes
//! them durable.

use std::collections::BTreeMap;

use bytes::Bytes;
use cenote_runtime::Rng;
use cenote_testkit::image::Image;

use crate::journal::{Journal, Moment, Write};

/// Steps through a journal and makes the disks that cuts on the way would leave.
pub struct Cutter<'a> {
    journal: &'a Journal,
    /// The durable content.
    durable: Vec<Image>,
    /// Writes requested but not known to be durable.
    uncertain: Vec<&'a Write>,
    writes_seen: usize,
    flushes_seen: usize,
}

impl<'a> Cutter<'a> {
    /// Starts with the disks as they were when the journal started.
    pub fn new(journal: &'a Journal, before: Vec<Image>) -> Cutter<'a> {
        Cutter { journal, durable: before, uncertain: Vec::new(), writes_seen: 0, flushes_seen: 0 }
    }

    /// The disks after a cut just before `moment`, which must not precede the last one requested.
    pub fn cut(&mut self, moment: Moment, sector_bytes: u32, rng: &mut Rng) -> Vec<Image> {
        self.advance(moment);
        let mut disks = self.durable.clone();
        // Everything, nothing, or some: this makes cuts just before and just after a flush as likely as those
        // between.
        let kept = [0.0, 0.2, 0.5, 0.9, 1.0][rng.below(5) as usize];
        // Writes to one sector that overlap in time may complete in any order; others keep the order of their
        // requests.
        let mut survivors: BTreeMap<(usize, u64), Vec<Bytes>> = BTreeMap::new();
        for write in &self.uncertain {
            for (offset, data) in sectors(write, sector_bytes) {
                if rng.chance(kept) {
                    survivors.entry((write.disk, offset)).or_default().push(data);
                }
            }
        }
        for ((disk, offset), candidates) in survivors {
            let data = &candidates[rng.below(candidates.len() as u64) as usize];
            disks[disk].write(offset, data);
        }
        disks
    }

    fn advance(&mut self, moment: Moment) {
        let flushes = &self.journal.flushes[self.flushes_seen..];
        for flush in flushes.iter().take_while(|flush| flush.done < moment) {
            self.flushes_seen += 1;
            self.see_writes(flush.asked);
            if flush.has_failed {
                let mut rng = Rng::new(flush.asked as u64);
                for write in self.uncertain.extract_if(.., |write| write.disk == flush.disk) {
                    if rng.chance(0.3) {
                        self.durable[write.disk].write(write.offset, &write.data);
                    }
                }
                continue;
            }
            let durable =
                |write: &Write| write.disk == flush.disk && write.done.is_some_and(|done| done < flush.asked);
            for write in self.uncertain.extract_if(.., |write| durable(write)) {
                self.durable[write.disk].write(write.offset, &write.data);
            }
        }
        self.see_writes(moment);
    }

    fn see_writes(&mut self, before: Moment) {
        let asked = self.journal.writes[self.writes_seen..].iter().take_while(|write| write.asked < before);
        let seen = self.uncertain.len();
        self.uncertain.extend(asked);
        self.writes_seen += self.uncertain.len() - seen;
    }
}

/// A write, split at sector boundaries.
fn sectors(write: &Write, sector_bytes: u32) -> impl Iterator<Item = (u64, Bytes)> {
    let (sector, mut at) = (u64::from(sector_bytes), 0);
    std::iter::from_fn(move || {
        let offset = write.offset + at as u64;
        let len = (sector - offset % sector).min((write.data.len() - at) as u64) as usize;
        at += len;
        (len > 0).then(|| (offset, write.data.slice(at - len..at)))
    })
}

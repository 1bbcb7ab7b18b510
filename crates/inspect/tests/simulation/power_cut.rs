//! What disks hold after the power was cut at a moment of a run.
//!
//! Durable is a write that was done before a flush of its disk was asked for that was done in time. Of all other writes that
//! were asked for before the cut any part may be there, sector by sector, in any order: the seed decides.

use std::collections::BTreeMap;

use bytes::Bytes;
use cenote_runtime::Rng;

use crate::image::Image;
use crate::journal::{Journal, Moment, Write};

/// Goes through a journal from its beginning to its end, and makes disks as cuts on the way would leave them.
pub struct Cutter<'a> {
    journal: &'a Journal,
    /// What is durable.
    durable: Vec<Image>,
    /// Writes asked for and not known to be durable.
    uncertain: Vec<&'a Write>,
    writes_seen: usize,
    flushes_seen: usize,
}

impl<'a> Cutter<'a> {
    /// From disks as they were when the journal began.
    pub fn new(journal: &'a Journal, before: Vec<Image>) -> Cutter<'a> {
        Cutter { journal, durable: before, uncertain: Vec::new(), writes_seen: 0, flushes_seen: 0 }
    }

    /// The disks after a cut just before `moment`, which must not be earlier than the last one asked for.
    pub fn cut(&mut self, moment: Moment, sector_bytes: u32, rng: &mut Rng) -> Vec<Image> {
        self.advance(moment);
        let mut disks = self.durable.clone();
        // Everything, nothing, or some: cuts just before a flush and just after one are as likely as those between.
        let kept = [0.0, 0.2, 0.5, 0.9, 1.0][rng.below(5) as usize];
        // Writes to one sector that overlap in time may be done in any order; others are in the order they were asked for.
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

/// A write, cut at the bounds of sectors.
fn sectors(write: &Write, sector_bytes: u32) -> impl Iterator<Item = (u64, Bytes)> {
    let (sector, mut at) = (u64::from(sector_bytes), 0);
    std::iter::from_fn(move || {
        let offset = write.offset + at as u64;
        let len = (sector - offset % sector).min((write.data.len() - at) as u64) as usize;
        at += len;
        (len > 0).then(|| (offset, write.data.slice(at - len..at)))
    })
}

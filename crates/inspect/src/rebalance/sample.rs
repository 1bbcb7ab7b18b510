//! Estimates by samples how well blocks compress today: for each stored compression, a reservoir of places.

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_codec::compress::{Compression, ZstdLevel};
use cenote_dataset::Dataset;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::{BlockId, ObjectId};
use cenote_runtime::Rng;

use super::choice::Choice;
use super::{Aim, Gain};
use crate::error::Result;

/// Places kept for each stored compression of a dataset.
pub(super) const SAMPLES: usize = 128;
/// A rewrite is worth its work if it saves this part.
const WORTH: f64 = 0.05;

/// A block chosen by chance.
#[derive(Clone)]
struct Sample {
    object: ObjectId,
    block: BlockId,
    bp: Blkptr,
}

/// Samples of blocks with the same stored compression.
#[derive(Default)]
struct Reservoir {
    met: u64,
    /// Allocated bytes of all blocks met, and of those that snapshots or clones have, too.
    bytes: u64,
    held_bytes: u64,
    kept: Vec<Sample>,
}

/// Samples of a dataset's blocks, by stored compression.
pub(super) struct Samples {
    rng: Rng,
    by_compression: BTreeMap<u8, Reservoir>,
}

pub(super) struct Verdict {
    /// Of blocks whose rewrite is worth it.
    pub(super) gain: Gain,
    /// Stored compressions of which a rewrite saves too little.
    pub(super) keeps: Vec<u8>,
}

impl Samples {
    pub(super) fn new(rng: Rng) -> Samples {
        Samples { rng, by_compression: BTreeMap::new() }
    }

    pub(super) fn meet(&mut self, object: ObjectId, block: BlockId, bp: &Blkptr, is_held: bool) {
        let reservoir = self.by_compression.entry(bp.compression_id()).or_default();
        (reservoir.met, reservoir.bytes) = (reservoir.met + 1, reservoir.bytes + bp.asize().0);
        reservoir.held_bytes += if is_held { bp.asize().0 } else { 0 };
        let sample = Sample { object, block, bp: *bp };
        if reservoir.kept.len() < SAMPLES {
            reservoir.kept.push(sample);
        } else if let Some(kept) = reservoir.kept.get_mut(self.rng.below(reservoir.met) as usize) {
            *kept = sample;
        }
    }

    /// Reads and compresses the samples. Unreadable ones count as incompressible.
    ///
    /// # Errors
    /// The dataset can't be opened.
    #[boxed]
    pub(super) async fn judge(self, dataset: &Dataset, choice: &Choice) -> Result<Verdict> {
        let mut verdict = Verdict { gain: Gain::none(Aim::Compression), keeps: Vec::new() };
        let Some((compression, level)) = choice.compression else { return Ok(verdict) };
        let objset = dataset.objset().await?;
        for (stored, reservoir) in self.by_compression {
            let (mut before, mut after) = (0u64, 0u64);
            for sample in &reservoir.kept {
                let old_bytes = sample.bp.asize().0;
                let data = match objset.object(sample.object).await {
                    Ok(object) => object.read_block(sample.block).await.ok(),
                    Err(_) => None,
                };
                let small = data.and_then(|(data, _)| compressed_bytes(&data, compression, level));
                let new_bytes = small.map_or(old_bytes, |psize| choice.bytes_of(&sample.bp, psize));
                (before, after) = (before + old_bytes, after + new_bytes.min(old_bytes));
            }
            let part = (before - after) as f64 / (before as f64).max(1.0);
            if part < WORTH {
                verdict.keeps.push(stored);
            } else {
                verdict.gain.add(&Gain {
                    aim: Aim::Compression,
                    blocks: reservoir.met,
                    bytes: reservoir.bytes,
                    held_bytes: reservoir.held_bytes,
                    saved_bytes: (reservoir.bytes as f64 * part) as u64,
                });
            }
        }
        Ok(verdict)
    }
}

/// Compressed size in whole sectors of 512 bytes; `None`: less than an eighth is saved.
fn compressed_bytes(data: &[u8], compression: Compression, level: ZstdLevel) -> Option<u64> {
    let compressed = compression.compress(data, data.len() - data.len() / 8, level).ok()??;
    Some((compressed.len() as u64).next_multiple_of(512))
}

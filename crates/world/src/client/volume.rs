//! A program that uses volumes: chooses its next call.

use cenote_runtime::Rng;

use super::{Stage, choose, data, pick};
use crate::model::{Action, BLOCK_BYTES, ClientId, Content, DatasetId};

/// Kinds of calls: write, read, zero, flush.
pub const KINDS: usize = 4;
/// Most blocks of a write.
const BLOCKS: u64 = 8;
/// Share of writes that are durable at once.
const DURABLE: f64 = 0.2;

/// The next call of a client; `None`: there is no volume.
pub fn next(stage: &Stage, client: ClientId, rng: &mut Rng) -> Option<Action> {
    let state = stage.scene.state();
    let volumes = state.datasets.iter().filter_map(|(id, dataset)| match &dataset.content {
        Content::Blocks(blocks) => Some((*id, blocks.all().len() as u64)),
        Content::Files(_) => None,
    });
    let volumes: Vec<(DatasetId, u64)> = volumes.collect();
    let (dataset, blocks) = *pick(rng, &volumes)?;
    let block = rng.below(blocks);
    let count = 1 + rng.below(BLOCKS.min(blocks - block));
    Some(match choose(rng, &stage.swarm.volume) {
        0 => {
            let data = data(rng, client, stage.scene.next(), (count * BLOCK_BYTES) as usize);
            Action::WriteBlocks { dataset, block, data, is_durable: rng.chance(DURABLE) }
        }
        1 => Action::ReadBlocks { dataset, block },
        2 => Action::ZeroBlocks { dataset, block, count },
        _ => Action::FlushVolume { dataset },
    })
}

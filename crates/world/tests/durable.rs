//! The rules of the oracle for durable writes.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cenote_world::model::{Action, BLOCK_BYTES, Call, Outcome};
use cenote_world::oracle::Oracle;
use cenote_world::oracle::crash::{Found, FoundContent, FoundDataset};

const VOLUME: &str = "tank/v";

fn block(byte: u8) -> Bytes {
    vec![byte; BLOCK_BYTES as usize].into()
}

/// Whether a cut may leave these blocks, after a write of block 0, and a durable one of block 1.
fn may_be(blocks: [u8; 2]) -> bool {
    let mut oracle = Oracle::default();
    let write = |block_number: u64, byte: u8, is_durable: bool| {
        let data = block(byte);
        Action::WriteBlocks { dataset: 1, block: block_number, data, is_durable }
    };
    let create = Action::Create { name: VOLUME.into(), volume_blocks: Some(2) };
    for (id, action) in (1..).zip([create, write(0, 1, false), write(1, 2, true)]) {
        oracle.begin(id, Arc::new(Call { client: 0, action }));
        oracle.end(id, &Outcome::Done).unwrap();
    }
    oracle.cut();
    let blocks = blocks.map(|byte| if byte == 0 { Bytes::new() } else { block(byte) }.into());
    let (content, snapshots) = (FoundContent::Blocks(blocks.to_vec()), Vec::new());
    let datasets = BTreeMap::from([(VOLUME.to_owned(), FoundDataset { content, snapshots })]);
    oracle.reopened(&Found { datasets }).is_ok()
}

#[test]
fn a_durable_write_saves_its_own_blocks() {
    assert!(may_be([1, 2]), "nothing was lost");
    assert!(may_be([0, 2]), "the first write was not durable");
    assert!(!may_be([1, 0]) && !may_be([0, 0]), "the second was");
}

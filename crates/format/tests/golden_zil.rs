//! Log blocks of the OpenZFS module: decoded as by zdb, re-encoded bit for bit.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use bytes::Bytes;
use cenote_format::zil::record::{RenameKind, WriteData};
use cenote_format::zil::{LogBlock, LogLayout, LogRecord, Operation};

/// Blocks with sequence numbers and zdb's lines for their records.
fn blocks() -> Vec<(String, Bytes, u64, Vec<String>)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/zil");
    let text = std::fs::read_to_string(format!("{dir}/records.txt")).expect("records.txt is there");
    let mut blocks = Vec::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        match line.strip_prefix("block ").and_then(|b| b.split_once(' ')) {
            Some((file, seq)) => {
                let raw = std::fs::read(format!("{dir}/{file}")).expect("the block is there");
                let seq = seq.parse().expect("a number");
                blocks.push((file.to_owned(), Bytes::from(raw), seq, Vec::new()));
            }
            None => blocks.last_mut().expect("a block line comes first").3.push(line.to_owned()),
        }
    }
    blocks
}

fn records_of(block: &LogBlock) -> Vec<LogRecord> {
    block.records().collect::<Result<_, _>>().expect("every record decodes")
}

#[test]
fn records_are_those_that_zdb_prints() {
    for (file, raw, seq, expected) in blocks() {
        let block = LogBlock::decode(&raw, LogLayout::Head).unwrap();
        assert_eq!(block.next.checksum()[3], seq + 1, "{file}");
        let mut lines = Vec::new();
        let mut rest = block.records.clone();
        while !rest.is_empty() {
            let (record, len) = LogRecord::decode(&rest, block.endian).unwrap();
            rest = rest.slice(len..);
            lines.push(format!("{} {len} {} {}", record.operation.type_name(), record.txg, record.seq));
        }
        assert_eq!(lines, expected, "{file}");
    }
}

#[test]
fn blocks_and_records_are_written_back_bit_for_bit() {
    for (file, raw, _, _) in blocks() {
        let block = LogBlock::decode(&raw, LogLayout::Head).unwrap();
        let records: Vec<u8> = records_of(&block).iter().flat_map(|r| r.encode(block.endian)).collect();
        assert_eq!(records, block.records, "{file}");
        let again = block.encode(LogLayout::Head, raw.len()).unwrap();
        let used = block.records.len() + cenote_format::zil::ZIL_CHAIN_BYTES;
        assert_eq!(again[8..used], raw[8..used], "{file}");
    }
}

#[test]
fn contents_are_those_that_the_generator_wrote() {
    let all: Vec<LogRecord> = blocks()
        .iter()
        .flat_map(|(_, raw, _, _)| records_of(&LogBlock::decode(raw, LogLayout::Head).unwrap()))
        .collect();
    let has = |check: &dyn Fn(&Operation) -> bool| all.iter().any(|r| check(&r.operation));
    assert!(has(&|o| matches!(o, Operation::Symlink { name, target, .. }
        if name == "sym" && target == "target of symlink")));
    assert!(has(&|o| matches!(o, Operation::Rename { kind: RenameKind::Replace, from, to, .. }
        if from == "old5" && to == "renamed5")));
    assert!(has(
        &|o| matches!(o, Operation::Rename { kind: RenameKind::Whiteout(new), .. } if new.rdev == 0)
    ));
    assert!(has(&|o| matches!(o, Operation::SetSaXattr { name, .. } if name == "user.old")));
    assert!(has(&|o| matches!(o, Operation::Write { data: WriteData::Copied(d), length_bytes: 0x3e8, .. }
        if d.len() == 0x3e8)));
    assert!(has(&|o| matches!(o, Operation::Write { data: WriteData::Indirect, bp, .. } if !bp.is_hole())));
    assert!(has(
        &|o| matches!(o, Operation::CloneRange { blocks, .. } if blocks.iter().all(|b| !b.is_hole()))
    ));
}

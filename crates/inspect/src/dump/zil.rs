//! Intent logs: header, chain of blocks, records.
//!
//! The chain is followed on disk from the header to the first unexpected block, regardless of the txgs of its
//! records. The dataset layer decides which records a replay uses.
//!
//! Source: OpenZFS `zil.c` (`zil_parse`), `zdb_il.c`.

use cenote_format::blkptr::Blkptr;
use cenote_format::units::ObjectId;
use cenote_format::zil::record::{NewObject, RenameKind, WriteData};
use cenote_format::zil::{LogBlock, LogRecord, Operation, ZIL_ZC_SEQ};
use cenote_object::Objset;

use super::{Sink, Value, failure};

/// The maximum length of a chain: more than any log has.
const MAX_BLOCKS: usize = 1 << 20;
/// How many bytes of written data are shown.
const PREVIEW_BYTES: usize = 32;

/// Shows the intent log of an object set. For an encrypted dataset, the set must have been opened with its
/// key.
pub async fn intent_log(sink: &mut dyn Sink, name: &str, objset: &Objset) {
    let header = &objset.phys().zil_header;
    sink.field("name", name.into());
    sink.open("header");
    sink.field("claim_txg", header.claim_txg.0.into());
    sink.field("claim_block_seq", header.claim_blk_seq.into());
    sink.field("claim_record_seq", header.claim_lr_seq.into());
    sink.field("replay_seq", header.replay_seq.into());
    sink.field("flags", Value::Hex(header.flags));
    sink.field("log", header.log.into());
    sink.close();
    sink.list("blocks");
    let mut counts = std::collections::BTreeMap::new();
    let mut next = header.log;
    let mut blocks = 0;
    let mut ended = None;
    while !next.is_hole() && blocks < MAX_BLOCKS && !sink.is_closed() {
        match objset.read_log_block(&next, false).await {
            Ok(Some(block)) => {
                show_block(sink, objset, &next, &block, &mut counts);
                blocks += 1;
                next = block.next;
            }
            Ok(None) => break,
            Err(error) => {
                ended = Some(error);
                break;
            }
        }
    }
    sink.close();
    sink.field("block_count", blocks.into());
    if let Some(error) = ended {
        sink.field("end", error.to_string().into());
    }
    if !counts.is_empty() {
        sink.table("record_counts", &["type", "records"]);
        counts.into_iter().for_each(|(name, count): (&str, u64)| sink.row(vec![name.into(), count.into()]));
        sink.close();
    }
}

fn show_block(
    sink: &mut dyn Sink,
    objset: &Objset,
    bp: &Blkptr,
    block: &LogBlock,
    counts: &mut std::collections::BTreeMap<&'static str, u64>,
) {
    let seq = bp.checksum()[ZIL_ZC_SEQ];
    sink.open(&format!("block {seq}"));
    sink.field("seq", seq.into());
    let claim = bp.allocation_birth() > objset.pool().uberblock().txg;
    sink.field("would_be_claimed", claim.into());
    sink.field("pointer", (*bp).into());
    sink.field("used", Value::Size(block.records.len() as u64));
    sink.list("records");
    for record in block.records() {
        match record {
            Ok(record) => {
                *counts.entry(record.operation.type_name()).or_default() += 1;
                sink.open(record.operation.type_name());
                show_record(sink, &record);
            }
            Err(error) => {
                sink.open("record");
                failure(sink, &error);
            }
        }
        sink.close();
    }
    sink.close();
    sink.close();
}

fn show_record(sink: &mut dyn Sink, record: &LogRecord) {
    sink.field("record", record.operation.type_name().into());
    sink.field("txg", record.txg.0.into());
    sink.field("seq", record.seq.into());
    match &record.operation {
        Operation::Create { new, name, acl, attrs, .. } => {
            sink.field("name", text(name));
            show_new(sink, new);
            sink.field("acl_entries", acl.as_ref().map(|acl| acl.entry_count).into());
            sink.field("attributes", attrs.as_ref().map_or(Value::None, |attrs| Value::Hex(attrs.attrs)));
        }
        Operation::MakeXattrDir { new, .. } => show_new(sink, new),
        Operation::Symlink { new, name, target } => {
            sink.field("name", text(name));
            sink.field("target", text(target));
            show_new(sink, new);
        }
        Operation::Remove { directory, name, .. } => {
            sink.field("directory", directory.0.into());
            sink.field("name", text(name));
        }
        Operation::Link { directory, object, name } => {
            sink.field("directory", directory.0.into());
            sink.field("object", object.0.into());
            sink.field("name", text(name));
        }
        Operation::Rename { kind, from_directory, to_directory, from, to } => {
            sink.field("from_directory", from_directory.0.into());
            sink.field("from", text(from));
            sink.field("to_directory", to_directory.0.into());
            sink.field("to", text(to));
            if let RenameKind::Whiteout(new) = kind {
                show_new(sink, new);
            }
        }
        other => show_change(sink, other),
    }
}

fn show_change(sink: &mut dyn Sink, operation: &Operation) {
    match operation {
        Operation::Write { object, offset_bytes, length_bytes, bp, data, .. } => {
            show_range(sink, *object, *offset_bytes, *length_bytes);
            match data {
                WriteData::Copied(bytes) => {
                    sink.field("data", Value::Raw(bytes[..bytes.len().min(PREVIEW_BYTES)].to_vec()));
                }
                WriteData::Indirect => sink.field("pointer", (*bp).into()),
            }
        }
        Operation::Truncate { object, offset_bytes, length_bytes } => {
            show_range(sink, *object, *offset_bytes, *length_bytes);
        }
        Operation::CloneRange { object, offset_bytes, length_bytes, block_bytes, blocks } => {
            show_range(sink, *object, *offset_bytes, *length_bytes);
            sink.field("block", Value::Size(*block_bytes));
            sink.table("pointers", &["pointer"]);
            blocks.iter().for_each(|bp| sink.row(vec![(*bp).into()]));
            sink.close();
        }
        Operation::SetAttr { object, mask, mode, uid, gid, size_bytes, atime, mtime, .. } => {
            sink.field("object", object.0.into());
            sink.field("mask", Value::Hex(*mask));
            sink.field("mode", Value::Text(format!("{mode:o}")));
            sink.field("uid", (*uid).into());
            sink.field("gid", (*gid).into());
            sink.field("size", Value::Size(*size_bytes));
            sink.field("atime", Value::Time(atime[0].cast_signed()));
            sink.field("mtime", Value::Time(mtime[0].cast_signed()));
        }
        Operation::SetAclV0 { object, entry_count, .. } => {
            sink.field("object", object.0.into());
            sink.field("acl_entries", (*entry_count).into());
        }
        Operation::SetAcl { object, acl } => {
            sink.field("object", object.0.into());
            sink.field("acl_entries", acl.entry_count.into());
            sink.field("acl_flags", Value::Hex(acl.flags));
        }
        Operation::SetSaXattr { object, name, value } => {
            sink.field("object", object.0.into());
            sink.field("name", text(name));
            sink.field("value", Value::Raw(value.to_vec()));
        }
        Operation::Unknown { txtype, payload } => {
            sink.field("txtype", (*txtype).into());
            sink.field("payload", Value::Size(payload.len() as u64));
        }
        _ => {}
    }
}

fn show_range(sink: &mut dyn Sink, object: ObjectId, offset: u64, length: u64) {
    sink.field("object", object.0.into());
    sink.field("offset", Value::Hex(offset));
    sink.field("length", Value::Hex(length));
}

fn show_new(sink: &mut dyn Sink, new: &NewObject) {
    sink.field("directory", new.directory.0.into());
    sink.field("object", new.object.0.into());
    sink.field("slots", new.slots.into());
    sink.field("mode", Value::Text(format!("{:o}", new.mode)));
    sink.field("uid", new.uid.into());
    sink.field("gid", new.gid.into());
    sink.field("gen", new.generation.into());
    sink.field("crtime", Value::Time(new.crtime[0].cast_signed()));
    sink.field("rdev", Value::Hex(new.rdev));
}

fn text(name: &[u8]) -> Value {
    Value::Text(String::from_utf8_lossy(name).into_owned())
}

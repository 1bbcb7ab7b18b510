//! Objects: a table of all objects in a set, or one object in full.
//!
//! `lsize` is the capacity of its blocks, `dsize` its size on disk, `full` the share of blocks without holes.

use cenote_dataset::Mos;
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::{DNODE_MIN_BYTES, Dnode, ObjectType};
use cenote_format::objset::ObjsetType;
use cenote_format::sa::SaRegistry;
use cenote_format::units::ObjectId;
use cenote_fs::Filesystem;
use cenote_object::object::{SPILL_BLOCK, Visited};
use cenote_object::{Object, Objset};
use cenote_pool::zbookmark::in_object;

use super::{Sink, Value, bonus, content, failure, pointer};
use crate::error::Result;

/// The parts of a single object to show.
#[derive(Debug, Clone, Copy, Default)]
pub struct Parts {
    /// The tree of its block pointers.
    pub blocks: bool,
    /// Its content, if its type is understood.
    pub content: bool,
}

const COLUMNS: [&str; 10] =
    ["object", "lvl", "iblk", "dblk", "dsize", "dnsize", "lsize", "full", "type", "bonus"];

/// The header of an object set.
pub fn head(sink: &mut dyn Sink, objset: &Objset) {
    let phys = objset.phys();
    sink.field("dataset", objset.dataset_id().0.into());
    let kind = match phys.objset_type {
        ObjsetType::None => "NONE".into(),
        ObjsetType::Meta => "META".into(),
        ObjsetType::Zfs => "ZPL".into(),
        ObjsetType::Zvol => "ZVOL".into(),
        ObjsetType::Other(number) => format!("type {number}"),
    };
    sink.field("type", kind.into());
    sink.field("flags", Value::Hex(phys.flags));
    sink.field("rootbp", (*objset.bp()).into());
    sink.field("objects", objset.bp().fill().into());
    if objset.bp().uses_crypt() {
        sink.field("portable_mac", Value::Raw(phys.portable_mac.to_vec()));
        sink.field("local_mac", Value::Raw(phys.local_mac.to_vec()));
    }
}

/// A table of all objects, in order, followed by the slots whose dnodes are lost.
///
/// # Errors
/// The tree of dnodes can't be walked any further.
pub async fn objects(sink: &mut dyn Sink, objset: &Objset) -> Result<()> {
    head(sink, objset);
    sink.table("objects", &COLUMNS);
    let mut damaged = Vec::new();
    if let Some(meta) = objset.meta() {
        sink.row(row(meta.id(), meta.dnode()));
    }
    let mut dnodes = objset.dnodes(ObjectId(1), ObjectId(u64::MAX));
    while let Some(batch) = dnodes.next_batch().await {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                sink.close();
                return Err(error.into());
            }
        };
        batch.dnodes.iter().for_each(|(id, dnode)| sink.row(row(*id, dnode)));
        damaged.extend(batch.damaged);
        if sink.is_closed() {
            break;
        }
    }
    sink.close();
    if !damaged.is_empty() {
        sink.table("damaged", &["first", "last", "error"]);
        for (range, error) in damaged {
            sink.row(vec![range.start.0.into(), (range.end.0 - 1).into(), error.to_string().into()]);
        }
        sink.close();
    }
    Ok(())
}

fn row(id: ObjectId, dnode: &Dnode) -> Vec<Value> {
    vec![
        id.0.into(),
        dnode.levels.into(),
        Value::Size(indirect_bytes(dnode)),
        Value::Size(dnode.data_block_bytes.into()),
        Value::Size(dnode.used_bytes),
        Value::Size(dnode_bytes(dnode)),
        Value::Size(logical_bytes(dnode)),
        full(dnode).into(),
        pointer::type_name(dnode.object_type).into(),
        (dnode.bonus_type != ObjectType::NONE).then(|| pointer::type_name(dnode.bonus_type)).into(),
    ]
}

fn dnode_bytes(dnode: &Dnode) -> u64 {
    u64::from(dnode.slots) * DNODE_MIN_BYTES as u64
}

fn indirect_bytes(dnode: &Dnode) -> u64 {
    1u64.checked_shl(dnode.indirect_block_shift.into()).unwrap_or(0)
}

fn logical_bytes(dnode: &Dnode) -> u64 {
    dnode.max_block_id.0.saturating_add(1).saturating_mul(dnode.data_block_bytes.into())
}

/// `12.50%`: blocks that are not holes, of all blocks up to the last. For an object of dnodes the pointers
/// count dnodes.
fn full(dnode: &Dnode) -> String {
    let fill: u64 = dnode.blkptrs().fold(0, |sum, bp| sum.saturating_add(bp.fill()));
    let per_block = match dnode.object_type {
        ObjectType::DNODE => u64::from(dnode.data_block_bytes) / DNODE_MIN_BYTES as u64,
        _ => 1,
    };
    let all = dnode.max_block_id.0.saturating_add(1).saturating_mul(per_block.max(1));
    format!("{:.2}%", 100.0 * fill as f64 / all as f64)
}

/// One object: dnode, bonus, and the requested `parts`. `mos` is given if the set is that pool's meta object
/// set.
///
/// # Errors
/// The object does not exist, or its dnode can't be read.
pub async fn object(
    sink: &mut dyn Sink,
    objset: &Objset,
    mos: Option<&Mos>,
    id: ObjectId,
    parts: Parts,
) -> Result<()> {
    let object = match (id, objset.meta()) {
        (ObjectId(0), Some(meta)) => meta,
        _ => objset.object(id).await?,
    };
    let filesystem = match objset.phys().objset_type {
        ObjsetType::Zfs => Filesystem::open(objset.clone()).await.ok(),
        _ => None,
    };
    dnode(sink, &object);
    if let Some(filesystem) = &filesystem
        && Filesystem::is_file(object.dnode())
        && let Ok(path) = filesystem.path_of(id).await
    {
        sink.field("path", String::from_utf8_lossy(&path).into_owned().into());
    }
    let registry: Option<&SaRegistry> = filesystem.as_ref().map(Filesystem::sa_registry);
    bonus::show(sink, &object, registry).await;
    if parts.content {
        content::show(sink, mos, &object).await;
    }
    if parts.blocks {
        blocks(sink, &object).await;
    }
    Ok(())
}

fn dnode(sink: &mut dyn Sink, object: &Object) {
    let dnode = object.dnode();
    sink.field("object", object.id().0.into());
    sink.field("type", pointer::type_name(dnode.object_type).into());
    sink.field("levels", dnode.levels.into());
    sink.field("indirect_block", Value::Size(indirect_bytes(dnode)));
    sink.field("data_block", Value::Size(dnode.data_block_bytes.into()));
    sink.field("pointers", dnode.blkptr_count.into());
    sink.field("max_block_id", dnode.max_block_id.0.into());
    sink.field("logical", Value::Size(logical_bytes(dnode)));
    sink.field("used", Value::Size(dnode.used_bytes));
    sink.field("full", full(dnode).into());
    sink.field("dnode", Value::Size(dnode_bytes(dnode)));
    sink.field("checksum", pointer::checksum_name(dnode.checksum_id).into());
    sink.field("compression", pointer::compression_name(dnode.compression_id).into());
    sink.field("flags", Value::Hex(dnode.flags.into()));
    sink.field("bonus_type", pointer::type_name(dnode.bonus_type).into());
    sink.field("bonus_bytes", Value::Size(dnode.bonus().len() as u64));
}

/// All block pointers, each indirect block before those below it.
async fn blocks(sink: &mut dyn Sink, object: &Object) {
    sink.table("blocks", &["level", "block", "offset", "pointer"]);
    let mut lost = Vec::new();
    let mut walk = object.walk();
    while let Some(batch) = walk.next_batch().await {
        for visited in batch {
            match visited {
                Visited::Block { level, block, bp } => sink.row(block_row(object, level, block.0, bp)),
                Visited::Unreadable { level, block, error } => lost.push((level, block, error)),
            }
        }
        if sink.is_closed() {
            break;
        }
    }
    sink.close();
    for (level, block, error) in lost {
        failure(sink, &format!("{}: {error}", in_object(level, block)));
    }
}

fn block_row(object: &Object, level: u8, block: u64, bp: Blkptr) -> Vec<Value> {
    if block == SPILL_BLOCK.0 {
        return vec![level.into(), "spill".into(), Value::None, bp.into()];
    }
    let shift = object.dnode().fanout_shift() * u32::from(level);
    let first = block.checked_shl(shift).unwrap_or(u64::MAX);
    vec![level.into(), block.into(), Value::Hex(first.saturating_mul(object.block_bytes())), bp.into()]
}

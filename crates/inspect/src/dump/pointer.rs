//! Block pointers: one line for people, named parts for programs.

use std::fmt::Write;

use cenote_codec::checksum::Checksum;
use cenote_codec::compress::Compression;
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;

use super::{Sink, Value};

/// The checksum algorithm's name.
pub fn checksum_name(id: u8) -> String {
    Checksum::try_from(id).map_or_else(|_| format!("checksum {id}"), |checksum| checksum.name().into())
}

/// The type's name. A type without its own number is named by its byte layout, as in `zdb`.
pub fn type_name(object_type: ObjectType) -> String {
    /// Names of `DMU_BSWAP_*`.
    const LAYOUTS: [&str; 10] =
        ["uint8", "uint16", "uint32", "uint64", "zap", "dnode", "objset", "znode", "oldacl", "acl"];
    const DMU_OT_NEWTYPE: u8 = 0x80;
    const DMU_OT_BYTESWAP_MASK: u8 = 0x1f;
    let layout = LAYOUTS.get(usize::from(object_type.0 & DMU_OT_BYTESWAP_MASK));
    match layout.filter(|_| object_type.0 & DMU_OT_NEWTYPE != 0) {
        Some(layout) => (*layout).into(),
        None => object_type.to_string(),
    }
}

/// The compression algorithm's name.
pub fn compression_name(id: u8) -> String {
    Compression::try_from(id)
        .map_or_else(|_| format!("compression {id}"), |algorithm| algorithm.name().into())
}

/// `0:d9000:2000`: vdev, offset and allocated size in hex, as `zdb` writes addresses.
pub fn addresses(bp: &Blkptr) -> Vec<String> {
    bp.dvas().map(|dva| format!("{}:{:x}:{:x}", dva.vdev, dva.offset_bytes, dva.asize.0)).collect()
}

/// One line: addresses, sizes in hex, births, fill, algorithms, flags.
pub fn line(bp: &Blkptr) -> String {
    let (lsize, psize) = (bp.lsize().0, bp.psize().0);
    let mut out = match bp.kind() {
        BlkptrKind::Hole => return hole(bp),
        BlkptrKind::Redacted => format!("redacted {lsize:x}L"),
        BlkptrKind::Embedded => format!("embedded {lsize:x}L/{psize:x}P"),
        BlkptrKind::Normal => format!("{} {lsize:x}L/{psize:x}P", addresses(bp).join(" ")),
    };
    // Writing to a string can't fail.
    let _ = write!(out, " B={}/{}", bp.logical_birth(), bp.physical_birth());
    if bp.kind() == BlkptrKind::Normal {
        let _ = write!(out, " F={} {}", bp.fill(), checksum_name(bp.checksum_id()));
    }
    let _ = write!(out, " {}", compression_name(bp.compression_id()));
    for (is, mark) in marks(bp) {
        if is {
            let _ = write!(out, " {mark}");
        }
    }
    if bp.kind() == BlkptrKind::Normal {
        let sum = bp.checksum();
        let _ = write!(out, " {:x}:{:x}:{:x}:{:x}", sum[0], sum[1], sum[2], sum[3]);
    }
    out
}

fn hole(bp: &Blkptr) -> String {
    match bp.logical_birth().0 {
        0 => "hole".into(),
        birth => format!("hole {:x}L B={birth}", bp.lsize().0),
    }
}

fn marks(bp: &Blkptr) -> [(bool, &'static str); 6] {
    [
        (bp.is_encrypted(), "encrypted"),
        (bp.is_authenticated(), "authenticated"),
        (bp.has_indirect_mac(), "indirect-mac"),
        (bp.is_gang(), "gang"),
        (bp.is_dedup(), "dedup"),
        (bp.endian() == Endian::Big, "BE"),
    ]
}

/// All parts of a pointer as fields of the open record.
pub fn fields(sink: &mut dyn Sink, bp: &Blkptr) {
    let kind = match bp.kind() {
        BlkptrKind::Hole => "hole",
        BlkptrKind::Embedded => "embedded",
        BlkptrKind::Redacted => "redacted",
        BlkptrKind::Normal => "normal",
    };
    sink.field("kind", kind.into());
    sink.field("level", bp.level().into());
    sink.field("type", type_name(bp.object_type()).into());
    sink.field("lsize", Value::Size(bp.lsize().0));
    sink.field("psize", Value::Size(bp.psize().0));
    sink.field("asize", Value::Size(bp.asize().0));
    sink.field("logical_birth", bp.logical_birth().0.into());
    sink.field("physical_birth", bp.physical_birth().0.into());
    sink.field("fill", bp.fill().into());
    sink.field("compression", compression_name(bp.compression_id()).into());
    if bp.kind() == BlkptrKind::Normal {
        sink.field("checksum", checksum_name(bp.checksum_id()).into());
        sink.field("dvas", addresses(bp).join(" ").into());
        let [a, b, c, d] = bp.checksum();
        sink.field("checksum_words", format!("{a:x}:{b:x}:{c:x}:{d:x}").into());
    }
    for (is, mark) in marks(bp) {
        if is {
            sink.field(mark, true.into());
        }
    }
}

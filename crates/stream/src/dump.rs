//! A stream as text, as `zstream dump -v` of OpenZFS 2.3 prints it.
//!
//! Source: OpenZFS `zstream_dump.c` (2.3.2), `libnvpair.c` (`nvlist_print`).

use std::fmt::{self, Write};

use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::stream::{CryptFields, DMU_BACKUP_MAGIC, DRR_BYTES, HeaderType, Record};

use crate::reader::Item;

/// The parts of a stream to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// BEGIN, END and sums by kind.
    Ends,
    /// All records (`-v`).
    Records,
}

/// Records of a kind.
#[derive(Debug, Default, Clone, Copy)]
struct Kind {
    records: u64,
    payload_bytes: u64,
}

/// Names of kinds, by record number, in the order of the printed sums.
const KINDS: [(usize, &str); 9] = [
    (0, "BEGIN"),
    (5, "END"),
    (1, "OBJECT"),
    (2, "FREEOBJECTS"),
    (3, "WRITE"),
    (6, "WRITE_BYREF"),
    (8, "WRITE_EMBEDDED"),
    (4, "FREE"),
    (7, "SPILL"),
];

/// Prints a stream, record by record.
#[derive(Debug)]
pub struct Dump {
    detail: Detail,
    kinds: [Kind; 11],
}

impl Dump {
    /// A dump at the start of a stream.
    pub fn new(detail: Detail) -> Dump {
        Dump { detail, kinds: [Kind::default(); 11] }
    }

    /// Prints a record.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn record(&mut self, item: &Item, out: &mut impl Write) -> fmt::Result {
        if let Some(kind) = self.kinds.get_mut(item.record.number() as usize) {
            kind.records += 1;
            kind.payload_bytes += item.payload.len() as u64;
        }
        let is_end = matches!(item.record, Record::Begin(_) | Record::End(_));
        match is_end || self.detail == Detail::Records {
            true => self.print(item, out),
            false => Ok(()),
        }
    }

    /// Prints the sums.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn summary(&self, out: &mut impl Write) -> fmt::Result {
        writeln!(out, "SUMMARY:")?;
        for (number, name) in KINDS {
            let Kind { records, payload_bytes } = self.kinds[number];
            writeln!(out, "\tTotal DRR_{name} records = {records} ({payload_bytes} bytes)")?;
        }
        let records: u64 = self.kinds.iter().map(|kind| kind.records).sum();
        let payload: u64 = self.kinds.iter().map(|kind| kind.payload_bytes).sum();
        let overhead = records * DRR_BYTES as u64;
        let length = payload + overhead;
        writeln!(out, "\tTotal records = {records}")?;
        writeln!(out, "\tTotal payload size = {payload} ({payload:#x})")?;
        writeln!(out, "\tTotal header overhead = {overhead} ({overhead:#x})")?;
        writeln!(out, "\tTotal stream length = {length} ({length:#x})")
    }

    fn print(&self, item: &Item, out: &mut impl Write) -> fmt::Result {
        let len = item.payload.len();
        match &item.record {
            Record::Begin(begin) => {
                let header = if begin.header == HeaderType::Compound { 2 } else { 1 };
                writeln!(out, "BEGIN record\n\thdrtype = {header}\n\tfeatures = {:x}", begin.features.0)?;
                writeln!(out, "\tmagic = {DMU_BACKUP_MAGIC:x}\n\tcreation_time = {:x}", begin.creation_time)?;
                writeln!(out, "\ttype = {}\n\tflags = {:#x}", begin.objset_type, begin.flags.0)?;
                writeln!(out, "\ttoguid = {:x}\n\tfromguid = {:x}", begin.to_guid.0, begin.from_guid.0)?;
                writeln!(out, "\ttoname = {}", String::from_utf8_lossy(&begin.to_name))?;
                writeln!(out, "\tpayloadlen = {}", begin.payload_bytes)?;
                if self.detail == Detail::Records {
                    writeln!(out)?;
                }
                match Nvlist::decode(&item.payload) {
                    _ if item.payload.is_empty() => Ok(()),
                    Ok(list) => print_list(&list, 0, out),
                    Err(error) => writeln!(out, "{error}"),
                }
            }
            Record::End(end) => {
                let [a, b, c, d] = end.checksum;
                writeln!(out, "END checksum = {a:x}/{b:x}/{c:x}/{d:x}")
            }
            Record::Object(record) => writeln!(
                out,
                "OBJECT object = {} type = {} bonustype = {} blksz = {} bonuslen = {} dn_slots = {} \
                 raw_bonuslen = {} flags = {} maxblkid = {} indblkshift = {} nlevels = {} nblkptr = {}",
                record.object,
                record.object_type.0,
                record.bonus_type.0,
                record.block_bytes,
                record.bonus_bytes,
                record.slots,
                record.raw_bonus_bytes,
                record.flags.0,
                record.max_block_id,
                record.indirect_block_shift,
                record.levels,
                record.blkptr_count,
            ),
            Record::FreeObjects(range) => {
                writeln!(out, "FREEOBJECTS firstobj = {} numobjs = {}", range.first, range.count)
            }
            Record::Write(record) => writeln!(
                out,
                "WRITE object = {} type = {} checksum type = {} compression type = {} flags = {} offset = {} \
                 logical_size = {} compressed_size = {} payload_size = {len} props = {:x} {}",
                record.object,
                record.object_type.0,
                record.checksum_id,
                record.compression_id,
                record.flags.0,
                record.offset,
                record.logical_bytes,
                record.compressed_bytes,
                record.key.prop,
                Crypt(&record.crypt),
            ),
            Record::WriteByref(record) => writeln!(
                out,
                "WRITE_BYREF object = {} checksum type = {} props = {:x} offset = {} length = {} \
                 toguid = {:x} refguid = {:x} refobject = {} refoffset = {}",
                record.object,
                record.checksum_id,
                record.key.prop,
                record.offset,
                record.length,
                record.to_guid.0,
                record.ref_guid.0,
                record.ref_object,
                record.ref_offset,
            ),
            Record::Free(range) => writeln!(
                out,
                "FREE object = {} offset = {} length = {}",
                range.object,
                range.offset,
                range.length.cast_signed(),
            ),
            Record::Spill(record) => writeln!(
                out,
                "SPILL block for object = {} length = {} flags = {} compression type = {} \
                 compressed_size = {} payload_size = {len} {}",
                record.object,
                record.length,
                record.flags.0,
                record.compression_id,
                record.compressed_bytes,
                Crypt(&record.crypt),
            ),
            Record::WriteEmbedded(record) => writeln!(
                out,
                "WRITE_EMBEDDED object = {} offset = {} length = {} toguid = {:x} comp = {} etype = {} \
                 lsize = {} psize = {}",
                record.object,
                record.offset,
                record.length,
                record.to_guid.0,
                record.compression_id,
                record.embedded_type,
                record.logical_bytes,
                record.physical_bytes,
            ),
            Record::ObjectRange(range) => writeln!(
                out,
                "OBJECT_RANGE firstobj = {} numslots = {} flags = {} {}",
                range.first,
                range.slots,
                range.flags.0,
                Crypt(&range.crypt),
            ),
            Record::Redact(range) => writeln!(
                out,
                "REDACT object = {} offset = {} length = {}",
                range.object, range.offset, range.length,
            ),
        }
    }
}

/// Salt, IV and MAC.
struct Crypt<'a>(&'a CryptFields);

impl fmt::Display for Crypt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, bytes) in [("salt", &self.0.salt[..]), (" iv", &self.0.iv[..]), (" mac", &self.0.mac[..])]
        {
            write!(f, "{name} = ")?;
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}

/// Prints a list like `nvlist_print` of libnvpair, indented by `depth` tabs.
pub fn print_list(list: &Nvlist, depth: usize, out: &mut impl Write) -> fmt::Result {
    let tabs = "\t".repeat(depth);
    writeln!(out, "{tabs}nvlist version: 0")?;
    for (name, value) in list.iter() {
        match value {
            NvValue::Nvlist(inner) => {
                writeln!(out, "{tabs}\t{name} = (embedded nvlist)")?;
                print_list(inner, depth + 1, out)?;
                writeln!(out, "{tabs}\t(end {name})\n")?;
            }
            NvValue::NvlistArray(lists) => {
                writeln!(out, "{tabs}\t{name} = (array of embedded nvlists)")?;
                for (index, inner) in lists.iter().enumerate() {
                    writeln!(out, "{tabs}\t(start {name}[{index}])")?;
                    print_list(inner, depth + 1, out)?;
                    writeln!(out, "{tabs}\t(end {name}[{index}])\n")?;
                }
            }
            plain => writeln!(out, "{tabs}\t{name} = {}", Plain(plain))?,
        }
    }
    Ok(())
}

/// A value other than a list.
struct Plain<'a>(&'a NvValue);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn each<T: Copy>(f: &mut fmt::Formatter<'_>, items: &[T], text: impl Fn(T) -> String) -> fmt::Result {
            f.write_str(&items.iter().map(|item| text(*item)).collect::<Vec<_>>().join(" "))
        }
        match self.0 {
            NvValue::Boolean => f.write_str("1"),
            NvValue::BooleanValue(value) => write!(f, "{}", u8::from(*value)),
            NvValue::Byte(value) | NvValue::Uint8(value) => write!(f, "{value:#x}"),
            NvValue::Int8(value) => write!(f, "{value}"),
            NvValue::Int16(value) => write!(f, "{value}"),
            NvValue::Uint16(value) => write!(f, "{value:#x}"),
            NvValue::Int32(value) => write!(f, "{value}"),
            NvValue::Uint32(value) => write!(f, "{value:#x}"),
            NvValue::Int64(value) => write!(f, "{value}"),
            NvValue::Uint64(value) => write!(f, "{value:#x}"),
            NvValue::Hrtime(value) => write!(f, "{value:#x}"),
            NvValue::Double(value) => write!(f, "{value}"),
            NvValue::String(text) => f.write_str(&String::from_utf8_lossy(text)),
            NvValue::ByteArray(items) | NvValue::Uint8Array(items) => {
                each(f, items, |item| format!("{item:#x}"))
            }
            NvValue::Uint16Array(items) => each(f, items, |item| format!("{item:#x}")),
            NvValue::Uint32Array(items) => each(f, items, |item| format!("{item:#x}")),
            NvValue::Uint64Array(items) => each(f, items, |item| format!("{item:#x}")),
            NvValue::Int8Array(items) => each(f, items, |item| item.to_string()),
            NvValue::Int16Array(items) => each(f, items, |item| item.to_string()),
            NvValue::Int32Array(items) => each(f, items, |item| item.to_string()),
            NvValue::Int64Array(items) => each(f, items, |item| item.to_string()),
            NvValue::BooleanArray(items) => each(f, items, |item| u8::from(item).to_string()),
            NvValue::StringArray(items) => {
                let items: Vec<_> = items.iter().map(|item| String::from_utf8_lossy(item)).collect();
                f.write_str(&items.join(" "))
            }
            NvValue::Nvlist(_) | NvValue::NvlistArray(_) => Ok(()),
        }
    }
}

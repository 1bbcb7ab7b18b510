//! A stream as text, as `zstream dump` of OpenZFS 2.3 prints it.
//!
//! Idea: a dump shows damaged streams too, so it reads records itself: a wrong sum or an early end is shown,
//! followed by the totals so far. zstream takes the sums of streams of the other byte order for damaged and
//! does not find the defect of a stream cut short; this dump does.
//!
//! Memory: one payload.
//!
//! Source: OpenZFS `zstream_dump.c` (2.3.2).

mod list;

use std::fmt::{self, Write};

use cenote_format::bytes::Endian;
use cenote_format::nvlist::Nvlist;
use cenote_format::stream::{
    CryptFields, DMU_BACKUP_MAGIC, DRR_BYTES, DRR_CHECKSUM_AT, HeaderType, Record, checksum_of,
};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::error::{Result, StreamError};
use crate::sum::Sum;

pub use list::{print_brief, print_list};

/// The parts of a stream to print, each including those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// BEGIN, END and sums by kind.
    Ends,
    /// All records (`-v`).
    Records,
    /// Their checksums (`-vv`).
    Sums,
    /// Their payloads (`-d`).
    Data,
}

/// Bytes of a payload on a line, and in a group.
const LINE_BYTES: usize = 16;
const GROUP_BYTES: usize = 4;
/// Text gathered before it is given away.
const GIVEN_CHARS: usize = 64 << 10;

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
    is_checked: bool,
    kinds: [Kind; 11],
    /// Bytes read, without those of a field cut short.
    stream_bytes: u64,
    /// The sum up to now, and up to the end of the last record.
    sum: Sum,
    before: [u64; 4],
}

impl Dump {
    /// A dump at the start of a stream. If not checked (`-C`), wrong sums are not reported.
    pub fn new(detail: Detail, is_checked: bool) -> Dump {
        let sum = Sum::new(Endian::NATIVE);
        Dump { detail, is_checked, kinds: [Kind::default(); 11], stream_bytes: 0, sum, before: [0; 4] }
    }

    /// Prints a stream and its totals to `give`. Returns the stream's defect, if it has one.
    ///
    /// # Errors
    /// No stream; those of `give`.
    pub async fn read<E: From<StreamError>>(
        &mut self,
        source: &mut (dyn AsyncRead + Send + Unpin),
        mut give: impl FnMut(String) -> Result<(), E>,
    ) -> Result<Option<StreamError>, E> {
        let (mut text, mut endian, mut defect) = (String::new(), None, None);
        loop {
            match self.next(source, &mut endian, &mut text).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error @ StreamError::BadMagic) => return Err(error.into()),
                Err(error) => {
                    defect = Some(error);
                    break;
                }
            }
            if text.len() > GIVEN_CHARS {
                give(std::mem::take(&mut text))?;
            }
        }
        // Writing to a String can't fail.
        self.summary(&mut text).ok();
        give(text)?;
        Ok(defect)
    }

    /// Prints the next record; false at the end.
    async fn next(
        &mut self,
        source: &mut (dyn AsyncRead + Send + Unpin),
        endian: &mut Option<Endian>,
        text: &mut String,
    ) -> Result<bool> {
        let mut raw = [0; DRR_BYTES];
        let read = fill(source, &mut raw).await?;
        if read < DRR_BYTES {
            self.stream_bytes += if read < DRR_CHECKSUM_AT { 0 } else { DRR_CHECKSUM_AT as u64 };
            return if read == 0 { Ok(false) } else { Err(StreamError::Incomplete) };
        }
        self.stream_bytes += read as u64;
        let endian = match *endian {
            Some(endian) => endian,
            None => {
                let found = Record::endian_of(&raw).ok_or(StreamError::BadMagic)?;
                self.sum = Sum::new(found);
                *endian.insert(found)
            }
        };
        self.sum.add(&raw[..DRR_CHECKSUM_AT]);
        let (sum, stored) = (self.sum.words(), checksum_of(&raw, endian));
        self.sum.add(&raw[DRR_CHECKSUM_AT..]);
        if self.is_checked && Record::endian_of(&raw).is_none() && stored != [0; 4] && stored != sum {
            let wrong = writeln!(text, "Incorrect checksum in record header.\n{}", Expected(sum));
            return wrong.map_or(Ok(false), |()| Err(StreamError::Checksum));
        }
        let record = Record::decode(&raw, endian)?;
        let len = record.payload_bytes();
        let mut payload = Vec::new();
        let read = source.take(len).read_to_end(&mut payload).await.map_err(StreamError::Read)?;
        if let Some(kind) = self.kinds.get_mut(record.number() as usize) {
            kind.records += 1;
            kind.payload_bytes += len;
        }
        let is_whole = read as u64 == len;
        if is_whole {
            self.stream_bytes += len;
            self.sum.add(&payload);
        }
        // Writing to a String can't fail.
        self.record(&record, &payload, stored, text).ok();
        let is_wrong = matches!(&record, Record::End(end) if self.is_checked && end.checksum != self.before);
        if let Record::End(_) = record {
            self.sum = Sum::new(endian);
        }
        self.before = self.sum.words();
        match (is_whole, is_wrong) {
            (false, _) => Err(StreamError::Incomplete),
            (_, true) => Err(StreamError::Checksum),
            _ => Ok(true),
        }
    }

    fn record(&self, record: &Record, payload: &[u8], stored: [u64; 4], out: &mut impl Write) -> fmt::Result {
        if let Record::End(end) = record
            && self.is_checked
            && end.checksum != self.before
        {
            writeln!(out, "Expected checksum differs from checksum in stream.\n{}", Expected(self.before))?;
        }
        let is_end = matches!(record, Record::Begin(_) | Record::End(_));
        if is_end || self.detail >= Detail::Records {
            self.print(record, payload, out)?;
        }
        if self.detail >= Detail::Data && !is_end {
            print_block(payload, out)?;
        }
        if self.detail >= Detail::Sums && !matches!(record, Record::Begin(_)) {
            let [a, b, c, d] = stored;
            writeln!(out, "    checksum = {a:x}/{b:x}/{c:x}/{d:x}")?;
        }
        Ok(())
    }

    fn summary(&self, out: &mut impl Write) -> fmt::Result {
        writeln!(out, "SUMMARY:")?;
        for (number, name) in KINDS {
            let Kind { records, payload_bytes } = self.kinds[number];
            writeln!(out, "\tTotal DRR_{name} records = {records} ({payload_bytes} bytes)")?;
        }
        let records: u64 = self.kinds.iter().map(|kind| kind.records).sum();
        let payload: u64 = self.kinds.iter().map(|kind| kind.payload_bytes).sum();
        let overhead = records * DRR_BYTES as u64;
        let length = self.stream_bytes;
        writeln!(out, "\tTotal records = {records}")?;
        writeln!(out, "\tTotal payload size = {payload} ({payload:#x})")?;
        writeln!(out, "\tTotal header overhead = {overhead} ({overhead:#x})")?;
        writeln!(out, "\tTotal stream length = {length} ({length:#x})")
    }

    fn print(&self, record: &Record, payload: &[u8], out: &mut impl Write) -> fmt::Result {
        let len = record.payload_bytes();
        match record {
            Record::Begin(begin) => {
                let header = if begin.header == HeaderType::Compound { 2 } else { 1 };
                writeln!(out, "BEGIN record\n\thdrtype = {header}\n\tfeatures = {:x}", begin.features.0)?;
                writeln!(out, "\tmagic = {DMU_BACKUP_MAGIC:x}\n\tcreation_time = {:x}", begin.creation_time)?;
                writeln!(out, "\ttype = {}\n\tflags = {:#x}", begin.objset_type, begin.flags.0)?;
                writeln!(out, "\ttoguid = {:x}\n\tfromguid = {:x}", begin.to_guid.0, begin.from_guid.0)?;
                writeln!(out, "\ttoname = {}", String::from_utf8_lossy(&begin.to_name))?;
                writeln!(out, "\tpayloadlen = {}", begin.payload_bytes)?;
                if self.detail >= Detail::Records {
                    writeln!(out)?;
                }
                match Nvlist::decode(payload) {
                    _ if payload.is_empty() => Ok(()),
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

/// The sum that a record should have.
struct Expected([u64; 4]);

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Expected([a, b, c, d]) = self;
        write!(f, "Expected checksum = {a:x}/{b:x}/{c:x}/{d:x}")
    }
}

/// Prints a payload in hexadecimal and as text.
fn print_block(payload: &[u8], out: &mut impl Write) -> fmt::Result {
    const TEXT_AT: usize = LINE_BYTES * 3 + LINE_BYTES / GROUP_BYTES + 2;
    for line in payload.chunks(LINE_BYTES) {
        let (mut hex, mut text) = (String::new(), String::new());
        for group in line.chunks(GROUP_BYTES) {
            hex.push(' ');
            group.iter().try_for_each(|byte| write!(hex, "{byte:02x} "))?;
            let shown = |byte: &u8| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' };
            text.extend((!text.is_empty()).then_some(' ').into_iter().chain(group.iter().map(shown)));
        }
        writeln!(out, "{hex:TEXT_AT$}{text}")?;
    }
    Ok(())
}

/// Reads until the buffer is full or the source ends.
async fn fill(source: &mut (dyn AsyncRead + Send + Unpin), buffer: &mut [u8]) -> Result<usize> {
    let mut read = 0;
    while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match source.read(rest).await.map_err(StreamError::Read)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

//! Marks in a stream, and the records between two of them.
//!
//! Invariants: objects and blocks ascend; [`Marker::note`] refuses a stream in which they don't.

use std::ops::Range;

use bytes::Bytes;
use cenote_format::bytes::Endian;
use cenote_format::stream::{DRR_BYTES, ObjectRecord, Record};
use cenote_format::units::ObjectId;
use cenote_stream::{Item, StreamFile};

use super::{Result, damaged};

/// Most marks. If there are more, every other one goes.
pub(super) const MAX_MARKS: usize = 1 << 16;
/// Bytes between marks of a stream with few.
const MARK_BYTES: u64 = 256 << 10;
const HEADERS_BYTES: usize = 32 << 10;

/// A block: its object and offset.
type Key = (ObjectId, u64);

/// A place in a stream, with the last object and block before it.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: u64,
    object: ObjectId,
    block: Key,
}

/// Makes an index.
pub(super) struct Marker {
    marks: Vec<Mark>,
    every_bytes: u64,
    now: Mark,
}

/// Finds segments, the records between marks.
pub(super) struct Index {
    marks: Vec<Mark>,
    end: u64,
}

impl Marker {
    /// At the first record after BEGIN.
    pub(super) fn new(at: u64) -> Marker {
        let now = Mark { at, object: ObjectId(0), block: (ObjectId(0), 0) };
        Marker { marks: vec![now], every_bytes: MARK_BYTES, now }
    }

    pub(super) fn note(&mut self, item: &Item) -> Result<()> {
        match &item.record {
            Record::Object(record) => {
                if record.object <= self.now.object {
                    return Err(damaged(record.object, "comes after one that should follow it"));
                }
                self.now.object = record.object;
            }
            Record::Write(record) => self.block((record.object, record.offset))?,
            Record::WriteEmbedded(record) => self.block((record.object, record.offset))?,
            _ => {}
        }
        self.now.at = item.end_bytes;
        if self.marks.last().is_some_and(|last| self.now.at >= last.at + self.every_bytes) {
            self.marks.push(self.now);
        }
        if self.marks.len() > MAX_MARKS {
            let mut number = 0;
            self.marks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every_bytes *= 2;
        }
        Ok(())
    }

    fn block(&mut self, block: Key) -> Result<()> {
        if block <= self.now.block {
            return Err(damaged(block.0, "a block comes after one that should follow it"));
        }
        self.now.block = block;
        Ok(())
    }

    pub(super) fn finish(self) -> Index {
        Index { end: self.now.at, marks: self.marks }
    }
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }

    /// The segment with an object's record, if the stream has it.
    pub(super) fn segment_of_object(&self, object: ObjectId) -> usize {
        self.marks.partition_point(|mark| mark.object < object).saturating_sub(1)
    }

    /// The first segment with a block at or after this one.
    pub(super) fn segment_of_block(&self, block: Key) -> usize {
        self.marks.partition_point(|mark| mark.block < block).saturating_sub(1)
    }

    /// Whether all of an object's records come before a segment.
    pub(super) fn is_beyond(&self, number: usize, object: ObjectId) -> bool {
        self.marks.get(number).is_none_or(|mark| mark.object > object && mark.block.0 > object)
    }

    pub(super) fn range(&self, number: usize) -> Range<u64> {
        let at = |number: usize| self.marks.get(number).map_or(self.end, |mark| mark.at);
        at(number)..at(number + 1)
    }
}

/// The records between two marks.
pub(super) struct Segment {
    objects: Vec<(ObjectRecord, Bytes)>,
    /// WRITE and WRITE_EMBEDDED records, with their places.
    blocks: Vec<(u64, Record)>,
    spills: Vec<(u64, Record)>,
}

impl Segment {
    /// Reads the records at this place; of payloads, only bonuses.
    pub(super) fn read(file: &StreamFile, endian: Endian, range: Range<u64>) -> Result<Segment> {
        let mut segment = Segment { objects: Vec::new(), blocks: Vec::new(), spills: Vec::new() };
        let mut headers = Headers { file, range: range.clone(), buffer: Vec::new(), at: 0 };
        let mut at = range.start;
        while at < range.end {
            let record =
                Record::decode(headers.get(at)?, endian).map_err(cenote_stream::StreamError::from)?;
            let next = at + DRR_BYTES as u64 + record.payload_bytes();
            match record {
                Record::Object(record) => {
                    let payload = file.payload(at, &Record::Object(record.clone()))?;
                    let bonus = payload.slice(..(record.bonus_bytes as usize).min(payload.len()));
                    segment.objects.push((record, bonus));
                }
                Record::WriteEmbedded(ref write) if write.is_spill() => segment.spills.push((at, record)),
                Record::Write(_) | Record::WriteEmbedded(_) => segment.blocks.push((at, record)),
                Record::Spill(_) => segment.spills.push((at, record)),
                _ => {}
            }
            at = next;
        }
        Ok(segment)
    }

    pub(super) fn object(&self, id: ObjectId) -> Option<(ObjectRecord, Bytes)> {
        let at = self.objects.binary_search_by_key(&id, |(record, _)| record.object).ok()?;
        self.objects.get(at).cloned()
    }

    pub(super) fn spill(&self, id: ObjectId) -> Option<(u64, Record)> {
        let is_own = |(_, record): &&(u64, Record)| match record {
            Record::Spill(spill) => spill.object == id,
            Record::WriteEmbedded(write) => write.object == id,
            _ => false,
        };
        self.spills.iter().find(is_own).cloned()
    }

    /// The first block at or after this one.
    pub(super) fn block(&self, key: Key) -> Option<&(u64, Record)> {
        let at = self.blocks.partition_point(|(_, record)| place(record) < key);
        self.blocks.get(at)
    }
}

/// A block record's object and offset.
pub(super) fn place(record: &Record) -> Key {
    match record {
        Record::Write(record) => (record.object, record.offset),
        Record::WriteEmbedded(record) => (record.object, record.offset),
        _ => (ObjectId(0), 0),
    }
}

/// Reads records' headers, many at a time where they are close together.
struct Headers<'a> {
    file: &'a StreamFile,
    range: Range<u64>,
    buffer: Vec<u8>,
    at: u64,
}

impl Headers<'_> {
    fn get(&mut self, at: u64) -> Result<&[u8; DRR_BYTES]> {
        let is_there = |headers: &Self| {
            at >= headers.at && at + DRR_BYTES as u64 <= headers.at + headers.buffer.len() as u64
        };
        if !is_there(self) {
            let len = (self.range.end - at).clamp(DRR_BYTES as u64, HEADERS_BYTES as u64);
            self.buffer.resize(usize::try_from(len).unwrap_or(HEADERS_BYTES), 0);
            self.file.read_exact(at, &mut self.buffer)?;
            self.at = at;
        }
        let start = usize::try_from(at - self.at).unwrap_or(usize::MAX);
        let header = self.buffer.get(start..).and_then(|rest| rest.first_chunk());
        header.ok_or(cenote_stream::StreamError::Incomplete.into())
    }
}

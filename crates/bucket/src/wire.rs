//! The objects of a disk, as bytes.
//!
//! ```text
//!   device                     text: format, GUID, size
//!   commit/NUMBER              magic, length, CRC-32C, header, data of a small commit
//!   seg/EPOCH-TOKEN/COUNTER    data, table of extents with CRC-32Cs, length of the table, CRC-32C, magic
//!   map/EPOCH-TOKEN/NUMBER/N   part N of: magic, segments, commits, extents, CRC-32C
//! ```
//!
//! Headers, tables and maps are runs of LEB128 numbers. Numbers in names are hexadecimal with leading zeros,
//! so the order of names is that of numbers. EPOCH-TOKEN names a writer: one opening of the disk for writing.
//!
//! Untrusted bytes: a decoder allocates no more than its input justifies, and [`crate::log`] checks ranges
//! before it uses them.

use bytes::Bytes;

use crate::map::{Extent, Map, SECTOR_BYTES, Slot};

const COMMIT_MAGIC: u64 = u64::from_be_bytes(*b"CenoteC1");
const TABLE_MAGIC: u64 = u64::from_be_bytes(*b"CenoteS1");
const MAP_MAGIC: u64 = u64::from_be_bytes(*b"CenoteM1");
/// Magic, length, CRC.
const COMMIT_FRAME_BYTES: usize = 16;
/// Length, CRC, magic.
const TABLE_FRAME_BYTES: usize = 16;
/// First line of `device`.
const FORMAT: &str = "cenote disk 1";

/// Name of the object that makes a prefix a disk.
pub const DEVICE: &str = "device";
/// Prefix of commits.
pub const COMMITS: &str = "commit/";
/// Prefix of segments.
pub const SEGMENTS: &str = "seg/";
/// Prefix of checkpoints of the map.
pub const MAPS: &str = "map/";

/// One opening of a disk for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Writer {
    /// Grows with each takeover.
    pub epoch: u32,
    /// Tells openings of the same epoch apart.
    pub token: u64,
}

/// The object that a segment is stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// An object of its own.
    Segment {
        /// Its writer.
        writer: Writer,
        /// Its number among the writer's.
        counter: u64,
    },
    /// The end of a commit.
    Commit(u64),
}

/// The properties of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Random.
    pub guid: u64,
    /// Size.
    pub size_bytes: u64,
}

/// A segment of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// Number among the writer's segments; `None`: its data follow the header.
    pub counter: Option<u64>,
    /// Data.
    pub data_bytes: u32,
    /// Size of the object; 0 for a segment within the commit.
    pub object_bytes: u32,
    /// CRC-32C of the data of a segment within the commit.
    pub crc: u32,
}

/// A change of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A write.
    Write {
        /// First sector on the disk.
        start: u64,
        /// Length.
        sectors: u32,
        /// Position in the commit's list of segments.
        segment: u32,
        /// First sector in the segment's data.
        at: u32,
    },
    /// A discard.
    Hole {
        /// First sector.
        start: u64,
        /// Length.
        sectors: u64,
    },
}

/// Where a checkpoint of the map is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointRef {
    /// The last commit it includes.
    pub number: u64,
    /// Its writer.
    pub writer: Writer,
    /// Number of objects.
    pub parts: u32,
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its number.
    pub number: u64,
    /// Its writer.
    pub writer: Writer,
    /// Begins an epoch; has no changes.
    pub is_takeover: bool,
    /// The newest checkpoint.
    pub checkpoint: Option<CheckpointRef>,
    /// Segments with the data of its changes.
    pub segments: Vec<Sealed>,
    /// Changes, in order.
    pub changes: Vec<Change>,
}

/// An entry of a segment's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// First sector on the disk.
    pub start: u64,
    /// Length.
    pub sectors: u32,
    /// First sector in the data.
    pub at: u32,
    /// CRC-32C of the bytes; `None` in commits, which have one for all.
    pub crc: Option<u32>,
}

/// A segment, as a checkpoint lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Its object.
    pub name: Name,
    /// Where its data begin in the object.
    pub base_bytes: u32,
    /// Data.
    pub data_bytes: u32,
    /// Size of the object.
    pub object_bytes: u32,
}

/// A checkpoint of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Segments, which extents name by position.
    pub segments: Vec<Listed>,
    /// Commits with changes that still exist.
    pub commits: Vec<u64>,
    /// The map; slots are positions in `segments`.
    pub map: Map,
}

impl Writer {
    fn key(&self) -> String {
        format!("{:08x}-{:016x}", self.epoch, self.token)
    }

    /// The writer in a name after its prefix.
    pub fn of_key(key: &str) -> Option<Writer> {
        let (writer, _) = key.split_once('/')?.1.split_once('/')?;
        let (epoch, token) = writer.split_once('-')?;
        Some(Writer {
            epoch: u32::from_str_radix(epoch, 16).ok()?,
            token: u64::from_str_radix(token, 16).ok()?,
        })
    }
}

impl Name {
    /// The object's name.
    pub fn key(&self) -> String {
        match self {
            Name::Segment { writer, counter } => format!("{SEGMENTS}{}/{counter:016x}", writer.key()),
            Name::Commit(number) => commit_key(*number),
        }
    }
}

impl CheckpointRef {
    /// Prefix of its parts.
    pub fn prefix(&self) -> String {
        format!("{MAPS}{}/{:016x}/", self.writer.key(), self.number)
    }

    /// Name of a part.
    pub fn key(&self, part: u32) -> String {
        format!("{}{part:08x}", self.prefix())
    }
}

/// Name of a commit.
pub fn commit_key(number: u64) -> String {
    format!("{COMMITS}{number:016x}")
}

/// Number of a commit, by its name.
pub fn commit_number(key: &str) -> Option<u64> {
    let digits = key.strip_prefix(COMMITS)?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
}

impl Identity {
    /// The object `device`.
    pub fn encode(&self) -> Bytes {
        format!("{FORMAT}\nguid {:016x}\nbytes {}\n", self.guid, self.size_bytes).into()
    }

    /// `None`: it is none of a disk, or of a later format.
    pub fn decode(bytes: &[u8]) -> Option<Identity> {
        let mut lines = std::str::from_utf8(bytes).ok()?.lines();
        if lines.next() != Some(FORMAT) {
            return None;
        }
        let guid = u64::from_str_radix(lines.next()?.strip_prefix("guid ")?, 16).ok()?;
        let size_bytes = lines.next()?.strip_prefix("bytes ")?.parse().ok()?;
        Some(Identity { guid, size_bytes })
    }
}

impl Commit {
    /// Its bytes, before the data of a segment within it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 16 * self.segments.len() + 8 * self.changes.len());
        out.resize(COMMIT_FRAME_BYTES, 0);
        put(&mut out, self.number);
        put_writer(&mut out, &self.writer);
        put(&mut out, u64::from(self.is_takeover));
        put(&mut out, u64::from(self.checkpoint.is_some()));
        if let Some(checkpoint) = &self.checkpoint {
            put(&mut out, checkpoint.number);
            put_writer(&mut out, &checkpoint.writer);
            put(&mut out, checkpoint.parts.into());
        }
        put(&mut out, self.segments.len() as u64);
        for segment in &self.segments {
            put(&mut out, segment.counter.map_or(0, |counter| counter + 1));
            put(&mut out, segment.data_bytes.into());
            put(&mut out, segment.object_bytes.into());
            put(&mut out, segment.crc.into());
        }
        put(&mut out, self.changes.len() as u64);
        let mut after = 0;
        for change in &self.changes {
            match *change {
                Change::Hole { start, sectors } => {
                    put(&mut out, 0);
                    put_signed(&mut out, start, after);
                    put(&mut out, sectors);
                    after = start.wrapping_add(sectors);
                }
                Change::Write { start, sectors, segment, at } => {
                    put(&mut out, u64::from(segment) + 1);
                    put_signed(&mut out, start, after);
                    put(&mut out, sectors.into());
                    put(&mut out, at.into());
                    after = start.wrapping_add(sectors.into());
                }
            }
        }
        let header = &out[COMMIT_FRAME_BYTES..];
        let (len, crc) = (header.len() as u32, crc32c::crc32c(header));
        out[..8].copy_from_slice(&COMMIT_MAGIC.to_be_bytes());
        out[8..12].copy_from_slice(&len.to_be_bytes());
        out[12..16].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// A commit, and where the data within it begin. `None`: damaged.
    pub fn decode(bytes: &[u8]) -> Option<(Commit, usize)> {
        let frame = bytes.get(..COMMIT_FRAME_BYTES)?;
        let len = u32::from_be_bytes(frame[8..12].try_into().ok()?) as usize;
        let header = bytes.get(COMMIT_FRAME_BYTES..COMMIT_FRAME_BYTES.checked_add(len)?)?;
        if frame[..8] != COMMIT_MAGIC.to_be_bytes() || frame[12..] != crc32c::crc32c(header).to_be_bytes() {
            return None;
        }
        let mut input = Input(header);
        let (number, writer) = (input.take()?, input.writer()?);
        let is_takeover = input.take()? != 0;
        let checkpoint = match input.take()? {
            0 => None,
            _ => {
                Some(CheckpointRef { number: input.take()?, writer: input.writer()?, parts: input.small()? })
            }
        };
        let count = input.count(4)?;
        let mut segments = Vec::with_capacity(count);
        for _ in 0..count {
            segments.push(Sealed {
                counter: input.take()?.checked_sub(1),
                data_bytes: input.small()?,
                object_bytes: input.small()?,
                crc: input.small()?,
            });
        }
        let count = input.count(3)?;
        let mut changes = Vec::with_capacity(count);
        let mut after = 0_u64;
        for _ in 0..count {
            let kind = input.take()?;
            let start = input.signed(after)?;
            let change = match kind.checked_sub(1) {
                None => Change::Hole { start, sectors: input.take()? },
                Some(segment) => {
                    let (sectors, at) = (input.small()?, input.small()?);
                    Change::Write { start, sectors, segment: u32::try_from(segment).ok()?, at }
                }
            };
            after = start.wrapping_add(match change {
                Change::Hole { sectors, .. } => sectors,
                Change::Write { sectors, .. } => sectors.into(),
            });
            changes.push(change);
        }
        let commit = Commit { number, writer, is_takeover, checkpoint, segments, changes };
        Some((commit, COMMIT_FRAME_BYTES + len))
    }
}

/// The table after a segment's data.
pub fn encode_table(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + 12 * entries.len());
    put(&mut out, entries.len() as u64);
    for entry in entries {
        put(&mut out, entry.start);
        put(&mut out, entry.sectors.into());
        put(&mut out, entry.at.into());
        // Of fixed length: the object's size must be known before its data are read.
        out.extend(entry.crc.unwrap_or_default().to_be_bytes());
    }
    let (len, crc) = (out.len() as u32, crc32c::crc32c(&out));
    out.extend(len.to_be_bytes());
    out.extend(crc.to_be_bytes());
    out.extend(TABLE_MAGIC.to_be_bytes());
    out
}

/// The table of a whole segment. `None`: damaged.
pub fn decode_table(object: &[u8]) -> Option<Vec<Entry>> {
    let (rest, frame) = object.split_at_checked(object.len().checked_sub(TABLE_FRAME_BYTES)?)?;
    let len = u32::from_be_bytes(frame[..4].try_into().ok()?) as usize;
    let table = &rest[rest.len().checked_sub(len)?..];
    if frame[8..] != TABLE_MAGIC.to_be_bytes() || frame[4..8] != crc32c::crc32c(table).to_be_bytes() {
        return None;
    }
    let mut input = Input(table);
    let count = input.count(7)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let (start, sectors, at) = (input.take()?, input.small()?, input.small()?);
        entries.push(Entry { start, sectors, at, crc: Some(input.fixed()?) });
    }
    Some(entries)
}

impl Checkpoint {
    /// Encodes a map with its segments, of which only those in use are listed.
    pub fn encode(map: &Map, segments: &[(Slot, Listed)], commits: &[u64]) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 24 * segments.len() + 9 * map.len());
        out.extend(MAP_MAGIC.to_be_bytes());
        put(&mut out, segments.len() as u64);
        for (_, listed) in segments {
            match listed.name {
                Name::Segment { writer, counter } => {
                    put(&mut out, 0);
                    put_writer(&mut out, &writer);
                    put(&mut out, counter);
                }
                Name::Commit(number) => {
                    put(&mut out, 1);
                    put(&mut out, number);
                }
            }
            put(&mut out, listed.base_bytes.into());
            put(&mut out, listed.data_bytes.into());
            put(&mut out, listed.object_bytes.into());
        }
        put(&mut out, commits.len() as u64);
        let mut last = 0;
        for number in commits {
            put_signed(&mut out, *number, last);
            last = *number;
        }
        put(&mut out, map.len() as u64);
        // Segments are in the order of their slots.
        let position =
            |slot: Slot| segments.binary_search_by_key(&slot, |(slot, _)| *slot).unwrap_or_default();
        let (mut after, mut segment, mut at) = (0, (Slot::MAX, 0_u64), 0_u64);
        for (start, extent) in map.iter() {
            put(&mut out, start - after);
            put(&mut out, extent.sectors.into());
            let now = match segment.0 == extent.slot {
                true => segment.1,
                false => position(extent.slot) as u64,
            };
            put_signed(&mut out, now, segment.1);
            put_signed(&mut out, extent.at.into(), at);
            after = start + u64::from(extent.sectors);
            (segment, at) = ((extent.slot, now), u64::from(extent.at) + u64::from(extent.sectors));
        }
        let crc = crc32c::crc32c(&out);
        out.extend(crc.to_be_bytes());
        out
    }

    /// `None`: damaged.
    pub fn decode(bytes: &[u8]) -> Option<Checkpoint> {
        let (body, crc) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        let numbers = body.strip_prefix(&MAP_MAGIC.to_be_bytes())?;
        if crc != crc32c::crc32c(body).to_be_bytes() {
            return None;
        }
        let mut input = Input(numbers);
        let count = input.count(5)?;
        let mut segments = Vec::with_capacity(count);
        for _ in 0..count {
            let name = match input.take()? {
                0 => Name::Segment { writer: input.writer()?, counter: input.take()? },
                _ => Name::Commit(input.take()?),
            };
            let (base_bytes, data_bytes) = (input.small()?, input.small()?);
            segments.push(Listed { name, base_bytes, data_bytes, object_bytes: input.small()? });
        }
        let count = input.count(1)?;
        let mut commits = Vec::with_capacity(count);
        let mut last = 0;
        for _ in 0..count {
            last = input.signed(last)?;
            commits.push(last);
        }
        let count = input.count(4)?;
        let mut extents = Vec::with_capacity(count);
        let (mut after, mut segment, mut at) = (0_u64, 0_u64, 0_u64);
        for _ in 0..count {
            let start = after.checked_add(input.take()?)?;
            let sectors = input.small()?;
            segment = input.signed(segment)?;
            at = input.signed(at)?;
            let listed = segments.get(usize::try_from(segment).ok()?)?;
            let end = at.checked_add(sectors.into())?;
            if end > u64::from(listed.data_bytes) / SECTOR_BYTES {
                return None;
            }
            let (slot, first) = (u32::try_from(segment).ok()?, u32::try_from(at).ok()?);
            extents.push((start, Extent { sectors, slot, at: first }));
            (after, at) = (start.checked_add(sectors.into())?, end);
        }
        Some(Checkpoint { segments, commits, map: Map::of(extents)? })
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A number as its difference from an expected one.
fn put_signed(out: &mut Vec<u8>, number: u64, expected: u64) {
    let difference = number.wrapping_sub(expected) as i64;
    put(out, ((difference << 1) ^ (difference >> 63)) as u64);
}

fn put_writer(out: &mut Vec<u8>, writer: &Writer) {
    put(out, writer.epoch.into());
    put(out, writer.token);
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return None;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        self.take()?.try_into().ok()
    }

    fn fixed(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    fn signed(&mut self, expected: u64) -> Option<u64> {
        let coded = self.take()?;
        Some(expected.wrapping_add((coded >> 1) ^ (coded & 1).wrapping_neg()))
    }

    fn writer(&mut self) -> Option<Writer> {
        Some(Writer { epoch: self.small()?, token: self.take()? })
    }

    /// A number of items with at least this many bytes each.
    fn count(&mut self, item_bytes: usize) -> Option<usize> {
        let count = usize::try_from(self.take()?).ok()?;
        (count.checked_mul(item_bytes)? <= self.0.len()).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use cenote_runtime::Rng;

    use super::*;

    const WRITER: Writer = Writer { epoch: 7, token: u64::MAX - 5 };

    fn commit() -> Commit {
        let sealed = |counter, data_bytes| Sealed { counter, data_bytes, object_bytes: 9, crc: u32::MAX };
        Commit {
            number: 0x1234_5678_9abc,
            writer: WRITER,
            is_takeover: false,
            checkpoint: Some(CheckpointRef { number: 3, writer: WRITER, parts: 2 }),
            segments: vec![sealed(Some(0), 1 << 24), sealed(Some(u64::MAX - 1), 512), sealed(None, 4096)],
            changes: vec![
                Change::Write { start: 1 << 50, sectors: 32768, segment: 0, at: 0 },
                Change::Hole { start: 0, sectors: 1 << 60 },
                Change::Write { start: 17, sectors: 1, segment: 2, at: 7 },
            ],
        }
    }

    #[test]
    fn objects_are_decoded_as_they_were_encoded() {
        let identity = Identity { guid: 5, size_bytes: 1 << 40 };
        assert_eq!(Identity::decode(&identity.encode()), Some(identity));
        let bytes = commit().encode();
        assert_eq!(Commit::decode(&bytes), Some((commit(), bytes.len())));
        let entry = |start, at| Entry { start, sectors: 256, at, crc: Some(0xdead_beef) };
        let entries = vec![entry(0, 0), entry(1 << 40, 256)];
        let object = [vec![1; 512 << 9], encode_table(&entries)].concat();
        assert_eq!(decode_table(&object), Some(entries));
        let extents = vec![
            (5, Extent { sectors: 10, slot: 3, at: 4 }),
            (15, Extent { sectors: 10, slot: 9, at: 0 }),
            (1 << 40, Extent { sectors: 1, slot: 3, at: 14 }),
        ];
        let map = Map::of(extents).unwrap();
        let listed = |name| Listed { name, base_bytes: 0, data_bytes: 1 << 20, object_bytes: 1 << 21 };
        let segments =
            [(3, listed(Name::Segment { writer: WRITER, counter: 1 })), (9, listed(Name::Commit(77)))];
        let bytes = Checkpoint::encode(&map, &segments, &[3, 77, 78]);
        let decoded = Checkpoint::decode(&bytes).unwrap();
        assert_eq!(decoded.commits, [3, 77, 78]);
        assert_eq!(decoded.segments, segments.map(|(_, listed)| listed));
        let slots: Vec<_> = decoded.map.iter().map(|(start, extent)| (start, extent.slot)).collect();
        assert_eq!(slots, [(5, 0), (15, 1), (1 << 40, 0)]);
    }

    #[test]
    fn names_are_in_the_order_of_numbers() {
        assert!(commit_key(0xff) < commit_key(0x100));
        assert_eq!(commit_number(&commit_key(0x1ff)), Some(0x1ff));
        assert_eq!(commit_number("commit/1"), None);
        let key = Name::Segment { writer: WRITER, counter: 4 }.key();
        assert_eq!(Writer::of_key(&key), Some(WRITER));
        let checkpoint = CheckpointRef { number: 1, writer: WRITER, parts: 1 };
        assert_eq!(Writer::of_key(&checkpoint.key(0)), Some(WRITER));
    }

    #[test]
    fn damaged_objects_are_refused_without_a_panic() {
        let map = Map::of(vec![(5, Extent { sectors: 10, slot: 0, at: 4 })]).unwrap();
        let listed = Listed { name: Name::Commit(1), base_bytes: 0, data_bytes: 1 << 20, object_bytes: 9 };
        let whole = [
            commit().encode(),
            encode_table(&[Entry { start: 0, sectors: 1, at: 0, crc: Some(1) }]),
            Checkpoint::encode(&map, &[(0, listed)], &[1]),
        ];
        let is_refused = |bytes: &[u8]| {
            Commit::decode(bytes).is_none()
                && decode_table(bytes).is_none()
                && Checkpoint::decode(bytes).is_none()
        };
        let mut rng = Rng::new(1);
        for bytes in whole {
            for len in 0..bytes.len() {
                assert!(is_refused(&bytes[..len]), "the first {len} bytes");
            }
            for _ in 0..2000 {
                let mut damaged = bytes.clone();
                let at = rng.below(bytes.len() as u64) as usize;
                damaged[at] ^= 1 << rng.below(8);
                assert!(is_refused(&damaged), "byte {at}");
            }
        }
        // Numbers behind a right CRC may be wild, too.
        for _ in 0..20_000 {
            let mut numbers = vec![0; rng.below(40) as usize];
            rng.fill(&mut numbers);
            let mut map = [&MAP_MAGIC.to_be_bytes()[..], &numbers].concat();
            map.extend(crc32c::crc32c(&map).to_be_bytes());
            drop(Checkpoint::decode(&map));
            let (len, crc) = (numbers.len() as u32, crc32c::crc32c(&numbers));
            let frame = [&COMMIT_MAGIC.to_be_bytes()[..], &len.to_be_bytes(), &crc.to_be_bytes()].concat();
            drop(Commit::decode(&[frame, numbers].concat()));
        }
    }
}

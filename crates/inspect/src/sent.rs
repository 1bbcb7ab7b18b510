//! Files in a send stream, read without a pool (`cenote stream ls`, `cat`).
//!
//! ```text
//!   first pass    all records, with their sums; every few hundred KiB a mark     (`index`)
//!   then          mark before the object -> its records -> attributes, blocks
//!   files         master node -> root directory -> ZAP -> object                 (this file, `zap`)
//! ```
//!
//! Idea: objects and blocks ascend in a stream. So a record is found like a word in a dictionary: by marks,
//! then by reading on. The stream must be a file that can be read twice; nothing is written.
//!
//! Memory: at most [`index::MAX_MARKS`] marks, the records of a few segments between marks, and one block.
//!
//! Source: OpenZFS `dmu_send.c` (order of records), `zfs_znode.h`, `zfs_sa.c`.

mod content;
mod index;
mod zap;

use std::collections::HashMap;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::bytes::Endian;
use cenote_format::dnode::{Dnode, DnodeHead, DnodeTree, ObjectType};
use cenote_format::objset::ObjsetType;
use cenote_format::sa::{SaReader, SaRegistry, ZplAttr};
use cenote_format::stream::{Begin, HeaderType, ObjectRecord, Record, StreamFeatures};
use cenote_format::units::{BlockId, Guid, ObjectId};
use cenote_format::zap::swap_words;
use cenote_format::znode::{Dirent, FileKind, ZnodePhys};
use cenote_fs::{Attr, Decoded, FsError};
use cenote_stream::{Item, StreamError, StreamFile, StreamReader};

use index::{Index, Marker, Segment};

pub use content::{Content, Piece};

/// `MASTER_NODE_OBJ`.
const MASTER_NODE: ObjectId = ObjectId(1);
/// Segments kept in memory.
const SEGMENTS: usize = 8;
const MAX_LINK_BYTES: u64 = 4096;
/// Words of an old znode before its ACL (`znode_phys_t`).
const ZNODE_WORDS: usize = 22;

/// A file could not be read from a stream.
#[derive(Debug, thiserror::Error)]
pub enum SentError {
    /// The stream is damaged or can't be read.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// From the file-system layer.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The stream has no readable files; the text says why.
    #[error("{0}")]
    Unsuitable(String),
    /// The object's records contradict each other.
    #[error("object {object}: {why}")]
    Damaged {
        /// The object.
        object: ObjectId,
        /// The defect.
        why: String,
    },
}

/// Result of reading files from a stream.
pub type Result<T, E = SentError> = std::result::Result<T, E>;

/// A file system in a full stream.
pub struct Sent {
    file: StreamFile,
    endian: Endian,
    name: String,
    index: Index,
    /// Segments read last, by number.
    segments: HashMap<usize, Segment>,
    recent: Vec<usize>,
    root: ObjectId,
    registry: SaRegistry,
}

impl Sent {
    /// Opens the file system of a stream: the first one with a full stream, or that of the snapshot `which`,
    /// given by its full name, or by the end of it. Reads and verifies the stream.
    ///
    /// # Errors
    /// A damaged stream; none that is full, of a file system and unencrypted.
    #[boxed]
    pub async fn open(file: StreamFile, which: Option<&str>) -> Result<Sent> {
        let mut reader = StreamReader::new(file.from(0));
        let mut others = Vec::new();
        while let Some(item) = reader.next().await? {
            let Record::Begin(begin) = &item.record else { continue };
            if begin.header == HeaderType::Compound {
                continue;
            }
            let name = String::from_utf8_lossy(&begin.to_name).into_owned();
            let is_meant = which.is_none_or(|which| is_named(&name, which));
            match refusal(begin) {
                None if is_meant => return Sent::indexed(file, &mut reader, item, name).await,
                Some(why) if is_meant => others.push(format!("{name} {why}")),
                _ => others.push(format!("{name} is another")),
            }
        }
        let which = which.map_or_else(String::new, |which| format!(" of {which}"));
        let why = format!("no full stream{which} with readable files: {}", others.join(", "));
        Err(SentError::Unsuitable(why))
    }

    async fn indexed(file: StreamFile, reader: &mut StreamReader, begin: Item, name: String) -> Result<Sent> {
        let mut marker = Marker::new(begin.end_bytes);
        loop {
            let Some(item) = reader.next().await? else { return Err(StreamError::Incomplete.into()) };
            if let Record::End(_) = item.record {
                break;
            }
            marker.note(&item)?;
        }
        let mut sent = Sent {
            file,
            endian: reader.endian(),
            name,
            index: marker.finish(),
            segments: HashMap::new(),
            recent: Vec::new(),
            root: ObjectId(0),
            registry: SaRegistry::default(),
        };
        sent.read_master()?;
        Ok(sent)
    }

    /// The sent snapshot.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The root directory.
    pub fn root(&self) -> ObjectId {
        self.root
    }

    fn read_master(&mut self) -> Result<()> {
        let (mut root, mut sa_attrs) = (None, None);
        self.entries(MASTER_NODE, |name, value| match name {
            b"ROOT" => root = value.first().copied(),
            b"SA_ATTRS" => sa_attrs = value.first().copied(),
            _ => {}
        })?;
        self.root = ObjectId(root.ok_or(FsError::MasterNode { name: "ROOT" })?);
        let Some(sa_attrs) = sa_attrs.filter(|id| *id != 0) else { return Ok(()) };
        let (mut registry, mut layouts) = (None, None);
        self.entries(ObjectId(sa_attrs), |name, value| match name {
            b"REGISTRY" => registry = value.first().copied(),
            b"LAYOUTS" => layouts = value.first().copied(),
            _ => {}
        })?;
        let (mut attributes, mut rows) = (Vec::new(), Vec::new());
        if let Some(id) = registry {
            self.entries(ObjectId(id), |name, value| {
                attributes.extend(value.first().map(|value| (name.to_vec(), *value)));
            })?;
        }
        if let Some(id) = layouts {
            self.entries(ObjectId(id), |name, value| rows.push((name.to_vec(), value.to_vec())))?;
        }
        let attributes = attributes.iter().map(|(name, value)| (&name[..], *value));
        let rows = rows.iter().map(|(name, value)| (&name[..], &value[..]));
        let format = |source| FsError::Format { object: ObjectId(sa_attrs), source };
        self.registry = SaRegistry::decode(attributes, rows).map_err(format)?;
        Ok(())
    }

    /// The file under a path from the root. Symbolic links are not followed.
    ///
    /// # Errors
    /// No such file; a path through something other than directories; damage.
    pub fn find(&mut self, path: &[u8]) -> Result<(ObjectId, Attr)> {
        let mut found = (self.root, self.attr(self.root)?);
        let mut done = Vec::new();
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
            let shown = |done: &[u8]| String::from_utf8_lossy(done).into_owned();
            if !found.1.is_dir() {
                return Err(FsError::NotDirectory { path: shown(&done) }.into());
            }
            let mut entry = None;
            self.read_dir(found.0, |other, dirent| {
                if other == name {
                    entry = Some(dirent.object);
                }
            })?;
            done.extend([b"/", name].concat());
            let object = entry.ok_or_else(|| FsError::NotFound { path: shown(&done) })?;
            found = (object, self.attr(object)?);
        }
        Ok(found)
    }

    /// Visits the entries of a directory, in disk order.
    ///
    /// # Errors
    /// No directory; damage.
    pub fn read_dir(&mut self, id: ObjectId, mut visit: impl FnMut(&[u8], Dirent)) -> Result<()> {
        self.entries(id, |name, value| {
            if let Some(word) = value.first() {
                visit(name, Dirent::from_word(*word));
            }
        })
    }

    /// A file's attributes. The allocated space is unknown: 0.
    ///
    /// # Errors
    /// No such object, or not a file; damage.
    pub fn attr(&mut self, id: ObjectId) -> Result<Attr> {
        let (record, bonus) = self.object(id)?;
        let dnode = self.dnode(&record, bonus)?;
        match Attr::decode(&self.registry, &dnode) {
            Ok(Decoded::Done(attr)) => Ok(attr),
            incomplete => match self.spill(id)? {
                Some(spill) => {
                    let attr = Attr::decode_with_spill(&self.registry, &dnode, &spill);
                    Ok(attr.map_err(|source| FsError::Object { object: id, source: source.into() })?)
                }
                None => Err(match incomplete {
                    Err(source) => FsError::Object { object: id, source: source.into() }.into(),
                    Ok(_) => damaged(id, "its spill block is missing"),
                }),
            },
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Damage.
    pub fn read_link(&mut self, id: ObjectId, attr: &Attr) -> Result<Vec<u8>> {
        let (record, bonus) = self.object(id)?;
        let target = match record.bonus_type {
            ObjectType::SA => {
                let of = |data: &[u8], registry: &SaRegistry| -> Option<Vec<u8>> {
                    SaReader::new(registry, data).ok()?.get(ZplAttr::Symlink).map(<[u8]>::to_vec)
                };
                let spill = self.spill(id)?;
                of(&bonus, &self.registry).or_else(|| of(&spill?, &self.registry))
            }
            ObjectType::ZNODE => ZnodePhys::decode(&bonus, self.endian)
                .ok()
                .and_then(|znode| znode.inline_link().map(<[u8]>::to_vec)),
            _ => None,
        };
        if let Some(target) = target {
            return Ok(target);
        }
        let mut content = self.content(id, 0..attr.size.min(MAX_LINK_BYTES))?;
        let mut target = Vec::new();
        while let Some(Piece::Data(data)) = content.next(self)? {
            target.extend_from_slice(&data);
        }
        Ok(target)
    }

    /// The kind of an entry.
    ///
    /// # Errors
    /// As [`Sent::attr`].
    pub fn kind(&mut self, dirent: Dirent) -> Result<FileKind> {
        match dirent.kind {
            Some(kind) => Ok(kind),
            None => Ok(self.attr(dirent.object)?.kind()),
        }
    }

    /// An object's record and bonus.
    fn object(&mut self, id: ObjectId) -> Result<(ObjectRecord, Bytes)> {
        let at = self.index.segment_of_object(id);
        let found = self.segment(at)?.object(id);
        found.ok_or(SentError::Fs(FsError::NoObject { object: id }))
    }

    fn spill(&mut self, id: ObjectId) -> Result<Option<Bytes>> {
        let first = self.index.segment_of_object(id);
        for number in first..self.index.len() {
            if number > first && self.index.is_beyond(number, id) {
                break;
            }
            if let Some((at, record)) = self.segment(number)?.spill(id) {
                return content::data(&self.file, at, &record).map(Some);
            }
        }
        Ok(None)
    }

    fn segment(&mut self, number: usize) -> Result<&Segment> {
        self.recent.retain(|other| *other != number);
        self.recent.push(number);
        if !self.segments.contains_key(&number) {
            if self.recent.len() > SEGMENTS {
                self.segments.remove(&self.recent.remove(0));
            }
            let segment = Segment::read(&self.file, self.endian, self.index.range(number))?;
            self.segments.insert(number, segment);
        }
        self.segments.get(&number).ok_or(SentError::Stream(StreamError::Incomplete))
    }

    /// A dnode with an object's attributes, without its blocks.
    fn dnode(&self, record: &ObjectRecord, bonus: Bytes) -> Result<Dnode> {
        let bonus = match record.bonus_type {
            ObjectType::ZNODE if self.endian != Endian::NATIVE => {
                let mut swapped = bonus.to_vec();
                let words = (ZNODE_WORDS * 8).min(swapped.len() / 8 * 8);
                swap_words(&mut swapped[..words]);
                swapped.into()
            }
            _ => bonus,
        };
        let head = DnodeHead {
            object_type: record.object_type,
            bonus_type: record.bonus_type,
            bonus,
            rest: Bytes::new(),
            checksum_id: record.checksum_id,
            compression_id: record.compression_id,
            flags: 0,
            indirect_block_shift: 17,
            blkptr_count: 1,
            slots: record.slots.max(1),
            data_block_bytes: record.block_bytes,
            max_block_id: BlockId(0),
        };
        let format = |source| FsError::Format { object: record.object, source };
        Ok(head.build(&DnodeTree::default()).map_err(format)?)
    }
}

fn damaged(object: ObjectId, why: &str) -> SentError {
    SentError::Damaged { object, why: why.to_owned() }
}

/// Why no files can be read from a stream.
fn refusal(begin: &Begin) -> Option<&'static str> {
    let has = |feature| begin.features.has(feature);
    if begin.from_guid != Guid(0) {
        Some("is an increment")
    } else if u64::from(begin.objset_type) != u64::from(ObjsetType::Zfs) {
        Some("is no file system")
    } else if has(StreamFeatures::RAW) {
        Some("is encrypted")
    } else if has(StreamFeatures::DEDUP) {
        Some("is deduplicated: try `cenote stream redup`")
    } else if has(StreamFeatures::RESUMING) {
        Some("is the rest of a stream that broke off")
    } else {
        None
    }
}

/// Whether a snapshot is meant by its name or by the end of it: `tank/home@monday`, `home@monday`, `@monday`.
fn is_named(name: &str, which: &str) -> bool {
    let rest = name.strip_suffix(which);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/') || which.starts_with('@'))
}

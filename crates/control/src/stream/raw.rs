//! `stream raw`: applies streams of a volume to an image file or a block device.
//!
//! Idea: an image plays the part of the volume. A full stream sets all of it; an increment changes the blocks
//! that differ. The guid of the last snapshot comes back, for the next increment (`-g`). Unlike zstream, it
//! clears what a full stream leaves out, and never leaves it to a device what a discarded range reads as.
//!
//! Source: OpenZFS `zstream_raw.c` (2.4.99).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use cenote_codec::compress::Compression;
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::objset::ObjsetType;
use cenote_format::stream::{Begin, HeaderType, Range, Record, StreamFeatures, Write, WriteEmbedded};
use cenote_format::units::{Guid, ObjectId, SPA_MAXBLOCKSIZE};
use cenote_format::zap::ZapBlock0;
use cenote_stream::{Item, StreamReader};
use rustix::fs::{FallocateFlags, FileType, SeekFrom, fallocate, fstat, seek};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Source, refused};
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// The volume's data, and its properties: `ZVOL_OBJ`, `ZVOL_ZAP_OBJ`.
const DATA: ObjectId = ObjectId(1);
const PROPERTIES: ObjectId = ObjectId(2);
/// Zeros written at a time, and the unit in which a device clears ranges itself.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
const CLEARED_BYTES: u64 = 4096;
/// Streams that can't be applied.
const REFUSED: [(StreamFeatures, &str); 4] = [
    (StreamFeatures::RAW, "is encrypted"),
    (StreamFeatures::REDACTED, "is redacted"),
    (StreamFeatures::RESUMING, "is the rest of a stream that broke off"),
    (StreamFeatures::DEDUP, "is deduplicated: try `cenote stream redup`"),
];

/// A `stream raw` request.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Raw {
    /// The stream.
    pub source: Source,
    /// The image's name in messages.
    pub image: String,
    /// The image, opened for writing, by index in the request's files.
    pub image_file: usize,
    /// `-g`: the guid of the snapshot that the image has.
    pub from_guid: Option<u64>,
}

/// The image's state.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Applied {
    /// The guid of its snapshot.
    pub guid: u64,
}

impl Verb for Raw {
    const NAME: &'static str = "stream raw";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Never;
    type Answer = Applied;

    /// # Errors
    /// A stream of no volume, or from another snapshot; the image can't be written.
    async fn carry_out(self, session: &Session) -> Result<Answered<Applied>, ControlError> {
        let file = File::from(session.caller().file(self.image_file)?);
        let mut reader = StreamReader::new(self.source.once(session)?);
        let named = || ControlError::io(self.image.clone());
        let mut image = Image::new(file).map_err(named())?;
        let mut guid = self.from_guid.filter(|guid| *guid != 0).map(Guid);
        while let Some(item) = reader.next().await.map_err(|error| self.source.failed(error))? {
            match &item.record {
                Record::Begin(begin) if begin.header == HeaderType::Compound => {}
                Record::Begin(begin) => {
                    self.check(begin, guid)?;
                    guid = Some(begin.to_guid);
                    image.begin(begin.from_guid == Guid(0)).map_err(named())?;
                }
                Record::End(_) if item.of_package => {}
                Record::End(_) => image.end().map_err(named())?,
                _ => self.apply(&mut image, &item, reader.endian())?,
            }
        }
        image.file.sync_all().map_err(named())?;
        Ok(Applied { guid: guid.map_or(0, |guid| guid.0) }.into())
    }
}

impl Raw {
    fn check(&self, begin: &Begin, guid: Option<Guid>) -> Result<(), ControlError> {
        let name = String::from_utf8_lossy(&begin.to_name);
        let refuse = |why: &str| Err(refused(format!("{}: {name} {why}", self.source.name())));
        if let Some((_, why)) = REFUSED.iter().find(|(feature, _)| begin.features.has(*feature)) {
            return refuse(why);
        }
        if u64::from(begin.objset_type) != u64::from(ObjsetType::Zvol) {
            return refuse("is no volume");
        }
        match guid {
            Some(guid) if begin.from_guid != guid => {
                let (from, guid) = (begin.from_guid.0, guid.0);
                refuse(&format!("has the wrong fromguid: {from} != {guid}, aborting..."))
            }
            _ => Ok(()),
        }
    }

    fn apply(&self, image: &mut Image, item: &Item, endian: Endian) -> Result<(), ControlError> {
        let (object, offset, data) = match &item.record {
            Record::Write(write) if is_ours(write.object, write.object_type) => {
                (write.object, write.offset, self.data(write, &item.payload)?)
            }
            Record::WriteEmbedded(write) if write.object == DATA || write.object == PROPERTIES => {
                (write.object, write.offset, self.embedded(write, &item.payload)?)
            }
            Record::Free(range) if range.object == DATA => {
                return image.free(range).map_err(ControlError::io(self.image.clone()));
            }
            _ => return Ok(()),
        };
        let written = match object {
            DATA => image.write(offset, &data),
            _ => match size(data, endian) {
                Some(bytes) => image.resize(bytes),
                None => return Err(self.damaged(object, offset, "the volume's properties have no size")),
            },
        };
        written.map_err(ControlError::io(self.image.clone()))
    }

    fn damaged(&self, object: ObjectId, offset: u64, why: impl std::fmt::Display) -> ControlError {
        refused(format!("{}: object {object} offset {offset}: {why}", self.source.name()))
    }

    fn decompressed(
        &self,
        (object, offset): (ObjectId, u64),
        compression_id: u8,
        bytes: &[u8],
        len: u64,
    ) -> Result<Bytes, ControlError> {
        let failed = |error| self.damaged(object, offset, format!("decompression failed: {error}"));
        let compression = Compression::try_from(compression_id).map_err(failed)?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        Ok(compression.decompress(bytes, len).map_err(failed)?.into())
    }

    fn data(&self, write: &Write, payload: &Bytes) -> Result<Bytes, ControlError> {
        let at = (write.object, write.offset);
        match write.compression_id {
            0 => Ok(payload.clone()),
            id => self.decompressed(at, id, payload, write.logical_bytes),
        }
    }

    fn embedded(&self, write: &WriteEmbedded, payload: &Bytes) -> Result<Bytes, ControlError> {
        let at = (write.object, write.offset);
        let bytes = payload.get(..write.physical_bytes as usize).unwrap_or(payload);
        let data = self.decompressed(at, write.compression_id, bytes, write.logical_bytes.into())?;
        if write.length > SPA_MAXBLOCKSIZE {
            return Err(self.damaged(at.0, at.1, "an embedded block is longer than any block"));
        }
        let mut data = data.to_vec();
        data.resize(usize::try_from(write.length).unwrap_or(0), 0);
        Ok(data.into())
    }
}

fn is_ours(object: ObjectId, object_type: ObjectType) -> bool {
    object == DATA && object_type == ObjectType::ZVOL
        || object == PROPERTIES && object_type == ObjectType::ZVOL_PROP
}

/// The volume's size, from the first block of its properties.
fn size(block: Bytes, endian: Endian) -> Option<u64> {
    match ZapBlock0::decode(block, endian).ok()? {
        ZapBlock0::Micro(micro) => micro.lookup(b"size"),
        ZapBlock0::Fat(_) => None,
    }
}

/// The file or device.
struct Image {
    file: File,
    is_file: bool,
    /// The file's size, or the volume's if known.
    size_bytes: u64,
    /// Room on the device; a file grows.
    device_bytes: u64,
    /// Of a full stream: everything before this is set.
    set_bytes: Option<u64>,
}

impl Image {
    fn new(file: File) -> io::Result<Image> {
        let is_file = FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile;
        let size_bytes = seek(&file, SeekFrom::End(0))?;
        Ok(Image { file, is_file, size_bytes, device_bytes: size_bytes, set_bytes: None })
    }

    fn begin(&mut self, is_whole: bool) -> io::Result<()> {
        self.set_bytes = is_whole.then_some(0);
        if is_whole && self.is_file {
            // All of it is a hole now.
            self.file.set_len(0)?;
            self.file.set_len(self.size_bytes)?;
            self.set_bytes = None;
        }
        Ok(())
    }

    /// Clears the blocks that a full stream left out before this offset.
    fn pass(&mut self, offset: u64, end: u64) -> io::Result<()> {
        let Some(set) = self.set_bytes else { return Ok(()) };
        self.set_bytes = Some(set.max(end));
        if set < offset { self.clear(set, offset) } else { Ok(()) }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.pass(offset, offset.saturating_add(data.len() as u64))?;
        self.file.write_all_at(data, offset)?;
        if self.is_file {
            self.size_bytes = self.size_bytes.max(offset + data.len() as u64);
        }
        Ok(())
    }

    fn free(&mut self, range: &Range) -> io::Result<()> {
        let start = range.offset.min(self.size_bytes);
        let end = range.offset.saturating_add(range.length).min(self.size_bytes);
        self.pass(start, end)?;
        if start < end { self.clear(start, end) } else { Ok(()) }
    }

    fn resize(&mut self, size_bytes: u64) -> io::Result<()> {
        if self.is_file {
            self.file.set_len(size_bytes)?;
        } else if size_bytes > self.device_bytes {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the volume is larger than the device"));
        }
        self.size_bytes = size_bytes;
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        self.pass(self.size_bytes, self.size_bytes)?;
        self.set_bytes = None;
        Ok(())
    }

    /// Makes a range read as zeros.
    fn clear(&self, start: u64, end: u64) -> io::Result<()> {
        let (from, to) = (start.next_multiple_of(CLEARED_BYTES).min(end), end - end % CLEARED_BYTES);
        if from < to {
            let kinds = [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE];
            let cleared = kinds.iter().any(|kind| {
                fallocate(&self.file, *kind | FallocateFlags::KEEP_SIZE, from, to - from).is_ok()
            });
            if cleared {
                self.write_zeros(start, from)?;
                return self.write_zeros(to, end);
            }
        }
        self.write_zeros(start, end)
    }

    fn write_zeros(&self, mut start: u64, end: u64) -> io::Result<()> {
        while start < end {
            let zeros = &ZEROS[..(end - start).min(ZEROS.len() as u64) as usize];
            self.file.write_all_at(zeros, start)?;
            start += zeros.len() as u64;
        }
        Ok(())
    }
}

//! Fields of each record in order, listed once for both directions.
//!
//! Idea: a record passes each field to [`Fields`]. [`Take`] fills it from bytes, [`Put`] appends it to bytes,
//! so decoder and encoder cannot diverge.
//!
//! Source: OpenZFS `zfs_ioctl.h` (`dmu_replay_record_t`).

use super::*;

/// Visitor of a record's fields.
pub(super) trait Fields {
    fn u8(&mut self, field: &mut u8) -> Result<()>;
    fn u32(&mut self, field: &mut u32) -> Result<()>;
    fn u64(&mut self, field: &mut u64) -> Result<()>;
    fn bytes(&mut self, field: &mut [u8]) -> Result<()>;
    fn pad(&mut self, bytes: usize) -> Result<()>;
    /// NUL-terminated text in `room` bytes.
    fn text(&mut self, field: &mut Vec<u8>, room: usize) -> Result<()>;
}

pub(super) struct Take<'a>(pub(super) Reader<'a>);

pub(super) struct Put(pub(super) Writer);

impl Fields for Take<'_> {
    fn u8(&mut self, field: &mut u8) -> Result<()> {
        *field = self.0.u8()?;
        Ok(())
    }

    fn u32(&mut self, field: &mut u32) -> Result<()> {
        *field = self.0.u32()?;
        Ok(())
    }

    fn u64(&mut self, field: &mut u64) -> Result<()> {
        *field = self.0.u64()?;
        Ok(())
    }

    fn bytes(&mut self, field: &mut [u8]) -> Result<()> {
        field.copy_from_slice(self.0.bytes(field.len())?);
        Ok(())
    }

    fn pad(&mut self, bytes: usize) -> Result<()> {
        self.0.skip(bytes)
    }

    fn text(&mut self, field: &mut Vec<u8>, room: usize) -> Result<()> {
        let bytes = self.0.bytes(room)?;
        let end = bytes.iter().position(|byte| *byte == 0);
        let end = end.ok_or(FormatError::Corrupt { what: WHAT, why: "has a name without its end" })?;
        *field = bytes[..end].to_vec();
        Ok(())
    }
}

impl Fields for Put {
    fn u8(&mut self, field: &mut u8) -> Result<()> {
        self.0.u8(*field);
        Ok(())
    }

    fn u32(&mut self, field: &mut u32) -> Result<()> {
        self.0.u32(*field);
        Ok(())
    }

    fn u64(&mut self, field: &mut u64) -> Result<()> {
        self.0.u64(*field);
        Ok(())
    }

    fn bytes(&mut self, field: &mut [u8]) -> Result<()> {
        self.0.bytes(field);
        Ok(())
    }

    fn pad(&mut self, bytes: usize) -> Result<()> {
        let end = self.0.position() + bytes;
        self.0.pad_to(end);
        Ok(())
    }

    fn text(&mut self, field: &mut Vec<u8>, room: usize) -> Result<()> {
        at_most("name of a snapshot in a stream", field.len() as u64, room as u64 - 1)?;
        self.0.bytes(field);
        self.pad(room - field.len())
    }
}

/// Record that lists its fields.
pub(super) trait Layout {
    fn each(&mut self, f: &mut dyn Fields) -> Result<()>;
}

fn object_type(f: &mut dyn Fields, field: &mut ObjectType) -> Result<()> {
    let mut number = u32::from(field.0);
    f.u32(&mut number)?;
    let bound = u8::MAX.into();
    let too_large = FormatError::OutOfRange { what: "object type in a stream", value: number.into(), bound };
    field.0 = u8::try_from(number).map_err(|_| too_large)?;
    Ok(())
}

fn key(f: &mut dyn Fields, field: &mut DdtKey) -> Result<()> {
    for word in &mut field.checksum {
        f.u64(word)?;
    }
    f.u64(&mut field.prop)
}

fn crypt(f: &mut dyn Fields, field: &mut CryptFields) -> Result<()> {
    f.bytes(&mut field.salt)?;
    f.bytes(&mut field.iv)?;
    f.bytes(&mut field.mac)
}

impl Layout for Begin {
    fn each(&mut self, f: &mut dyn Fields) -> Result<()> {
        let mut magic = DMU_BACKUP_MAGIC;
        f.u64(&mut magic)?;
        if magic != DMU_BACKUP_MAGIC {
            return Err(FormatError::BadMagic { what: "stream", found: magic });
        }
        let mut version = self.header.number() | self.features.0 << 2;
        f.u64(&mut version)?;
        self.header = HeaderType::of_number(version & 3)?;
        // The uppermost bits are reserved (`DMU_GET_FEATUREFLAGS` takes 56); keep them as unknown features.
        self.features = StreamFeatures(version >> 2);
        f.u64(&mut self.creation_time)?;
        f.u32(&mut self.objset_type)?;
        f.u32(&mut self.flags.0)?;
        f.u64(&mut self.to_guid.0)?;
        f.u64(&mut self.from_guid.0)?;
        f.text(&mut self.to_name, MAXNAMELEN)
    }
}

impl Layout for ObjectRecord {
    fn each(&mut self, f: &mut dyn Fields) -> Result<()> {
        f.u64(&mut self.object.0)?;
        object_type(f, &mut self.object_type)?;
        object_type(f, &mut self.bonus_type)?;
        f.u32(&mut self.block_bytes)?;
        f.u32(&mut self.bonus_bytes)?;
        f.u8(&mut self.checksum_id)?;
        f.u8(&mut self.compression_id)?;
        f.u8(&mut self.slots)?;
        f.u8(&mut self.flags.0)?;
        f.u32(&mut self.raw_bonus_bytes)?;
        f.u64(&mut self.to_guid.0)?;
        f.u8(&mut self.indirect_block_shift)?;
        f.u8(&mut self.levels)?;
        f.u8(&mut self.blkptr_count)?;
        f.pad(5)?;
        f.u64(&mut self.max_block_id.0)
    }
}

impl Layout for FreeObjects {
    fn each(&mut self, f: &mut dyn Fields) -> Result<()> {
        f.u64(&mut self.first.0)?;
        f.u64(&mut self.count)?;
        f.u64(&mut self.to_guid.0)
    }
}

impl Layout for Write {
    fn each(&mut self, f: &mut dyn Fields) -> Result<()> {
        f.u64(&mut self.object.0)?;
        object_type(f, &mut self.object_type)?;
        f.pad(4)?;
        f.u64(&mut self.offset)?;
        f.u64(&mut self.logical_bytes)?;
        f.u64(&mut self.to_guid.0)?;
        f.u8(&mut self.checksum_id)?;
        f.u8(&mut self.flags.0)?;
        f.u8(&mut self.compression_id)?;
        f.pad(5)?;
        key(f, &mut self.key)?;
        f.u64(&mut self.compressed_bytes)?;
        crypt(f, &mut self.crypt)
    }
}

impl Layout for Range {
    fn each(&mut self, f: &mut dyn Fields) -> Result<()> {
        f.u64(&mut self.object.0)?;
        f.u64(&mut self.offset)?;
        f.u64(&mut self.length)?;
        f.u64(&mut self.to_guid.0)
    }
}

impl Layout for End {
    fn each(&mut self, f: &mut dyn Fields) -> Result<()> {
        for word in &mut self.checksum {
            f.u64(word)?;
        }
        f.u64(&mut self.to_guid.0)
    }
}

impl Layout for WriteByref {
    fn each(&mut self, f: &mut dyn Fields) -> Result<()> {
        f.u64(&mut self.object.0)?;
        f.u64(&mut self.offset)?;
        f.u64(&mut self.length)?;
        f.u64(&mut self.to_guid.0)?;
        f.u64(&mut self.ref_guid.0)?;
        f.u64(&mut self.ref_object.0)?;
        f.u64(&mut self.ref_offset)?;
        f.u8(&mut self.checksum_id)?;
        f.u8(&mut self.flags.0)?;
        f.pad(6)?;
        key(f, &mut self.key)
    }
}

impl Layout for Spill {
    fn each(&mut self, f: &mut dyn Fields) -> Result<()> {
        f.u64(&mut self.object.0)?;
        f.u64(&mut self.length)?;
        f.u64(&mut self.to_guid.0)?;
        f.u8(&mut self.flags.0)?;
        f.u8(&mut self.compression_id)?;
        f.pad(6)?;
        f.u64(&mut self.compressed_bytes)?;
        crypt(f, &mut self.crypt)?;
        object_type(f, &mut self.object_type)
    }
}

impl Layout for WriteEmbedded {
    fn each(&mut self, f: &mut dyn Fields) -> Result<()> {
        f.u64(&mut self.object.0)?;
        f.u64(&mut self.offset)?;
        f.u64(&mut self.length)?;
        f.u64(&mut self.to_guid.0)?;
        f.u8(&mut self.compression_id)?;
        f.u8(&mut self.embedded_type)?;
        f.pad(6)?;
        f.u32(&mut self.logical_bytes)?;
        f.u32(&mut self.physical_bytes)
    }
}

impl Layout for ObjectRange {
    fn each(&mut self, f: &mut dyn Fields) -> Result<()> {
        f.u64(&mut self.first.0)?;
        f.u64(&mut self.slots)?;
        f.u64(&mut self.to_guid.0)?;
        crypt(f, &mut self.crypt)?;
        f.u8(&mut self.flags.0)?;
        f.pad(3)
    }
}

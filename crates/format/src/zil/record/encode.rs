//! Encodes records.

use super::*;
use crate::bytes::{Endian, Writer};
use crate::zil::attr::write_name;

impl LogRecord {
    /// Encodes the record with header, padded to a multiple of 8 bytes.
    pub fn encode(&self, endian: Endian) -> Vec<u8> {
        let mut payload = Writer::new(endian);
        self.operation.write(&mut payload);
        let payload = payload.finish();
        let reclen = (LR_BYTES + payload.len()).next_multiple_of(8);
        let case = if self.case_insensitive { TX_CI } else { 0 };
        let mut w = Writer::new(endian);
        w.words(&[self.operation.txtype() | case, reclen as u64, self.txg.0, self.seq]);
        w.bytes(&payload).pad_to(reclen);
        w.finish()
    }
}

impl NewObject {
    fn write(&self, w: &mut Writer) {
        w.u64(self.directory.0);
        self.write_without_directory(w);
    }

    fn write_without_directory(&self, w: &mut Writer) {
        let foid = u64::from(self.slots.saturating_sub(1)) << 56 | self.object.0;
        w.words(&[foid, self.mode, self.uid, self.gid, self.generation]).words(&self.crtime).u64(self.rdev);
    }
}

impl Operation {
    /// Encoded bytes with header and padding.
    pub fn encoded_bytes(&self) -> usize {
        let mut payload = Writer::new(Endian::NATIVE);
        self.write(&mut payload);
        (LR_BYTES + payload.finish().len()).next_multiple_of(8)
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Operation::Create { new, attrs, acl, domains, name, .. } => {
                new.write(w);
                assert_eq!(LR_BYTES + w.position(), LR_CREATE_BYTES);
                if let Some(acl) = acl {
                    w.words(&acl.counts());
                }
                if let Some(attrs) = attrs {
                    attrs.write(w);
                }
                if let Some(acl) = acl {
                    acl.write(w);
                }
                write_names(w, domains);
                write_name(w, name);
            }
            Operation::MakeXattrDir { new, name } => {
                new.write(w);
                write_name(w, name);
            }
            Operation::Symlink { new, name, target } => {
                new.write(w);
                write_names(w, [name, target]);
            }
            Operation::Remove { directory, name, .. } => write_name(w.u64(directory.0), name),
            Operation::Link { directory, object, name } => {
                write_name(w.words(&[directory.0, object.0]), name)
            }
            Operation::Rename { kind, from_directory, to_directory, from, to } => {
                w.words(&[from_directory.0, to_directory.0]);
                if let RenameKind::Whiteout(new) = kind {
                    new.write_without_directory(w);
                }
                write_names(w, [from, to]);
            }
            Operation::Write { object, offset_bytes, length_bytes, block_offset, bp, data, .. } => {
                w.words(&[object.0, *offset_bytes, *length_bytes, *block_offset]);
                bp.write(w);
                assert_eq!(LR_BYTES + w.position(), LR_WRITE_BYTES);
                if let WriteData::Copied(data) = data {
                    w.bytes(data);
                }
            }
            Operation::Truncate { object, offset_bytes, length_bytes } => {
                w.words(&[object.0, *offset_bytes, *length_bytes]);
            }
            Operation::SetAttr { object, mask, mode, uid, gid, size_bytes, atime, mtime, attrs, domains } => {
                w.words(&[object.0, *mask, *mode, *uid, *gid, *size_bytes]).words(atime).words(mtime);
                if let Some(attrs) = attrs {
                    attrs.write(w);
                }
                write_names(w, domains);
            }
            Operation::SetAclV0 { object, entry_count, entries } => {
                w.words(&[object.0, *entry_count]).bytes(entries);
            }
            Operation::SetAcl { object, acl } => {
                w.u64(object.0).words(&acl.counts());
                acl.write(w);
            }
            Operation::SetSaXattr { object, name, value } => {
                write_name(w.words(&[object.0, value.len() as u64]), name);
                w.bytes(value);
            }
            Operation::CloneRange { object, offset_bytes, length_bytes, block_bytes, blocks } => {
                w.words(&[object.0, *offset_bytes, *length_bytes, *block_bytes, blocks.len() as u64]);
                for bp in blocks {
                    bp.write(w);
                }
            }
            Operation::Unknown { payload, .. } => {
                w.bytes(payload);
            }
        }
    }
}

fn write_names<'a>(w: &mut Writer, names: impl IntoIterator<Item = &'a Bytes>) {
    for name in names {
        write_name(w, name);
    }
}

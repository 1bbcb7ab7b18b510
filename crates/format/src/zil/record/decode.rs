//! Decodes records. Every length is checked against the record, and the record's against the block.

use bytes::Bytes;

use super::*;
use crate::bytes::{Endian, Reader};
use crate::error::{FormatError, Result, at_most};
use crate::zil::attr::{Payload, owner_domains};

/// `ATTR_XVATTR` in a `TX_SETATTR` mask written by Linux.
const ATTR_XVATTR_LINUX: u64 = 1 << 31;
/// `AT_XVATTR` of illumos and FreeBSD; on Linux the bit means that times are given.
const AT_XVATTR: u64 = 1 << 16;
/// `lr_attr_t` as every known writer logs it: three bitmap words.
const LOG_ATTRS_BYTES: usize = 72;

const _: () = assert!(4 + 3 * 4 + 8 + 2 * 8 + 32 == LOG_ATTRS_BYTES, "size, bitmap, bits, time, stamp");

impl LogRecord {
    /// Decodes the first record; returns it and its length, at least `LR_BYTES`.
    pub fn decode(bytes: &Bytes, endian: Endian) -> Result<(LogRecord, usize)> {
        let Header { txtype, txg, seq, len } = header(bytes, endian)?;
        let payload = bytes.slice(LR_BYTES..len);
        let operation = operation(txtype & !TX_CI, &payload, endian)?;
        Ok((LogRecord { txg: Txg(txg), seq, case_insensitive: txtype & TX_CI != 0, operation }, len))
    }
}

impl ClearRecord {
    /// Decodes the unencrypted part of the first record; returns it and the record's length, at least
    /// `LR_BYTES`.
    pub fn decode(bytes: &Bytes, endian: Endian) -> Result<(ClearRecord, usize)> {
        let Header { txtype, seq, len, .. } = header(bytes, endian)?;
        let (mut written, mut shared) = (None, Vec::new());
        match txtype & !TX_CI {
            tx::WRITE => {
                let mut r = Reader::new("log record", &bytes[LR_BYTES..len], endian);
                let [object, offset_bytes, _, _] = r.words()?;
                written =
                    Some(WrittenBlock { object: ObjectId(object), offset_bytes, bp: Blkptr::read(&mut r)? });
            }
            tx::CLONE_RANGE => {
                let mut r = Reader::new("log record", &bytes[LR_BYTES..len], endian);
                // Four fields, possibly encrypted, and the number of pointers, which fill the rest.
                let _: [u64; 5] = r.words()?;
                for _ in 0..r.remaining() / crate::blkptr::BLKPTR_BYTES {
                    shared.push(Blkptr::read(&mut r)?);
                }
            }
            _ => {}
        }
        Ok((ClearRecord { seq, written, shared }, len))
    }
}

/// `lr_t` with a checked length.
struct Header {
    txtype: u64,
    txg: u64,
    seq: u64,
    len: usize,
}

fn header(bytes: &[u8], endian: Endian) -> Result<Header> {
    let [txtype, reclen, txg, seq] = Reader::new("log record", bytes, endian).words()?;
    let len = at_most("log record's length", reclen, bytes.len() as u64)? as usize;
    if len < LR_BYTES {
        return Err(FormatError::Corrupt { what: "log record", why: "is shorter than its header" });
    }
    Ok(Header { txtype, txg, seq, len })
}

fn operation(txtype: u64, payload: &Bytes, endian: Endian) -> Result<Operation> {
    let p = &mut Payload::new(payload, endian);
    match txtype {
        tx::CREATE | tx::CREATE_ACL | tx::CREATE_ATTR | tx::CREATE_ACL_ATTR => {
            create(p, CreateKind::File, txtype)
        }
        tx::MKDIR | tx::MKDIR_ACL | tx::MKDIR_ATTR | tx::MKDIR_ACL_ATTR => {
            create(p, CreateKind::Directory, txtype)
        }
        tx::MKXATTR => Ok(Operation::MakeXattrDir { new: new_object(p)?, name: p.name()? }),
        tx::SYMLINK => Ok(Operation::Symlink { new: new_object(p)?, name: p.name()?, target: p.name()? }),
        tx::REMOVE | tx::RMDIR => Ok(Operation::Remove {
            is_directory: txtype == tx::RMDIR,
            directory: object(p)?,
            name: p.name()?,
        }),
        tx::LINK => Ok(Operation::Link { directory: object(p)?, object: object(p)?, name: p.name()? }),
        tx::RENAME | tx::RENAME_EXCHANGE | tx::RENAME_WHITEOUT => rename(p, txtype),
        tx::WRITE | tx::WRITE2 => write(p, txtype),
        tx::TRUNCATE => {
            let object = object(p)?;
            let [offset_bytes, length_bytes] = p.reader.words()?;
            Ok(Operation::Truncate { object, offset_bytes, length_bytes })
        }
        tx::SETATTR => set_attr(p),
        tx::ACL_V0 => {
            Ok(Operation::SetAclV0 { object: object(p)?, entry_count: p.reader.u64()?, entries: p.rest()? })
        }
        tx::ACL => {
            let object = object(p)?;
            let counts = p.reader.words()?;
            Ok(Operation::SetAcl { object, acl: LogAcl::read(p, counts)? })
        }
        tx::SETSAXATTR => {
            let object = object(p)?;
            let size = p.reader.u64()?;
            Ok(Operation::SetSaXattr { object, name: p.name()?, value: p.take(size)? })
        }
        tx::CLONE_RANGE => clone_range(p),
        _ => Ok(Operation::Unknown { txtype, payload: payload.clone() }),
    }
}

fn object(p: &mut Payload<'_>) -> Result<ObjectId> {
    Ok(ObjectId(p.reader.u64()?))
}

/// Object number bits; the upper eight hold the dnode slots, minus one.
const OBJECT_BITS: u32 = 48;

/// `_lr_create_t` after its header.
fn new_object(p: &mut Payload<'_>) -> Result<NewObject> {
    let directory = object(p)?;
    new_object_in(p, directory)
}

fn new_object_in(p: &mut Payload<'_>, directory: ObjectId) -> Result<NewObject> {
    let [foid, mode, uid, gid, generation, seconds, nanoseconds, rdev] = p.reader.words()?;
    Ok(NewObject {
        directory,
        object: ObjectId(foid & ((1 << OBJECT_BITS) - 1)),
        slots: (foid >> 56) as u16 + 1,
        mode,
        uid,
        gid,
        generation,
        crtime: [seconds, nanoseconds],
        rdev,
    })
}

fn create(p: &mut Payload<'_>, kind: CreateKind, txtype: u64) -> Result<Operation> {
    let has_acl = matches!(txtype, tx::CREATE_ACL | tx::CREATE_ACL_ATTR | tx::MKDIR_ACL | tx::MKDIR_ACL_ATTR);
    let has_attrs =
        matches!(txtype, tx::CREATE_ATTR | tx::CREATE_ACL_ATTR | tx::MKDIR_ATTR | tx::MKDIR_ACL_ATTR);
    let new = new_object(p)?;
    debug_assert_eq!(LR_BYTES + p.reader.position(), LR_CREATE_BYTES);
    let counts = if has_acl { Some(p.reader.words()?) } else { None };
    let attrs = if has_attrs { Some(LogAttrs::read(&mut p.reader)?) } else { None };
    let acl = counts.map(|counts| LogAcl::read(p, counts)).transpose()?;
    let domains = if has_acl { Vec::new() } else { p.names(owner_domains(new.uid, new.gid))? };
    Ok(Operation::Create { kind, new, attrs, acl, domains, name: p.name()? })
}

fn rename(p: &mut Payload<'_>, txtype: u64) -> Result<Operation> {
    let from_directory = object(p)?;
    let to_directory = object(p)?;
    let kind = match txtype {
        tx::RENAME_EXCHANGE => RenameKind::Exchange,
        tx::RENAME_WHITEOUT => RenameKind::Whiteout(new_object_in(p, from_directory)?),
        _ => RenameKind::Replace,
    };
    Ok(Operation::Rename { kind, from_directory, to_directory, from: p.name()?, to: p.name()? })
}

fn write(p: &mut Payload<'_>, txtype: u64) -> Result<Operation> {
    let object = object(p)?;
    let [offset_bytes, length_bytes, block_offset] = p.reader.words()?;
    let bp = Blkptr::read(&mut p.reader)?;
    debug_assert_eq!(LR_BYTES + p.reader.position(), LR_WRITE_BYTES);
    let data = match p.reader.remaining() {
        0 => WriteData::Indirect,
        _ => WriteData::Copied(p.take(length_bytes)?),
    };
    let already_synced = txtype == tx::WRITE2;
    Ok(Operation::Write { already_synced, object, offset_bytes, length_bytes, block_offset, bp, data })
}

fn set_attr(p: &mut Payload<'_>) -> Result<Operation> {
    let object = object(p)?;
    let [mask, mode, uid, gid, size_bytes] = p.reader.words()?;
    let (atime, mtime) = (p.reader.words()?, p.reader.words()?);
    let has_attrs =
        mask & ATTR_XVATTR_LINUX != 0 || (mask & AT_XVATTR != 0 && p.reader.remaining() >= LOG_ATTRS_BYTES);
    let attrs = if has_attrs { Some(LogAttrs::read(&mut p.reader)?) } else { None };
    // A record has domains only for the fields that it sets; only the remaining bytes show this.
    let domain_count = if p.reader.remaining() == 0 { 0 } else { owner_domains(uid, gid) };
    let domains = p.names(domain_count)?;
    Ok(Operation::SetAttr { object, mask, mode, uid, gid, size_bytes, atime, mtime, attrs, domains })
}

fn clone_range(p: &mut Payload<'_>) -> Result<Operation> {
    let object = object(p)?;
    let [offset_bytes, length_bytes, block_bytes, count] = p.reader.words()?;
    at_most(
        "log record's block pointers",
        count,
        (p.reader.remaining() / crate::blkptr::BLKPTR_BYTES) as u64,
    )?;
    let blocks = (0..count).map(|_| Blkptr::read(&mut p.reader)).collect::<Result<_>>()?;
    Ok(Operation::CloneRange { object, offset_bytes, length_bytes, block_bytes, blocks })
}

//! Log records: one operation each, every type of OpenZFS 2.3.
//!
//! Idea: a record is a header of 32 bytes, fixed fields and a variable part of names or data. It decodes to
//! a typed operation, with names as bytes (they need not be UTF-8) and data as slices shared with the log
//! block. Types that do nearly the same (`TX_CREATE`, `TX_MKDIR_ACL_ATTR`...) become one operation with
//! options; encoding chooses the type again.
//!
//! Layout:
//!
//! ```text
//!   txtype (8; bit 63: names without regard to case) | reclen (8) | txg (8) | seq (8) | fields ...
//! ```
//!
//! Source: OpenZFS `zil.h`, `zfs_log.c`, `zfs_replay.c`.

mod decode;
mod encode;

use bytes::Bytes;

use super::attr::{LogAcl, LogAttrs};
use crate::blkptr::{BLKPTR_BYTES, Blkptr};
use crate::units::{ObjectId, Txg};

/// Bytes of the header, `lr_t`.
pub const LR_BYTES: usize = 32;
/// Bytes of a `lr_create_t` up to its name: the header, the directory, and eight words of the object.
const LR_CREATE_BYTES: usize = LR_BYTES + 9 * 8;
/// Bytes of a `lr_write_t` up to its data: the header, four words and a pointer.
const LR_WRITE_BYTES: usize = LR_BYTES + 4 * 8 + BLKPTR_BYTES;

const _: () = assert!(LR_CREATE_BYTES == 104 && LR_WRITE_BYTES == 192);
/// `TX_CI`: names in the record are to be looked up ignoring case.
pub const TX_CI: u64 = 1 << 63;

/// Record types, `TX_*`.
#[allow(missing_docs)]
pub mod tx {
    pub const COMMIT: u64 = 0;
    pub const CREATE: u64 = 1;
    pub const MKDIR: u64 = 2;
    pub const MKXATTR: u64 = 3;
    pub const SYMLINK: u64 = 4;
    pub const REMOVE: u64 = 5;
    pub const RMDIR: u64 = 6;
    pub const LINK: u64 = 7;
    pub const RENAME: u64 = 8;
    pub const WRITE: u64 = 9;
    pub const TRUNCATE: u64 = 10;
    pub const SETATTR: u64 = 11;
    pub const ACL_V0: u64 = 12;
    pub const ACL: u64 = 13;
    pub const CREATE_ACL: u64 = 14;
    pub const CREATE_ATTR: u64 = 15;
    pub const CREATE_ACL_ATTR: u64 = 16;
    pub const MKDIR_ACL: u64 = 17;
    pub const MKDIR_ATTR: u64 = 18;
    pub const MKDIR_ACL_ATTR: u64 = 19;
    pub const WRITE2: u64 = 20;
    pub const SETSAXATTR: u64 = 21;
    pub const RENAME_EXCHANGE: u64 = 22;
    pub const RENAME_WHITEOUT: u64 = 23;
    pub const CLONE_RANGE: u64 = 24;
}

/// A record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// The txg that the operation would have become part of.
    pub txg: Txg,
    /// Number within the log; grows from record to record.
    pub seq: u64,
    /// Names are to be looked up ignoring case.
    pub case_insensitive: bool,
    /// What was done.
    pub operation: Operation,
}

/// The part of a record that is never encrypted: enough to tell which blocks belong to a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearRecord {
    /// Number within the log.
    pub seq: u64,
    /// The block of a `TX_WRITE`.
    pub written: Option<WrittenBlock>,
    /// The blocks of a `TX_CLONE_RANGE`, holes included, which belong to others, too.
    pub shared: Vec<Blkptr>,
}

/// The block that a write refers to; a hole if the record holds the data itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenBlock {
    /// The file. Meaningless if the record is encrypted, as the pointer tells.
    pub object: ObjectId,
    /// Offset in the file; meaningless in the same case.
    pub offset_bytes: u64,
    /// The block.
    pub bp: Blkptr,
}

/// The kind of object that a `Create` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateKind {
    /// A file or device.
    File,
    /// A directory.
    Directory,
}

/// How a `Rename` treats the target and the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenameKind {
    /// Replaces the target.
    Replace,
    /// Swaps the two.
    Exchange,
    /// Leaves a whiteout (a character device 0:0) at the source; its `directory` is the source's.
    Whiteout(NewObject),
}

/// The object that a record creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewObject {
    /// The directory that it is created in.
    pub directory: ObjectId,
    /// Its number.
    pub object: ObjectId,
    /// Dnode slots that it occupies, 1 to 32 (up to 256 in damaged records).
    pub slots: u16,
    /// POSIX mode.
    pub mode: u64,
    /// Owner: a uid or FUID.
    pub uid: u64,
    /// Group: a gid or FUID.
    pub gid: u64,
    /// Generation.
    pub generation: u64,
    /// Creation time: seconds, nanoseconds.
    pub crtime: [u64; 2],
    /// Device number.
    pub rdev: u64,
}

/// The data of a write record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteData {
    /// The record holds the data.
    Copied(Bytes),
    /// A block holds the data; a hole means zeros.
    Indirect,
}

/// An operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// `TX_CREATE`, `TX_MKDIR` and their `_ACL`, `_ATTR` and `_ACL_ATTR` forms.
    Create {
        /// File or directory.
        kind: CreateKind,
        /// The object.
        new: NewObject,
        /// Attributes beyond POSIX's.
        attrs: Option<LogAttrs>,
        /// Its ACL.
        acl: Option<LogAcl>,
        /// Domains of owner and group, if there is no ACL (which has its own).
        domains: Vec<Bytes>,
        /// Its name.
        name: Bytes,
    },
    /// `TX_MKXATTR`: the directory of extended attributes of `new.directory`.
    MakeXattrDir {
        /// The object.
        new: NewObject,
        /// Unused.
        name: Bytes,
    },
    /// `TX_SYMLINK`.
    Symlink {
        /// The object.
        new: NewObject,
        /// Its name.
        name: Bytes,
        /// Its target.
        target: Bytes,
    },
    /// `TX_REMOVE`, and `TX_RMDIR` if `is_directory`.
    Remove {
        /// A directory was removed.
        is_directory: bool,
        /// The directory it was in.
        directory: ObjectId,
        /// Its name.
        name: Bytes,
    },
    /// `TX_LINK`.
    Link {
        /// The directory of the new name.
        directory: ObjectId,
        /// The object that gets another name.
        object: ObjectId,
        /// The name.
        name: Bytes,
    },
    /// `TX_RENAME`, `TX_RENAME_EXCHANGE`, `TX_RENAME_WHITEOUT`.
    Rename {
        /// What becomes of target and source.
        kind: RenameKind,
        /// Directory that it moves from.
        from_directory: ObjectId,
        /// Directory that it moves to.
        to_directory: ObjectId,
        /// Old name.
        from: Bytes,
        /// New name.
        to: Bytes,
    },
    /// `TX_WRITE`; `TX_WRITE2` if `already_synced`: the data are on disk, only the size may have to grow.
    Write {
        /// The block is part of the file already.
        already_synced: bool,
        /// The file.
        object: ObjectId,
        /// Offset in the file.
        offset_bytes: u64,
        /// Length.
        length_bytes: u64,
        /// No longer used by writers.
        block_offset: u64,
        /// The block of an indirect write.
        bp: Blkptr,
        /// The data, or that a block holds them.
        data: WriteData,
    },
    /// `TX_TRUNCATE`: turns a range into a hole; `length_bytes` 0 means everything from the offset on.
    Truncate {
        /// The file.
        object: ObjectId,
        /// Offset of the range.
        offset_bytes: u64,
        /// Length of the range.
        length_bytes: u64,
    },
    /// `TX_SETATTR`.
    SetAttr {
        /// The object.
        object: ObjectId,
        /// Which fields are set, in bits of the operating system that wrote the record.
        mask: u64,
        /// POSIX mode.
        mode: u64,
        /// Owner.
        uid: u64,
        /// Group.
        gid: u64,
        /// Size.
        size_bytes: u64,
        /// Access time: seconds, nanoseconds.
        atime: [u64; 2],
        /// Modification time: seconds, nanoseconds.
        mtime: [u64; 2],
        /// Attributes beyond POSIX's.
        attrs: Option<LogAttrs>,
        /// Domains of owner and group.
        domains: Vec<Bytes>,
    },
    /// `TX_ACL_V0`: entries of the old format.
    SetAclV0 {
        /// The object.
        object: ObjectId,
        /// Number of entries.
        entry_count: u64,
        /// The entries, in the writer's byte order.
        entries: Bytes,
    },
    /// `TX_ACL`.
    SetAcl {
        /// The object.
        object: ObjectId,
        /// The ACL.
        acl: LogAcl,
    },
    /// `TX_SETSAXATTR`: an extended attribute among the system attributes.
    SetSaXattr {
        /// The object.
        object: ObjectId,
        /// The attribute.
        name: Bytes,
        /// Its value; empty if the attribute is removed.
        value: Bytes,
    },
    /// `TX_CLONE_RANGE`: blocks of another file become part of this one.
    CloneRange {
        /// The file.
        object: ObjectId,
        /// Offset of the range.
        offset_bytes: u64,
        /// Length of the range.
        length_bytes: u64,
        /// The file's block size.
        block_bytes: u64,
        /// The blocks.
        blocks: Vec<Blkptr>,
    },
    /// A type unknown to OpenZFS 2.3 (or `TX_COMMIT`, which is never on disk). Replay must stop here.
    Unknown {
        /// The type without `TX_CI`.
        txtype: u64,
        /// The bytes after the header.
        payload: Bytes,
    },
}

impl Operation {
    /// The object of a record that concerns one object only. Such a record may follow records of later
    /// operations (`TX_OOO`).
    pub fn late_object(&self) -> Option<ObjectId> {
        match self {
            Operation::Write { object, .. }
            | Operation::Truncate { object, .. }
            | Operation::SetAttr { object, .. }
            | Operation::SetAcl { object, .. }
            | Operation::SetAclV0 { object, .. }
            | Operation::SetSaXattr { object, .. }
            | Operation::CloneRange { object, .. } => Some(*object),
            _ => None,
        }
    }

    /// The record's type, without `TX_CI`.
    pub fn txtype(&self) -> u64 {
        match self {
            Operation::Create { kind, attrs, acl, .. } => match (kind, acl.is_some(), attrs.is_some()) {
                (CreateKind::File, false, false) => tx::CREATE,
                (CreateKind::File, true, false) => tx::CREATE_ACL,
                (CreateKind::File, false, true) => tx::CREATE_ATTR,
                (CreateKind::File, true, true) => tx::CREATE_ACL_ATTR,
                (CreateKind::Directory, false, false) => tx::MKDIR,
                (CreateKind::Directory, true, false) => tx::MKDIR_ACL,
                (CreateKind::Directory, false, true) => tx::MKDIR_ATTR,
                (CreateKind::Directory, true, true) => tx::MKDIR_ACL_ATTR,
            },
            Operation::MakeXattrDir { .. } => tx::MKXATTR,
            Operation::Symlink { .. } => tx::SYMLINK,
            Operation::Remove { is_directory: false, .. } => tx::REMOVE,
            Operation::Remove { is_directory: true, .. } => tx::RMDIR,
            Operation::Link { .. } => tx::LINK,
            Operation::Rename { kind: RenameKind::Replace, .. } => tx::RENAME,
            Operation::Rename { kind: RenameKind::Exchange, .. } => tx::RENAME_EXCHANGE,
            Operation::Rename { kind: RenameKind::Whiteout(_), .. } => tx::RENAME_WHITEOUT,
            Operation::Write { already_synced: false, .. } => tx::WRITE,
            Operation::Write { already_synced: true, .. } => tx::WRITE2,
            Operation::Truncate { .. } => tx::TRUNCATE,
            Operation::SetAttr { .. } => tx::SETATTR,
            Operation::SetAclV0 { .. } => tx::ACL_V0,
            Operation::SetAcl { .. } => tx::ACL,
            Operation::SetSaXattr { .. } => tx::SETSAXATTR,
            Operation::CloneRange { .. } => tx::CLONE_RANGE,
            Operation::Unknown { txtype, .. } => *txtype,
        }
    }

    /// The name that OpenZFS gives the type.
    pub fn type_name(&self) -> &'static str {
        const NAMES: [&str; 25] = [
            "TX_COMMIT",
            "TX_CREATE",
            "TX_MKDIR",
            "TX_MKXATTR",
            "TX_SYMLINK",
            "TX_REMOVE",
            "TX_RMDIR",
            "TX_LINK",
            "TX_RENAME",
            "TX_WRITE",
            "TX_TRUNCATE",
            "TX_SETATTR",
            "TX_ACL_V0",
            "TX_ACL",
            "TX_CREATE_ACL",
            "TX_CREATE_ATTR",
            "TX_CREATE_ACL_ATTR",
            "TX_MKDIR_ACL",
            "TX_MKDIR_ATTR",
            "TX_MKDIR_ACL_ATTR",
            "TX_WRITE2",
            "TX_SETSAXATTR",
            "TX_RENAME_EXCHANGE",
            "TX_RENAME_WHITEOUT",
            "TX_CLONE_RANGE",
        ];
        usize::try_from(self.txtype()).ok().and_then(|i| NAMES.get(i)).copied().unwrap_or("unknown")
    }
}

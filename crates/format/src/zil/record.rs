//! ZIL records: one operation each, every type of OpenZFS 2.3.
//!
//! Idea: a record is a 32-byte header, fixed fields and a variable part of names or data. It decodes to a
//! typed operation. Names are bytes (they need not be UTF-8); data are slices of the log block. Related types
//! (`TX_CREATE`, `TX_MKDIR_ACL_ATTR`...) become one operation with options; encoding restores the type.
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

/// Header bytes, `lr_t`.
pub const LR_BYTES: usize = 32;
/// Bytes of `lr_create_t` before the name: header, directory, eight words of the object.
const LR_CREATE_BYTES: usize = LR_BYTES + 9 * 8;
/// Bytes of `lr_write_t` before the data: header, four words, a pointer.
const LR_WRITE_BYTES: usize = LR_BYTES + 4 * 8 + BLKPTR_BYTES;

const _: () = assert!(LR_CREATE_BYTES == 104 && LR_WRITE_BYTES == 192);
/// `TX_CI`: look up the record's names ignoring case.
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

/// Log record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Txg that would have contained the operation.
    pub txg: Txg,
    /// Sequence number; grows from record to record.
    pub seq: u64,
    /// Look up names ignoring case.
    pub case_insensitive: bool,
    /// Operation.
    pub operation: Operation,
}

/// The unencrypted part of a record: it suffices to claim the log's blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearRecord {
    /// Sequence number.
    pub seq: u64,
    /// Block of a `TX_WRITE`.
    pub written: Option<WrittenBlock>,
    /// Blocks of a `TX_CLONE_RANGE`, holes included; other files share them.
    pub shared: Vec<Blkptr>,
}

/// Block of a write record; a hole if the record holds the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenBlock {
    /// The file. Meaningless if the record is encrypted, as the pointer tells.
    pub object: ObjectId,
    /// Offset in the file; meaningless likewise.
    pub offset_bytes: u64,
    /// Block pointer.
    pub bp: Blkptr,
}

/// Kind of a created object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateKind {
    /// File or device.
    File,
    /// Directory.
    Directory,
}

/// Treatment of a rename's target and source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenameKind {
    /// Replaces the target.
    Replace,
    /// Swaps source and target.
    Exchange,
    /// Leaves a whiteout (character device 0:0) at the source; its `directory` is the source's.
    Whiteout(NewObject),
}

/// Created object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewObject {
    /// Parent directory.
    pub directory: ObjectId,
    /// Object number.
    pub object: ObjectId,
    /// Dnode slots, 1 to 32 (up to 256 in damaged records).
    pub slots: u16,
    /// POSIX mode.
    pub mode: u64,
    /// Uid or FUID.
    pub uid: u64,
    /// Gid or FUID.
    pub gid: u64,
    /// Generation.
    pub generation: u64,
    /// Creation time: seconds, nanoseconds.
    pub crtime: [u64; 2],
    /// Device number.
    pub rdev: u64,
}

/// Data of a write record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteData {
    /// In the record.
    Copied(Bytes),
    /// In a block; a hole means zeros.
    Indirect,
}

/// Operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// `TX_CREATE`, `TX_MKDIR` and their `_ACL`, `_ATTR` and `_ACL_ATTR` forms.
    Create {
        /// File or directory.
        kind: CreateKind,
        /// Object.
        new: NewObject,
        /// Attributes beyond POSIX.
        attrs: Option<LogAttrs>,
        /// ACL.
        acl: Option<LogAcl>,
        /// Domains of owner and group, unless the ACL carries them.
        domains: Vec<Bytes>,
        /// Name.
        name: Bytes,
    },
    /// `TX_MKXATTR`: creates the xattr directory of `new.directory`.
    MakeXattrDir {
        /// Object.
        new: NewObject,
        /// Unused.
        name: Bytes,
    },
    /// `TX_SYMLINK`.
    Symlink {
        /// Object.
        new: NewObject,
        /// Link name.
        name: Bytes,
        /// Link target.
        target: Bytes,
    },
    /// `TX_REMOVE`, and `TX_RMDIR` if `is_directory`.
    Remove {
        /// Whether it was a directory.
        is_directory: bool,
        /// Parent directory.
        directory: ObjectId,
        /// Name.
        name: Bytes,
    },
    /// `TX_LINK`.
    Link {
        /// Directory of the new name.
        directory: ObjectId,
        /// Object to link.
        object: ObjectId,
        /// New name.
        name: Bytes,
    },
    /// `TX_RENAME`, `TX_RENAME_EXCHANGE`, `TX_RENAME_WHITEOUT`.
    Rename {
        /// Treatment of target and source.
        kind: RenameKind,
        /// Source directory.
        from_directory: ObjectId,
        /// Target directory.
        to_directory: ObjectId,
        /// Old name.
        from: Bytes,
        /// New name.
        to: Bytes,
    },
    /// `TX_WRITE`; `TX_WRITE2` if `already_synced`: the data are on disk, only the size may have to grow.
    Write {
        /// Whether the file already has the block.
        already_synced: bool,
        /// File.
        object: ObjectId,
        /// Offset in the file.
        offset_bytes: u64,
        /// Length.
        length_bytes: u64,
        /// Obsolete.
        block_offset: u64,
        /// Block of an indirect write.
        bp: Blkptr,
        /// Data, or a reference to `bp`.
        data: WriteData,
    },
    /// `TX_TRUNCATE`: makes a hole; `length_bytes` 0 means to the end.
    Truncate {
        /// File.
        object: ObjectId,
        /// Start of the range.
        offset_bytes: u64,
        /// Length.
        length_bytes: u64,
    },
    /// `TX_SETATTR`.
    SetAttr {
        /// Object.
        object: ObjectId,
        /// Fields to set, as the writing operating system's mask bits.
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
        /// Attributes beyond POSIX.
        attrs: Option<LogAttrs>,
        /// Domains of owner and group.
        domains: Vec<Bytes>,
    },
    /// `TX_ACL_V0`: old-format entries.
    SetAclV0 {
        /// Object.
        object: ObjectId,
        /// Entries.
        entry_count: u64,
        /// ACL entries in the writer's byte order.
        entries: Bytes,
    },
    /// `TX_ACL`.
    SetAcl {
        /// Object.
        object: ObjectId,
        /// ACL.
        acl: LogAcl,
    },
    /// `TX_SETSAXATTR`: an xattr stored as a system attribute.
    SetSaXattr {
        /// Object.
        object: ObjectId,
        /// Attribute name.
        name: Bytes,
        /// Value; empty to remove the attribute.
        value: Bytes,
    },
    /// `TX_CLONE_RANGE`: this file shares another file's blocks.
    CloneRange {
        /// File.
        object: ObjectId,
        /// Start of the range.
        offset_bytes: u64,
        /// Length.
        length_bytes: u64,
        /// Block size of the file.
        block_bytes: u64,
        /// Blocks.
        blocks: Vec<Blkptr>,
    },
    /// A type unknown to OpenZFS 2.3, or `TX_COMMIT`, which is never on disk. Replay must stop here.
    Unknown {
        /// Type without `TX_CI`.
        txtype: u64,
        /// Bytes after the header.
        payload: Bytes,
    },
}

impl Operation {
    /// The object, if the record concerns a single one. Such a record may follow records of later operations
    /// (`TX_OOO`).
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

    /// Type without `TX_CI`.
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

    /// OpenZFS name of the type.
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

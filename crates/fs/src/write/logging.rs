//! Writes itx records for operations, so that a commit can make them durable: see [`cenote_engine::zil`].
//!
//! Idea: a successful operation records the facts for its replay while it still holds its locks. Operations
//! on files without names are not recorded: such files are unreachable after a crash.
//!
//! Source: OpenZFS `zfs_log.c`.

use std::ops::Range;

use bytes::Bytes;
use cenote_engine::zil::Log;
use cenote_format::blkptr::Blkptr;
use cenote_format::bytes::Endian;
use cenote_format::sa::ZplAttr;
use cenote_format::units::{ObjectId, Txg};
use cenote_format::zil::attr::{LogAcl, LogAttrs};
use cenote_format::zil::record::{CreateKind, NewObject, Operation, RenameKind};
use cenote_format::znode::{FileKind, encode_log_aces};

use super::znode::Znode;
use super::{Change, FsWriter, SetAttr};
use crate::acl::Ace;
use crate::attr::{Timestamp, pflags};
use crate::error::Result;
use crate::log_attrs::{ATTR_XVATTR, XAT0_CREATETIME, XAT0_FLAGS, XAT0_PROJID, mask};

/// `V4_ACL_WIDE_FLAGS`.
const ACL_WIDE_FLAGS: u64 = pflags::ACL_AUTO_INHERIT | pflags::ACL_PROTECTED | pflags::ACL_DEFAULTED;
/// `XVA_MAPSIZE`.
const ATTR_WORDS: usize = 3;

/// Records of one operation, if there is a log.
pub(super) struct Notes<'a> {
    fs: &'a FsWriter,
    log: Option<&'a Log>,
    change: Change<'a>,
}

impl<'a> Notes<'a> {
    pub(super) fn of(fs: &'a FsWriter, change: Change<'a>) -> Notes<'a> {
        Notes { fs, log: fs.log(), change }
    }

    /// Whether anything is recorded.
    pub(super) fn are_kept(&self) -> bool {
        self.log.is_some()
    }

    fn txg(&self) -> Txg {
        self.change.edit.txg()
    }

    /// The log, if the file has names.
    fn log_of(&self, node: &Znode) -> Option<&Log> {
        self.log.filter(|_| node.find_u64(ZplAttr::Links) != Some(0))
    }

    /// Records an operation whose outcome depends on these objects: their waiting records come first.
    fn note_after(&self, objects: &[ObjectId], operation: impl FnOnce() -> Operation) {
        if let Some(log) = self.log {
            log.append_after(self.txg(), objects, operation());
        }
    }

    /// Records a file created with its name. An inherited ACL is recorded, too: it depends on the requested
    /// mode, which no record has.
    pub(super) fn created(&self, parent: &Znode, name: &[u8], node: &Znode) -> Result<()> {
        let dir = parent.id;
        let new = new_object(node, dir)?;
        let name = Bytes::copy_from_slice(name);
        let inherited = self.inherited_acl(parent, node)?;
        let operation = match (node.kind()?, node.get(ZplAttr::Symlink)) {
            (FileKind::Symlink, Some(target)) => {
                Operation::Symlink { new, name, target: Bytes::copy_from_slice(target) }
            }
            (kind, _) => {
                let kind = if kind == FileKind::Directory { CreateKind::Directory } else { CreateKind::File };
                let acl = inherited.clone();
                Operation::Create { kind, new, attrs: None, acl, domains: Vec::new(), name }
            }
        };
        // The record depends on the directory, which determines inheritance.
        let is_link = matches!(operation, Operation::Symlink { .. });
        self.note_after(&[dir], || operation);
        if let Some(acl) = inherited.filter(|_| is_link) {
            self.note_after(&[], || Operation::SetAcl { object: node.id, acl });
        }
        Ok(())
    }

    /// Records a rename's whiteout, whose own record has no place for an ACL.
    pub(super) fn inherited(&self, parent: &Znode, node: &Znode) -> Result<()> {
        if let Some(acl) = self.inherited_acl(parent, node)? {
            self.note_after(&[], || Operation::SetAcl { object: node.id, acl });
        }
        Ok(())
    }

    /// The ACL of a new file, unless it follows from the mode alone.
    fn inherited_acl(&self, parent: &Znode, node: &Znode) -> Result<Option<LogAcl>> {
        if self.log.is_none() || !parent.has_flag(pflags::INHERIT_ACE)? {
            return Ok(None);
        }
        Ok(self.log_acl(&node.acl()?, node.flags()? & ACL_WIDE_FLAGS))
    }

    /// An ACL in the form of a record; if that can't express it, the next commit writes the txg.
    fn log_acl(&self, entries: &[Ace], flags: u64) -> Option<LogAcl> {
        if entries.iter().any(Ace::names_domain) {
            self.log.inspect(|log| log.cannot_say(self.txg()));
            return None;
        }
        Some(LogAcl {
            entry_count: entries.len() as u64,
            flags,
            entries: encode_log_aces(entries, Endian::NATIVE).into(),
            fuids: Vec::new(),
            domains: Vec::new(),
        })
    }

    /// A file got a hidden directory.
    pub(super) fn xattr_dir(&self, node: &Znode, dir: &Znode) -> Result<()> {
        let new = new_object(dir, node.id)?;
        self.note_after(&[], || Operation::MakeXattrDir { new, name: Bytes::new() });
        Ok(())
    }

    /// A file lost a name, perhaps its last.
    pub(super) fn removed(
        &self,
        directory: ObjectId,
        name: &[u8],
        is_directory: bool,
        gone: Option<ObjectId>,
    ) {
        let name = Bytes::copy_from_slice(name);
        self.note_after(&[], || Operation::Remove { is_directory, directory, name });
        gone.inspect(|&gone| self.forget(gone));
    }

    /// A file got another name. Programs may rely on its earlier writes, as with a rename.
    pub(super) fn linked(&self, directory: ObjectId, object: ObjectId, name: &[u8]) {
        let name = Bytes::copy_from_slice(name);
        self.note_after(&[directory, object], || Operation::Link { directory, object, name });
    }

    /// Records moved names. Earlier writes to these files enter the log first, since programs that rename a
    /// file over another rely on it.
    pub(super) fn renamed(
        &self,
        files: &[ObjectId],
        kind: RenameKind,
        (from_directory, from): (ObjectId, &[u8]),
        (to_directory, to): (ObjectId, &[u8]),
    ) {
        let (from, to) = (Bytes::copy_from_slice(from), Bytes::copy_from_slice(to));
        let depends_on = [files, &[from_directory, to_directory]].concat();
        self.note_after(&depends_on, || Operation::Rename { kind, from_directory, to_directory, from, to });
    }

    /// An object lost its last name, which is recorded, or is about to be freed.
    pub(super) fn forget(&self, gone: ObjectId) {
        self.log.inspect(|log| log.forget(gone));
    }

    pub(super) fn written(&self, node: &Znode, range: Range<u64>) {
        if let Some(log) = self.log_of(node) {
            log.append_write(self.txg(), node.id, range, node.block_bytes.into());
        }
    }

    /// A range now shares blocks of other files.
    pub(super) fn cloned(&self, node: &Znode, range: Range<u64>, blocks: Vec<Blkptr>) {
        if let Some(log) = self.log_of(node) {
            let operation = Operation::CloneRange {
                object: node.id,
                offset_bytes: range.start,
                length_bytes: range.end - range.start,
                block_bytes: node.block_bytes.into(),
                blocks,
            };
            log.append(self.txg(), operation);
        }
    }

    /// A range was cleared in a file that keeps its size or ends with the range.
    pub(super) fn punched(&self, node: &Znode, range: Range<u64>) {
        let Some(log) = self.log_of(node) else { return };
        match range.end.checked_sub(range.start) {
            None | Some(0) => self.touched(node),
            Some(length_bytes) => {
                let (object, offset_bytes) = (node.id, range.start);
                log.append(self.txg(), Operation::Truncate { object, offset_bytes, length_bytes });
            }
        }
    }

    /// A file is about to be truncated to zero.
    pub(super) fn emptying(&self, node: &Znode) {
        let Some(log) = self.log_of(node) else { return };
        let all = Operation::Truncate { object: node.id, offset_bytes: 0, length_bytes: 0 };
        log.append_cut(self.txg(), all, (node.id, 0));
    }

    /// For operations recorded in advance: if one failed, no record describes the result, so the log can't be
    /// used.
    pub(super) fn noted_before<T>(&self, outcome: Result<T>) -> Result<T> {
        if let (Err(_), Some(log)) = (&outcome, self.log) {
            log.cannot_say(self.txg());
        }
        outcome
    }

    /// Records a change of times only: the content's change time. A replay sets the attributes' change time
    /// to its own.
    pub(super) fn touched(&self, node: &Znode) {
        let mtime = node.get(ZplAttr::Mtime).map(words_of).map(|[seconds, nanoseconds]| Timestamp {
            seconds: seconds.cast_signed(),
            nanoseconds: nanoseconds as u32,
        });
        self.attributes(node, &SetAttr { mtime, ..SetAttr::default() });
    }

    /// An attribute was put into the packed list, or removed from it.
    pub(super) fn xattr(&self, node: &Znode, name: &[u8], value: Option<&[u8]>) {
        let Some(log) = self.log_of(node) else { return };
        // A record can't distinguish an empty value from none.
        if !self.fs.options().logs_xattrs || value.is_some_and(<[u8]>::is_empty) {
            log.cannot_say(self.txg());
        } else {
            let name = Bytes::copy_from_slice(name);
            let value = Bytes::copy_from_slice(value.unwrap_or_default());
            log.append(self.txg(), Operation::SetSaXattr { object: node.id, name, value });
        }
    }

    pub(super) fn acl(&self, node: &Znode, entries: &[Ace], flags: u64) {
        let Some(log) = self.log_of(node) else { return };
        if let Some(acl) = self.log_acl(entries, flags) {
            log.append(self.txg(), Operation::SetAcl { object: node.id, acl });
        }
    }

    /// Attributes were set, or are about to be; the size is always about to be.
    pub(super) fn attributes(&self, node: &Znode, set: &SetAttr) {
        let Some(log) = self.log_of(node) else { return };
        let mtime = set.mtime.or(set.size.map(|_| self.change.now));
        let attrs = log_attrs(set);
        let mut bits = if attrs.is_some() { ATTR_XVATTR } else { 0 };
        for (bit, is_set) in [
            (mask::MODE, set.mode.is_some()),
            (mask::UID, set.uid.is_some()),
            (mask::GID, set.gid.is_some()),
            (mask::SIZE, set.size.is_some()),
            (mask::ATIME, set.atime.is_some()),
            (mask::MTIME, mtime.is_some()),
        ] {
            bits |= if is_set { bit } else { 0 };
        }
        let operation = Operation::SetAttr {
            object: node.id,
            mask: bits,
            mode: set.mode.unwrap_or_default().into(),
            uid: set.uid.unwrap_or_default(),
            gid: set.gid.unwrap_or_default(),
            size_bytes: set.size.unwrap_or_default(),
            atime: words(set.atime.unwrap_or_default()),
            mtime: words(mtime.unwrap_or_default()),
            attrs,
            domains: Vec::new(),
        };
        match set.size {
            Some(size) => log.append_cut(self.txg(), operation, (node.id, size)),
            None => log.append(self.txg(), operation),
        }
    }
}

pub(super) fn new_object(node: &Znode, directory: ObjectId) -> Result<NewObject> {
    let is_symlink = node.kind()? == FileKind::Symlink;
    Ok(NewObject {
        directory,
        object: node.id,
        // OpenZFS omits it there.
        slots: if is_symlink { 1 } else { node.slots.into() },
        mode: node.mode()?.into(),
        uid: node.u64(ZplAttr::Uid)?,
        gid: node.u64(ZplAttr::Gid)?,
        generation: node.u64(ZplAttr::Gen)?,
        crtime: words_of(node.get(ZplAttr::Crtime).unwrap_or_default()),
        rdev: node.find_u64(ZplAttr::Rdev).unwrap_or(0),
    })
}

/// A time in the form of an attribute.
fn words_of(time: &[u8]) -> [u64; 2] {
    let word =
        |at: usize| time.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_ne_bytes);
    [word(0), word(8)]
}

/// Non-POSIX attributes, if any are set.
fn log_attrs(set: &SetAttr) -> Option<LogAttrs> {
    let mut requested = 0;
    let mut attrs = 0;
    for (bit, flag) in XAT0_FLAGS {
        if (set.set_flags | set.clear_flags) & flag != 0 {
            requested |= bit;
            attrs |= if set.set_flags & flag != 0 { bit } else { 0 };
        }
    }
    requested |= if set.crtime.is_some() { XAT0_CREATETIME } else { 0 };
    let mut scanstamp = [0; 32];
    if let Some(project) = set.project {
        requested |= XAT0_PROJID;
        scanstamp[..8].copy_from_slice(&u64::from(project).to_ne_bytes());
    }
    let mut bitmap = vec![0; ATTR_WORDS];
    bitmap[0] = requested as u32;
    let crtime = words(set.crtime.unwrap_or_default());
    (requested != 0).then_some(LogAttrs { requested: bitmap, attrs, crtime, scanstamp })
}

fn words(time: Timestamp) -> [u64; 2] {
    [time.seconds.cast_unsigned(), time.nanoseconds.into()]
}

//! A file's attributes while an operation changes them: [`Znodes`] loads and saves them.

mod layouts;
pub(super) mod old;
mod store;
mod upgrade;

use bytes::Bytes;
use cenote_format::bytes::Endian;
use cenote_format::sa::{SaRegistry, SaValues, ZplAttr};
use cenote_format::units::{BlockId, ObjectId};
use cenote_format::znode::{Ace, AclForm, FileKind, decode_aces, encode_aces};

use super::Change;
use crate::acl::rules::{Acl, mode_of};
use crate::attr::{Timestamp, pflags};
use crate::error::{FsError, Result};

/// An object with its attributes in memory.
pub(super) struct Znode {
    pub id: ObjectId,
    /// The block size.
    pub block_bytes: u32,
    /// The slots occupied by its dnode.
    pub slots: u8,
    /// The highest block ever written.
    pub max_block: BlockId,
    registry: std::sync::Arc<SaRegistry>,
    values: SaValues,
    room_bytes: usize,
    spill: Option<Bytes>,
    /// The object that holds the ACL of an old znode.
    old_acl: Option<ObjectId>,
}

pub(super) use store::{Packed, Znodes};

impl Znode {
    pub(super) fn get(&self, attr: ZplAttr) -> Option<&[u8]> {
        self.values.get(self.registry.number_of(attr)?)
    }

    pub(super) fn find_u64(&self, attr: ZplAttr) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.get(attr)?.first_chunk()?))
    }

    /// A mandatory 64-bit attribute.
    pub(super) fn u64(&self, attr: ZplAttr) -> Result<u64> {
        let missing = FsError::Attributes { why: "lack a mandatory one" };
        self.find_u64(attr).ok_or_else(|| missing.of(self.id))
    }

    pub(super) fn set(&mut self, attr: ZplAttr, value: &[u8]) {
        put(&self.registry, &mut self.values, attr, value);
    }

    pub(super) fn set_u64(&mut self, attr: ZplAttr, value: u64) {
        self.set(attr, &value.to_ne_bytes());
    }

    pub(super) fn set_time(&mut self, attr: ZplAttr, time: Timestamp) {
        self.set(attr, &time_bytes(time));
        if attr == ZplAttr::Ctime {
            self.count_change();
        }
    }

    /// NFS clients of a later OpenZFS learn of changes by this count.
    fn count_change(&mut self) {
        let Some(number) = self.registry.number_of_changes() else { return };
        if let Some(count) = self.values.get(number).and_then(|value| value.first_chunk()) {
            let count = u64::from_ne_bytes(*count).wrapping_add(1);
            self.values.set(number, &count.to_ne_bytes());
        }
    }

    /// Inserts the project where `mknod` would have: space accounting expects it there.
    pub(super) fn set_project(&mut self, project: u64) {
        let numbers = (self.registry.number_of(ZplAttr::Links), self.registry.number_of(ZplAttr::Projid));
        if let (Some(links), Some(number)) = numbers {
            self.values.insert_after(links, number, &project.to_ne_bytes());
        }
    }

    pub(super) fn mode(&self) -> Result<u32> {
        Ok(self.u64(ZplAttr::Mode)? as u32)
    }

    pub(super) fn kind(&self) -> Result<FileKind> {
        Ok(FileKind::from_mode(self.u64(ZplAttr::Mode)?))
    }

    pub(super) fn is_dir(&self) -> Result<bool> {
        Ok(self.kind()? == FileKind::Directory)
    }

    pub(super) fn flags(&self) -> Result<u64> {
        self.u64(ZplAttr::Flags)
    }

    pub(super) fn has_flag(&self, flag: u64) -> Result<bool> {
        Ok(self.flags()? & flag != 0)
    }

    pub(super) fn project(&self) -> u64 {
        self.find_u64(ZplAttr::Projid).unwrap_or(0)
    }

    /// Marks a change of content (`CONTENT_MODIFIED`).
    pub(super) fn content_changed(&mut self, change: Change<'_>) -> Result<()> {
        self.set_time(ZplAttr::Mtime, change.now);
        self.set_u64(ZplAttr::Flags, self.flags()? | pflags::AV_MODIFIED);
        self.state_changed(change)
    }

    /// Marks a change of attributes (`STATE_CHANGED`).
    pub(super) fn state_changed(&mut self, change: Change<'_>) -> Result<()> {
        self.set_time(ZplAttr::Ctime, change.now);
        self.set_u64(ZplAttr::Flags, self.flags()? | pflags::ARCHIVE);
        Ok(())
    }

    pub(super) fn acl(&self) -> Result<Vec<Ace>> {
        let count = self.find_u64(ZplAttr::DaclCount).unwrap_or(0);
        let entries = self.get(ZplAttr::DaclAces).unwrap_or_default();
        decode_aces(AclForm::Fuid, entries, usize::try_from(count).unwrap_or(usize::MAX), Endian::NATIVE)
            .map_err(|source| FsError::Format { object: self.id, source })
    }

    /// Sets the ACL, and updates mode and flags.
    pub(super) fn set_acl(&mut self, acl: &Acl, mode: u32) -> Result<()> {
        const OF_ACL: u64 = pflags::ACL_AUTO_INHERIT
            | pflags::ACL_DEFAULTED
            | pflags::ACL_PROTECTED
            | pflags::ACL_TRIVIAL
            | pflags::INHERIT_ACE
            | pflags::ACL_OBJ_ACE;
        self.set_u64(ZplAttr::Flags, self.flags()? & !OF_ACL | acl.flags);
        self.set(ZplAttr::DaclAces, &encode_aces(&acl.entries, Endian::NATIVE));
        self.set_u64(ZplAttr::DaclCount, acl.entries.len() as u64);
        self.apply_acl(&acl.entries, mode)
    }

    /// Sets the mode that an ACL expresses for the file's owners.
    pub(super) fn apply_acl(&mut self, entries: &[Ace], mode: u32) -> Result<()> {
        let (mode, all_execute) = mode_of(entries, mode, self.u64(ZplAttr::Uid)?, self.u64(ZplAttr::Gid)?);
        let execute = if all_execute { pflags::NO_EXECS_DENIED } else { 0 };
        self.set_u64(ZplAttr::Flags, self.flags()? & !pflags::NO_EXECS_DENIED | execute);
        self.set_u64(ZplAttr::Mode, mode.into());
        Ok(())
    }
}

/// Sets a ZPL attribute; all are registered.
pub(super) fn put(registry: &SaRegistry, values: &mut SaValues, attr: ZplAttr, value: &[u8]) {
    if let Some(number) = registry.number_of(attr) {
        values.set(number, value);
    }
}

pub(super) fn time_bytes(time: Timestamp) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&time.seconds.to_ne_bytes());
    bytes[8..].copy_from_slice(&u64::from(time.nanoseconds).to_ne_bytes());
    bytes
}

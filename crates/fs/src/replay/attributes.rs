//! Records that change attributes and ACLs.
//!
//! Records use the attribute bits of the system that wrote them; these are Linux's. Source: OpenZFS
//! `zfs_replay.c` (`zfs_replay_setattr`, `zfs_replay_xvattr`), `zfs_vnops_os.c` (`zfs_setattr`), `xvattr.h`.

use bytes::Bytes;
use cenote_format::bytes::Endian;
use cenote_format::units::ObjectId;
use cenote_format::zil::attr::{LogAcl, LogAttrs};
use cenote_format::zil::record::Operation;
use cenote_format::znode::{AclForm, decode_aces};

use super::Replay;
use crate::acl::rules::mode_of;
use crate::attr::{Timestamp, pflags};
use crate::error::Result;
use crate::log_attrs::{XAT0_CREATETIME, XAT0_FLAGS, XAT0_PROJID, mask};

impl Replay {
    pub(super) async fn set_attr(&mut self, id: ObjectId, operation: &Operation) -> Result<()> {
        let Operation::SetAttr { mask, mode, uid, gid, size_bytes, atime, mtime, attrs, .. } = operation
        else {
            return Ok(());
        };
        let now = self.now;
        let has = |bit| mask & bit != 0;
        let node = self.node_mut(id).await?;
        if has(mask::SIZE) {
            node.content.truncate(*size_bytes);
        }
        let attr = self.attr_mut(id).await?;
        if has(mask::SIZE) {
            attr.size = *size_bytes;
        }
        if has(mask::MODE) {
            attr.mode = attr.mode & !0o7777 | *mode as u32 & 0o7777;
        }
        if has(mask::UID) {
            attr.uid = *uid;
        }
        if has(mask::GID) {
            attr.gid = *gid;
        }
        if has(mask::ATIME) {
            attr.atime = time(*atime);
        }
        if has(mask::MTIME | mask::SIZE) {
            attr.mtime = time(*mtime);
        }
        attr.ctime = now;
        match attrs {
            Some(attrs) => self.set_log_attrs(id, attrs).await,
            None => Ok(()),
        }
    }

    /// Sets non-POSIX attributes.
    pub(super) async fn set_log_attrs(&mut self, id: ObjectId, log: &LogAttrs) -> Result<()> {
        let project = self.endian().u64(log.scanstamp[..8].try_into().unwrap_or_default());
        let attr = self.attr_mut(id).await?;
        let requested = u64::from(log.requested.first().copied().unwrap_or(0));
        for (bit, flag) in XAT0_FLAGS {
            if requested & bit != 0 {
                attr.flags = if log.attrs & bit != 0 { attr.flags | flag } else { attr.flags & !flag };
            }
        }
        if requested & XAT0_CREATETIME != 0 {
            attr.crtime = time(log.crtime);
        }
        if requested & XAT0_PROJID != 0 {
            attr.project = project;
            attr.flags |= pflags::PROJID;
        }
        Ok(())
    }

    pub(super) async fn set_acl(&mut self, id: ObjectId, acl: &LogAcl) -> Result<()> {
        self.set_acl_entries(id, &acl.entries, acl.entry_count).await
    }

    /// Entries in a record are `ace_t`s with the layout of version 0.
    pub(super) async fn set_acl_entries(&mut self, id: ObjectId, entries: &Bytes, count: u64) -> Result<()> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let entries = decode_aces(AclForm::Initial, entries, count, self.endian())
            .map_err(|_| self.contradiction("has an ACL that ends within an entry"))?;
        let now = self.now;
        let node = self.node_mut(id).await?;
        if let Some(attr) = &mut node.attr {
            attr.mode = mode_of(&entries, attr.mode, attr.uid, attr.gid).0;
            attr.ctime = now;
        }
        node.acl = Some(entries);
        Ok(())
    }

    /// The byte order of opaque parts of records: that of the system that last wrote the object set.
    fn endian(&self) -> Endian {
        self.fs.objset().bp().endian()
    }
}

pub(super) fn time([seconds, nanoseconds]: [u64; 2]) -> Timestamp {
    Timestamp { seconds: seconds.cast_signed(), nanoseconds: nanoseconds as u32 }
}

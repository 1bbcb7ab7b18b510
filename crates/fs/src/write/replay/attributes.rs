//! Replays attributes, ACLs and extended attributes.

use bytes::Bytes;
use cenote_format::bytes::Endian;
use cenote_format::units::ObjectId;
use cenote_format::zil::attr::LogAttrs;
use cenote_format::zil::record::Operation;
use cenote_format::znode::{AclForm, decode_aces};

use super::super::xattr::put_listed;
use super::super::{Change, SetAttr};
use super::{Replay, contradiction, time};
use crate::error::{FsError, Result};
use crate::log_attrs::{XAT0_CREATETIME, XAT0_FLAGS, XAT0_PROJID, mask};

impl Replay<'_> {
    pub(super) async fn attributes(&self, id: ObjectId, operation: &Operation) -> Result<()> {
        let Operation::SetAttr { mask, mode, uid, gid, size_bytes, atime, mtime, attrs, .. } = operation
        else {
            return Ok(());
        };
        let has = |bit| mask & bit != 0;
        let set = SetAttr {
            mode: has(mask::MODE).then_some(*mode as u32 & 0o7777),
            uid: has(mask::UID).then_some(*uid),
            gid: has(mask::GID).then_some(*gid),
            size: has(mask::SIZE).then_some(*size_bytes),
            atime: has(mask::ATIME).then_some(time(*atime)),
            mtime: has(mask::MTIME | mask::SIZE).then_some(time(*mtime)),
            ..SetAttr::default()
        };
        let set = match attrs {
            Some(attrs) => self.with_log_attributes(set, attrs),
            None => set,
        };
        self.fs.set_attr(self.change, id, &set).await
    }

    /// Sets non-POSIX attributes.
    pub(super) async fn log_attributes(&self, id: ObjectId, attrs: &LogAttrs) -> Result<()> {
        let set = self.with_log_attributes(SetAttr::default(), attrs);
        self.fs.set_attr(self.change, id, &set).await
    }

    fn with_log_attributes(&self, set: SetAttr, log: &LogAttrs) -> SetAttr {
        let requested = u64::from(log.requested.first().copied().unwrap_or(0));
        let mut set = set;
        for (bit, flag) in XAT0_FLAGS.into_iter().filter(|(bit, _)| requested & bit != 0) {
            match log.attrs & bit != 0 {
                true => set.set_flags |= flag,
                false => set.clear_flags |= flag,
            }
        }
        if requested & XAT0_CREATETIME != 0 {
            set.crtime = Some(time(log.crtime));
        }
        if requested & XAT0_PROJID != 0 {
            let project = log.scanstamp.first_chunk().copied().unwrap_or_default();
            set.project = Some(writers_endian(self.change).u64(project) as u32);
        }
        set
    }

    /// Sets the ACL; entries in a record have the layout of version 0.
    pub(super) async fn acl(&self, id: ObjectId, entries: &Bytes, count: u64) -> Result<()> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let entries = decode_aces(AclForm::Initial, entries, count, writers_endian(self.change))
            .map_err(|_| contradiction("has an ACL that ends within an entry"))?;
        self.fs.set_acl(self.change, id, entries).await
    }

    pub(super) async fn xattr(&self, id: ObjectId, name: &[u8], value: &[u8]) -> Result<(), FsError> {
        let _held = self.fs.0.locks.exclusive(&[id]).await;
        let mut node = self.fs.load(self.change.edit, id).await?;
        let name = std::str::from_utf8(name).map_err(|_| {
            contradiction(
                "has an attribute name that is not \
            text",
            )
        })?;
        put_listed(&mut node, name, value)?;
        node.state_changed(self.change)?;
        self.fs.save(self.change.edit, &mut node).await
    }
}

/// The byte order of opaque parts of records: that of the system that last wrote the object set.
fn writers_endian(change: Change<'_>) -> Endian {
    change.edit.view().bp().endian()
}

//! Sets attributes: `chmod`, `chown`, `utimens`, `truncate`, `chattr`, or all at once when copying files in.
//!
//! Source: OpenZFS `zfs_vnops_os.c` (`zfs_setattr`), `zfs_acl.c` (`zfs_aclset_common`), `sa.c`
//! (`sa_add_projid`).

use cenote_boxed::boxed;
use cenote_format::sa::ZplAttr;
use cenote_format::units::ObjectId;

use super::rules::check_settable;
use super::znode::Znode;
use super::{Change, FsWriter};
use crate::acl::Ace;
use crate::attr::{Timestamp, pflags};
use crate::error::Result;

/// Flags that users may set; the others belong to the file system.
const USERS_FLAGS: u64 = pflags::READONLY
    | pflags::HIDDEN
    | pflags::SYSTEM
    | pflags::ARCHIVE
    | pflags::IMMUTABLE
    | pflags::NOUNLINK
    | pflags::APPENDONLY
    | pflags::NODUMP
    | pflags::OPAQUE
    | pflags::OFFLINE
    | pflags::SPARSE
    | pflags::PROJINHERIT;

/// Attributes to set; `None` leaves one unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permissions, set-id and sticky bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u64>,
    /// Group.
    pub gid: Option<u64>,
    /// The size of a file.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of content.
    pub mtime: Option<Timestamp>,
    /// Creation.
    pub crtime: Option<Timestamp>,
    /// [`pflags`] to set.
    pub set_flags: u64,
    /// [`pflags`] to clear.
    pub clear_flags: u64,
    /// Project.
    pub project: Option<u32>,
}

impl SetAttr {
    /// Whether it has changes that an immutable file refuses.
    pub(super) fn is_for_mutable(&self) -> bool {
        let numbers = [self.uid, self.gid, self.size].iter().any(Option::is_some);
        numbers || self.mode.is_some() || self.mtime.is_some() || self.crtime.is_some()
    }
}

impl FsWriter {
    /// Sets attributes and the time of the last attribute change.
    ///
    /// # Errors
    /// The file is immutable, or has no size to set; damage.
    #[boxed]
    pub async fn set_attr(&self, change: Change<'_>, object: ObjectId, set: &SetAttr) -> Result<()> {
        let _held = self.0.locks.exclusive(&[object]).await;
        let mut node = self.load(change.edit, object).await?;
        check_settable(&node, set, !self.0.znodes.are_old())?;
        self.may_set(&node, set).await?;
        self.notes(change).attributes(&node, set);
        let changed = self.change_attrs(change, &mut node, set).await;
        self.notes(change).noted_before(changed)?;
        self.set_xattr_owner(change, &node, set).await
    }

    async fn change_attrs(&self, change: Change<'_>, node: &mut Znode, set: &SetAttr) -> Result<()> {
        if let Some(size) = set.size {
            self.resize(change.edit, node, size).await?;
            node.set_time(ZplAttr::Mtime, change.now);
        }
        node.set_owner(set)?;
        if let Some(mode) = set.mode {
            self.set_mode(change, node, mode).await?;
        } else if (set.uid.is_some() || set.gid.is_some()) && !node.has_flag(pflags::ACL_TRIVIAL)? {
            // Entries may refer to the new owner.
            node.apply_acl(&node.acl()?, node.mode()?)?;
        }
        let times = [(ZplAttr::Atime, set.atime), (ZplAttr::Mtime, set.mtime), (ZplAttr::Crtime, set.crtime)];
        for (attr, time) in times {
            if let Some(time) = time {
                node.set_time(attr, time);
            }
        }
        let flags = node.flags()? & !(set.clear_flags & USERS_FLAGS) | set.set_flags & USERS_FLAGS;
        node.set_u64(ZplAttr::Flags, flags);
        node.set_time(ZplAttr::Ctime, change.now);
        self.save(change.edit, node).await
    }

    /// Records a read of the file: sets its access time.
    ///
    /// # Errors
    /// The file does not exist; damage.
    #[boxed]
    pub async fn accessed(&self, change: Change<'_>, object: ObjectId) -> Result<()> {
        let _held = self.0.locks.exclusive(&[object]).await;
        let mut node = self.load(change.edit, object).await?;
        node.set_time(ZplAttr::Atime, change.now);
        self.save(change.edit, &mut node).await
    }

    /// Sets the ZFS ACL, and the mode that it expresses.
    ///
    /// # Errors
    /// The file is immutable; damage.
    #[boxed]
    pub async fn set_acl(&self, change: Change<'_>, object: ObjectId, entries: Vec<Ace>) -> Result<()> {
        let _held = self.0.locks.exclusive(&[object]).await;
        let mut node = self.load(change.edit, object).await?;
        self.may_set_acl(&node)?;
        let acl = self.acl_rules().for_entries(entries, node.flags()?, node.is_dir()?);
        node.set_acl(&acl, node.mode()?)?;
        node.state_changed(change)?;
        self.save(change.edit, &mut node).await?;
        self.notes(change).acl(&node, &acl.entries, acl.flags);
        Ok(())
    }

    /// Sets permissions, and updates both kinds of ACL.
    pub(super) async fn set_mode(
        &self,
        change: Change<'_>,
        node: &mut Znode,
        permissions: u32,
    ) -> Result<()> {
        let mode = node.mode()? & !0o7777 | permissions & 0o7777;
        let acl = self.acl_rules().for_mode(mode, node.flags()?, &node.acl()?);
        node.set_acl(&acl, mode)?;
        self.mode_to_posix_acl(change, node, mode).await
    }
}

impl Znode {
    /// Sets owner, group and project.
    pub(super) fn set_owner(&mut self, set: &SetAttr) -> Result<()> {
        for (attr, id) in [(ZplAttr::Uid, set.uid), (ZplAttr::Gid, set.gid)] {
            if let Some(id) = id {
                self.set_u64(attr, id);
            }
        }
        if let Some(project) = set.project {
            self.set_project(project.into());
            self.set_u64(ZplAttr::Flags, self.flags()? | pflags::PROJID);
        }
        Ok(())
    }
}

//! Rules from flags, projects, quotas and properties.
//!
//! Idea: a rule binds new operations. A replay repeats operations accepted under the rules of their time,
//! which may have changed since; the record of that change may come later in the log, or never. So all rules
//! are here, behind one gate ([`FsWriter::forbid`]), and do not bind the writer that replays a log
//! ([`FsWriter::for_replay`]). Checks of structure (types, existing names, non-empty directories) bind a
//! replay, too, since it must not harm the tree.
//!
//! Source: OpenZFS `zfs_acl.c` (`zfs_zaccess_common`, `zfs_zaccess_delete`), `zfs_vnops_os.c`, `zfs_dir.c`
//! (`zfs_make_xattrdir`). OpenZFS replays with the credentials of the kernel, which lifts permissions but not
//! flags and projects.

use cenote_format::sa::ZplAttr;
use cenote_format::znode::FileKind;

use super::znode::Znode;
use super::{By, FsWriter, MAX_LONG_NAME_BYTES, MAX_NAME_BYTES, SetAttr};
use crate::acl::AclMode;
use crate::attr::pflags;
use crate::error::{Refusal, Result};

/// Flags of files whose names can't change.
const FIXED: u64 = pflags::IMMUTABLE | pflags::APPENDONLY;

impl FsWriter {
    pub(super) fn for_replay(&self) -> FsWriter {
        FsWriter(self.0.clone(), By::Log)
    }

    /// Whether this writer replays a log: rules do not bind it, and consequences with their own records are
    /// left to those.
    pub(super) fn is_replay(&self) -> bool {
        self.1 == By::Log
    }

    fn forbid(&self, is_forbidden: bool, why: Refusal, file: &Znode) -> Result<()> {
        if is_forbidden && !self.is_replay() { Err(why.of(file.id)) } else { Ok(()) }
    }

    pub(super) fn may_add(&self, parent: &Znode) -> Result<()> {
        self.forbid(parent.has_flag(pflags::IMMUTABLE)?, Refusal::NotPermitted, parent)
    }

    pub(super) fn may_remove(&self, parent: &Znode, file: &Znode) -> Result<()> {
        let is_fixed = parent.has_flag(FIXED)? || file.has_flag(FIXED | pflags::NOUNLINK)?;
        self.forbid(is_fixed, Refusal::NotPermitted, file)
    }

    pub(super) fn may_link(&self, parent: &Znode, file: &Znode) -> Result<()> {
        let is_fixed = file.has_flag(FIXED | pflags::READONLY)? || parent.has_flag(pflags::IMMUTABLE)?;
        self.forbid(is_fixed, Refusal::NotPermitted, file)?;
        self.may_enter(parent, file)
    }

    /// A file may come from another directory: one with an inherited project takes only files of that.
    pub(super) fn may_enter(&self, parent: &Znode, file: &Znode) -> Result<()> {
        let is_foreign = parent.has_flag(pflags::PROJINHERIT)? && parent.project() != file.project();
        self.forbid(is_foreign, Refusal::CrossDevice, file)
    }

    pub(super) fn may_write(&self, file: &Znode, offset: u64) -> Result<()> {
        let is_appending = offset >= file.u64(ZplAttr::Size)?;
        let is_fixed = file.has_flag(pflags::IMMUTABLE | pflags::READONLY)?
            || (file.has_flag(pflags::APPENDONLY)? && !is_appending);
        self.forbid(is_fixed, Refusal::NotPermitted, file)
    }

    pub(super) fn may_clear(&self, file: &Znode) -> Result<()> {
        let fixed = pflags::IMMUTABLE | pflags::READONLY | pflags::APPENDONLY;
        self.forbid(file.has_flag(fixed)?, Refusal::NotPermitted, file)
    }

    /// Attributes of a file may be set, and its new owners are within their quotas.
    pub(super) async fn may_set(&self, file: &Znode, set: &SetAttr) -> Result<()> {
        let is_fixed = file.has_flag(pflags::IMMUTABLE)? && set.is_for_mutable();
        let has_fixed_size = file.has_flag(pflags::READONLY | pflags::APPENDONLY)? && set.size.is_some();
        let acl_stays =
            self.options().acl_mode == AclMode::Restricted && !file.has_flag(pflags::ACL_TRIVIAL)?;
        let is_forbidden = is_fixed || has_fixed_size || (acl_stays && set.mode.is_some());
        self.forbid(is_forbidden, Refusal::NotPermitted, file)?;
        self.check_new_owners(file, set).await
    }

    pub(super) fn may_set_acl(&self, file: &Znode) -> Result<()> {
        self.forbid(file.has_flag(pflags::IMMUTABLE)?, Refusal::NotPermitted, file)
    }

    pub(super) fn may_set_xattr(&self, file: &Znode) -> Result<()> {
        self.forbid(file.has_flag(FIXED)?, Refusal::NotPermitted, file)
    }

    /// The longest allowed name: `longname` may have been turned off since a record was written.
    pub(super) fn longest_name(&self) -> usize {
        if self.options().long_names || self.is_replay() { MAX_LONG_NAME_BYTES } else { MAX_NAME_BYTES }
    }
}

pub(super) fn check_settable(node: &Znode, set: &SetAttr, stores_projects: bool) -> Result<()> {
    if set.project.is_some() && !stores_projects {
        return Err(Refusal::NotSupported.of(node.id));
    }
    match (set.size, node.kind()?) {
        (Some(size), FileKind::Regular) if size > i64::MAX as u64 => Err(Refusal::TooLarge.of(node.id)),
        (None, _) | (Some(_), FileKind::Regular) => Ok(()),
        (Some(_), FileKind::Directory) => Err(Refusal::IsDirectory.of(node.id)),
        (Some(_), _) => Err(Refusal::Invalid.of(node.id)),
    }
}

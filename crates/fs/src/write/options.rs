//! Write options derived from a dataset's properties.

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, Mos};
use cenote_object::Result;

use super::ZPL_VERSION_SA;
use crate::acl::{AclInherit, AclMode};

/// Where new extended attributes are stored, property `xattr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrStore {
    /// Among the other attributes, if they fit.
    Sa,
    /// Each in a file in a hidden directory.
    Dir,
    /// Nowhere: none can be set.
    Off,
}

/// Write options derived from a dataset's properties.
#[derive(Debug, Clone, Copy)]
pub struct FsOptions {
    /// `recordsize`: a power of two from 512 to 16 MiB.
    pub record_bytes: u32,
    /// `dnodesize`, in slots of 512 bytes: 1 for `legacy`, 2 for `auto`.
    pub dnode_slots: u8,
    /// `xattr`.
    pub xattr: XattrStore,
    /// `aclmode`.
    pub acl_mode: AclMode,
    /// `aclinherit`.
    pub acl_inherit: AclInherit,
    /// `acltype=posix`: default ACLs are inherited, and a new mode changes the ACL.
    pub posix_acl: bool,
    /// Feature `project_quota` is enabled: new files store a project.
    pub projects: bool,
    /// Feature `zilsaxattr` is enabled: extended attributes in SA form are logged in the intent log.
    pub logs_xattrs: bool,
    /// Feature `block_cloning` is enabled: files may share blocks.
    pub clones: bool,
    /// Feature `physical_rewrite` is enabled: rewritten blocks may keep their logical births.
    pub rewrites_physically: bool,
    /// Property and feature `longname`: names may have up to 1023 bytes.
    pub long_names: bool,
}

impl Default for FsOptions {
    fn default() -> Self {
        FsOptions {
            record_bytes: 128 << 10,
            dnode_slots: 1,
            xattr: XattrStore::Sa,
            acl_mode: AclMode::default(),
            acl_inherit: AclInherit::default(),
            posix_acl: false,
            projects: true,
            logs_xattrs: true,
            clones: true,
            rewrites_physically: true,
            long_names: false,
        }
    }
}

impl FsOptions {
    /// Without features that the file system's version lacks.
    pub(super) fn for_version(self, version: u64) -> FsOptions {
        if version >= ZPL_VERSION_SA {
            return self;
        }
        let xattr = if self.xattr == XattrStore::Sa { XattrStore::Dir } else { self.xattr };
        FsOptions { xattr, dnode_slots: 1, projects: false, logs_xattrs: false, ..self }
    }

    /// Derives the options from a dataset's properties and its pool's features.
    ///
    /// # Errors
    /// They can't be read.
    #[boxed]
    pub async fn of(mos: &Mos, dataset: &Dataset) -> Result<FsOptions> {
        let number = async |name: &str| -> Result<Option<u64>> {
            Ok(dataset.property(name).await?.and_then(|property| property.number()))
        };
        let default = FsOptions::default();
        let enabled = mos.enabled_features().await?;
        let record_bytes = number("recordsize").await?.and_then(|bytes| u32::try_from(bytes).ok());
        Ok(FsOptions {
            record_bytes: record_bytes.unwrap_or(default.record_bytes),
            dnode_slots: match number("dnodesize").await?.unwrap_or(0) {
                0 => 1,
                // `auto` is 1 KiB.
                1 => 2,
                bytes => (bytes / 512).clamp(1, 32) as u8,
            },
            xattr: match number("xattr").await? {
                Some(0) => XattrStore::Off,
                Some(1) => XattrStore::Dir,
                _ => XattrStore::Sa,
            },
            acl_mode: match number("aclmode").await? {
                Some(2) => AclMode::GroupMask,
                Some(3) => AclMode::Passthrough,
                Some(4) => AclMode::Restricted,
                _ => AclMode::Discard,
            },
            acl_inherit: match number("aclinherit").await? {
                Some(0) => AclInherit::Discard,
                Some(1) => AclInherit::NoAllow,
                Some(3) => AclInherit::Passthrough,
                Some(5) => AclInherit::PassthroughX,
                _ => AclInherit::Restricted,
            },
            posix_acl: number("acltype").await? == Some(1),
            projects: enabled.contains("project_quota"),
            logs_xattrs: enabled.contains("zilsaxattr"),
            clones: enabled.contains("block_cloning"),
            rewrites_physically: enabled.contains("physical_rewrite"),
            long_names: number("longname").await? == Some(1) && enabled.contains("longname"),
        })
    }
}

//! Converts znodes to attributes: always in memory; on disk when a file from before the upgrade to version 5
//! is first changed.
//!
//! Source: OpenZFS `zfs_sa.c` (`zfs_sa_upgrade`), which gives them the order of new files; it leaves symbolic
//! links unchanged.

use cenote_format::bytes::Endian;
use cenote_format::sa::{SaValues, ZplAttr};
use cenote_format::units::ObjectId;
use cenote_format::znode::{FileKind, ZnodePhys, encode_aces};
use cenote_object::Edit;

use super::{Znodes, put, time_bytes};
use crate::attr::pflags;
use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;

impl Znodes {
    /// The attributes of an old znode, and the object that held only its ACL.
    pub(super) async fn upgraded(
        &self,
        edit: &Edit,
        id: ObjectId,
        has_projects: bool,
    ) -> Result<(SaValues, Option<ObjectId>)> {
        let registry = self.registry();
        let view = Filesystem::of_parts(edit.view(), self.master.clone(), registry.clone());
        let object = view.objset().object(id).await?;
        let dnode = object.dnode();
        let of = |source| FsError::Format { object: id, source };
        let znode = ZnodePhys::decode(dnode.bonus(), dnode.endian()).map_err(of)?;
        let fields = &znode.fields;
        let acl = view.acl(id).await?;
        let flags = fields.flags & !pflags::BONUS_SCANSTAMP | if has_projects { pflags::PROJID } else { 0 };

        let mut values = SaValues::new();
        let mut set = |attr, value: &[u8]| put(&registry, &mut values, attr, value);
        set(ZplAttr::Mode, &fields.mode.to_ne_bytes());
        set(ZplAttr::Size, &fields.size.to_ne_bytes());
        set(ZplAttr::Gen, &fields.generation.0.to_ne_bytes());
        set(ZplAttr::Uid, &fields.uid.0.to_ne_bytes());
        set(ZplAttr::Gid, &fields.gid.0.to_ne_bytes());
        set(ZplAttr::Parent, &fields.parent.0.to_ne_bytes());
        set(ZplAttr::Flags, &flags.to_ne_bytes());
        set(ZplAttr::Atime, &time_bytes(fields.atime.into()));
        set(ZplAttr::Mtime, &time_bytes(fields.mtime.into()));
        set(ZplAttr::Ctime, &time_bytes(fields.ctime.into()));
        set(ZplAttr::Crtime, &time_bytes(fields.crtime.into()));
        set(ZplAttr::Links, &fields.links.to_ne_bytes());
        if has_projects {
            set(ZplAttr::Projid, &[0; 8]);
        }
        if matches!(znode.kind(), FileKind::BlockDevice | FileKind::CharDevice) {
            set(ZplAttr::Rdev, &fields.rdev.to_ne_bytes());
        }
        set(ZplAttr::DaclCount, &(acl.len() as u64).to_ne_bytes());
        set(ZplAttr::DaclAces, &encode_aces(&acl, Endian::NATIVE));
        if fields.xattr.0 != 0 {
            set(ZplAttr::Xattr, &fields.xattr.0.to_ne_bytes());
        }
        if let Some(stamp) = znode.scanstamp() {
            set(ZplAttr::Scanstamp, stamp);
        }
        if znode.kind() == FileKind::Symlink {
            set(ZplAttr::Symlink, &view.read_link(id).await?);
        }
        Ok((values, znode.acl.external))
    }
}

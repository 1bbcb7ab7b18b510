//! Files of file systems before version 5: in memory they have attributes like all others, on disk a znode.
//!
//! ```text
//!   attributes --pack--> times and numbers | ACL: entries, or an object with them | target of a short link
//! ```
//!
//! [`Znodes::load`] does the reverse. Source: OpenZFS `zfs_acl.c` (`zfs_aclset_common`), `zfs_sa.c`
//! (`zfs_sa_symlink`).

use bytes::Bytes;
use cenote_format::bytes::Endian;
use cenote_format::dnode::{DnodeHead, ObjectType};
use cenote_format::sa::{SaValues, ZplAttr};
use cenote_format::units::{ObjectId, SPA_MINBLOCKSIZE, Txg};
use cenote_format::znode::{
    AclForm, AclPhys, Fuid, ZFS_ACE_SPACE, ZFS_BONUS_SCANSTAMP, ZFS_OLD_ZNODE_PHYS_SIZE, ZfsTime,
    ZnodeFields, ZnodePhys, decode_aces, encode_log_aces,
};
use cenote_object::{Edit, NewObject};

use super::{Znode, Znodes};
use crate::error::{FsError, Result};
use crate::write::ZPL_VERSION_SA;

/// `ZPL_VERSION_FUID`: ACL entries name users of any domain.
const ZPL_VERSION_FUID: u64 = 3;

impl Znodes {
    /// Whether files of this file system have znodes, and no other attributes.
    pub(in crate::write) fn are_old(&self) -> bool {
        self.master.version < ZPL_VERSION_SA
    }

    /// Packs attributes into a znode, and a long ACL into an object; `old_acl` is the object that held it so
    /// far.
    pub(super) async fn pack_old(
        &self,
        edit: &Edit,
        id: ObjectId,
        values: &SaValues,
        old_acl: Option<ObjectId>,
    ) -> Result<(Bytes, Option<ObjectId>)> {
        let acl = self.store_acl(edit, id, values, old_acl).await?;
        let external = acl.external;
        let fields = self.old_fields(values);
        let link = self.value(values, ZplAttr::Symlink).filter(|target| fits_behind(target));
        let tail = link.or_else(|| self.value(values, ZplAttr::Scanstamp)).unwrap_or_default();
        Ok((ZnodePhys::new(fields, acl, tail).encode(Endian::NATIVE).into(), external))
    }

    fn old_fields(&self, values: &SaValues) -> ZnodeFields {
        let word = |attr| word_at(self.value(values, attr), 0);
        let time = |attr| ZfsTime {
            seconds: word_at(self.value(values, attr), 0).cast_signed(),
            nanoseconds: word_at(self.value(values, attr), 8),
        };
        let stamp = match self.value(values, ZplAttr::Scanstamp) {
            Some(_) => ZFS_BONUS_SCANSTAMP,
            None => 0,
        };
        ZnodeFields {
            atime: time(ZplAttr::Atime),
            mtime: time(ZplAttr::Mtime),
            ctime: time(ZplAttr::Ctime),
            crtime: time(ZplAttr::Crtime),
            generation: Txg(word(ZplAttr::Gen)),
            mode: word(ZplAttr::Mode),
            size: word(ZplAttr::Size),
            parent: ObjectId(word(ZplAttr::Parent)),
            links: word(ZplAttr::Links),
            xattr: ObjectId(word(ZplAttr::Xattr)),
            rdev: word(ZplAttr::Rdev),
            flags: word(ZplAttr::Flags) | stamp,
            uid: Fuid(word(ZplAttr::Uid)),
            gid: Fuid(word(ZplAttr::Gid)),
            zap: ObjectId(0),
        }
    }

    /// The ACL in the form of a znode; a long one is written to its own object, which is reused if it exists.
    async fn store_acl(
        &self,
        edit: &Edit,
        id: ObjectId,
        values: &SaValues,
        old: Option<ObjectId>,
    ) -> Result<AclPhys> {
        let of = |source| FsError::Format { object: id, source };
        let stored = self.value(values, ZplAttr::DaclAces).unwrap_or_default();
        let count = word_at(self.value(values, ZplAttr::DaclCount), 0) as usize;
        let (form, object_type, packed) = match self.master.version < ZPL_VERSION_FUID {
            true => {
                let entries = decode_aces(AclForm::Fuid, stored, count, Endian::NATIVE).map_err(of)?;
                (AclForm::Initial, ObjectType::OLDACL, encode_log_aces(&entries, Endian::NATIVE))
            }
            false => (AclForm::Fuid, ObjectType::ACL, stored.to_vec()),
        };
        if packed.len() > ZFS_ACE_SPACE
            && let Some(old) = old
            && edit.view().object(old).await?.read(0, packed.len()).await? == packed
        {
            return AclPhys::new(form, count, &packed, Some(old)).map_err(of);
        }
        if let Some(old) = old {
            edit.destroy(old).await?;
        }
        if packed.len() <= ZFS_ACE_SPACE {
            return AclPhys::new(form, count, &packed, None).map_err(of);
        }
        let object = edit.create(&NewObject::of(object_type).block_bytes(block_for(&packed))).await?;
        let phys = AclPhys::new(form, count, &packed, Some(object)).map_err(of);
        edit.write(object, 0, packed.into()).await?;
        phys
    }

    /// Frees an object and everything only it owns, besides its blocks.
    pub(in crate::write) async fn destroy(&self, edit: &Edit, node: &Znode) -> Result<()> {
        if let Some(acl) = node.old_acl {
            edit.destroy(acl).await?;
        }
        Ok(edit.destroy(node.id).await?)
    }

    fn value<'a>(&self, values: &'a SaValues, attr: ZplAttr) -> Option<&'a [u8]> {
        values.get(self.registry().number_of(attr)?)
    }
}

/// Whether a link's target fits after its znode; a longer one is stored as content.
pub(in crate::write) fn fits_behind(target: &[u8]) -> bool {
    ZFS_OLD_ZNODE_PHYS_SIZE + target.len() <= DnodeHead::bonus_room(1, 1)
}

/// The block size that holds it all.
pub(in crate::write) fn block_for(content: &[u8]) -> u32 {
    content.len().next_multiple_of(SPA_MINBLOCKSIZE as usize) as u32
}

fn word_at(value: Option<&[u8]>, at: usize) -> u64 {
    let word = value.and_then(|value| value.get(at..)?.first_chunk());
    word.map_or(0, |word| u64::from_ne_bytes(*word))
}

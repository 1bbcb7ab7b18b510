//! ZFS access control lists, the kind of NFSv4: every file has one, on Linux mostly the trivial one that its mode spells.
//!
//! Linux itself does not show these lists; POSIX ACLs are extended attributes there (see `xattr`). They matter for pools
//! that other systems wrote.
//!
//! Layout of an entry: identities are stored only where the flags do not name one.
//!
//! ```text
//!   version 0   who (4)  mask (4)  flags (2)  type (2)
//!   version 1   type (2)  flags (2)  mask (4)  [who, a FUID (8)]  [object type (16)  inherited object type (16)]
//! ```
//!
//! A znode holds up to 72 bytes of entries and the number of an object with longer lists; with SA they are an attribute of any length.
//! Source: OpenZFS `zfs_acl.h`, `zfs_acl.c`, `sys/acl.h`.

use bytes::Bytes;
use cenote_dataset::Object;
use cenote_format::bytes::{Endian, Reader};
use cenote_format::sa::ZplAttr;
use cenote_format::units::ObjectId;

use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;

/// `ACE_OWNER`.
const ACE_OWNER: u16 = 0x1000;
/// `ACE_GROUP`.
const ACE_GROUP: u16 = 0x2000;
/// `ACE_EVERYONE`.
const ACE_EVERYONE: u16 = 0x4000;
/// `ACE_IDENTIFIER_GROUP`.
const ACE_IDENTIFIER_GROUP: u16 = 0x0040;
/// Where a znode keeps its list.
const ZNODE_ACL_AT: usize = 176;
/// Bytes of entries in a znode, `ZFS_ACE_SPACE`.
const ZFS_ACE_SPACE: usize = 72;
/// The longest list read: more than any system lets one make.
const MAX_ACL_BYTES: u64 = 1 << 20;

/// Whom an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// `owner@`
    Owner,
    /// `group@`
    OwningGroup,
    /// `everyone@`
    Everyone,
    /// A user, as a FUID.
    User(u64),
    /// A group, as a FUID.
    Group(u64),
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ace {
    /// Whom it is about.
    pub who: Who,
    /// 0 allow, 1 deny, 2 audit, 3 alarm; 5 to 8 the same for objects.
    pub kind: u16,
    /// Inheritance flags, without those that say whom it is about.
    pub flags: u16,
    /// Permissions, `ACE_*`.
    pub mask: u32,
}

impl Ace {
    fn new(kind: u16, flags: u16, mask: u32, id: u64) -> Ace {
        const WHO: u16 = ACE_OWNER | ACE_GROUP | ACE_EVERYONE | ACE_IDENTIFIER_GROUP;
        let who = match flags & WHO {
            ACE_OWNER => Who::Owner,
            f if f == ACE_GROUP | ACE_IDENTIFIER_GROUP || f == ACE_GROUP => Who::OwningGroup,
            ACE_EVERYONE => Who::Everyone,
            ACE_IDENTIFIER_GROUP => Who::Group(id),
            _ => Who::User(id),
        };
        Ace { who, kind, flags: flags & !WHO, mask }
    }

    /// Reads entries of version 0 or 1 until the bytes end.
    ///
    /// # Errors
    /// The last entry is cut.
    pub fn decode_all(version: u16, bytes: &[u8], endian: Endian) -> Result<Vec<Ace>> {
        let cut = |_| FsError::Attributes { why: "have an ACL that ends within an entry" };
        let mut r = Reader::new("ACL", bytes, endian);
        let mut entries = Vec::new();
        while r.remaining() > 0 {
            entries
                .push(if version == 0 { Ace::read_v0(&mut r) } else { Ace::read_v1(&mut r) }.map_err(cut)?);
        }
        Ok(entries)
    }

    fn read_v0(r: &mut Reader<'_>) -> cenote_format::Result<Ace> {
        let (id, mask, flags, kind) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
        Ok(Ace::new(kind, flags, mask, id.into()))
    }

    fn read_v1(r: &mut Reader<'_>) -> cenote_format::Result<Ace> {
        let (kind, flags, mask) = (r.u16()?, r.u16()?, r.u32()?);
        let named = matches!(Ace::new(kind, flags, mask, 0).who, Who::User(_) | Who::Group(_));
        let is_object = (5..=8).contains(&kind);
        let id = if named || is_object || kind > 1 { r.u64()? } else { 0 };
        if is_object {
            r.skip(32)?;
        }
        Ok(Ace::new(kind, flags, mask, id))
    }
}

impl Filesystem {
    /// The ZFS ACL of an object.
    ///
    /// # Errors
    /// The object does not exist or its ACL can't be read.
    pub async fn acl(&self, id: ObjectId) -> Result<Vec<Ace>> {
        if let Some(acl) = self.node(id).and_then(|node| node.acl.clone()) {
            return Ok(acl);
        }
        let object = self.object(id).await?;
        let endian = object.dnode().endian();
        let (version, bytes) = match self.attr_of(&object).await?.is_sa {
            true => (1, self.sa_bytes(&object, ZplAttr::DaclAces).await?.unwrap_or_default()),
            false => self.znode_acl(&object).await?,
        };
        Ace::decode_all(version, &bytes, endian).map_err(|e| e.of(id))
    }

    /// Version and entries of a znode's list.
    async fn znode_acl(&self, object: &Object) -> Result<(u16, Bytes)> {
        let id = object.id();
        let short = |source| FsError::Format { object: id, source };
        let bonus = object.dnode().bonus();
        let mut r =
            Reader::new("znode ACL", bonus.get(ZNODE_ACL_AT..).unwrap_or_default(), object.dnode().endian());
        let external = r.u64().map_err(short)?;
        let (size_or_count, version, count) =
            (r.u32().map_err(short)?, r.u16().map_err(short)?, r.u16().map_err(short)?);
        // Version 0 counts entries of 12 bytes where later ones count bytes.
        let len = if version == 0 { u64::from(size_or_count) * 12 } else { u64::from(size_or_count) };
        let _ = count;
        if len > MAX_ACL_BYTES {
            return Err(FsError::Attributes { why: "have an ACL of impossible length" }.of(id));
        }
        if external != 0 {
            let object = self.object(ObjectId(external)).await?;
            return Ok((version, object.read(0, len as usize).await?));
        }
        let inline = r.bytes((len as usize).min(ZFS_ACE_SPACE)).map_err(short)?;
        Ok((version, Bytes::copy_from_slice(inline)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_format::bytes::Writer;

    #[test]
    fn entries_of_both_versions_are_understood() {
        let mut w = Writer::new(Endian::Big);
        w.u32(u32::MAX).u32(0x1f).u16(ACE_OWNER).u16(0);
        w.u32(77).u32(0x3).u16(ACE_IDENTIFIER_GROUP | 2).u16(1);
        let old = Ace::decode_all(0, &w.finish(), Endian::Big).unwrap();
        assert_eq!(old[0], Ace { who: Who::Owner, kind: 0, flags: 0, mask: 0x1f });
        assert_eq!(old[1], Ace { who: Who::Group(77), kind: 1, flags: 2, mask: 3 });

        let mut w = Writer::new(Endian::Little);
        w.u16(0).u16(ACE_EVERYONE).u32(1).u16(0).u16(0).u32(2).u64(1 << 32 | 5);
        w.u16(5).u16(0).u32(4).u64(9).bytes(&[0; 32]);
        w.u16(0).u16(ACE_GROUP | ACE_IDENTIFIER_GROUP).u32(8);
        let raw = w.finish();
        let new = Ace::decode_all(1, &raw, Endian::Little).unwrap();
        let who: Vec<Who> = new.iter().map(|ace| ace.who).collect();
        assert_eq!(who, [Who::Everyone, Who::User(1 << 32 | 5), Who::User(9), Who::OwningGroup]);
        assert!(Ace::decode_all(1, &raw[..raw.len() - 1], Endian::Little).is_err());
    }
}

//! NFSv4 ACLs in their two on-disk forms.
//!
//! Layout:
//!
//! ```text
//!   in an old znode (88):  external object (8)  entries (4)  version 0 (2)  zeros (2)  entries inline (72)
//!                          external object (8)  bytes (4)    version 1 (2)  entries (2)  entries inline (72)
//!   entry, version 0 (12): who (4)  mask (4)  flags (2)  type (2)
//!   entry, version 1:      type (2)  flags (2)  mask (4)
//!                          who, a FUID (8)              unless the flags say owner@, group@ or everyone@
//!                          object types (16, 16)        if the type is one of the four with them
//! ```
//!
//! An ACL too long to be inline has its own object. ZPL version 5 keeps version 1 entries in attribute
//! `ZPL_DACL_ACES`, their number in `ZPL_DACL_COUNT`.
//!
//! Source: OpenZFS `zfs_acl.h`, `zfs_acl.c`.

use super::fuid::Fuid;
use crate::bytes::{Endian, Reader, Writer};
use crate::error::{FormatError, Result, at_most};
use crate::units::ObjectId;

/// `ACE_OWNER`.
const OWNER: u16 = 0x1000;
/// `ACE_GROUP | ACE_IDENTIFIER_GROUP`: owning group.
const OWNING_GROUP: u16 = 0x2040;
/// `ACE_EVERYONE`.
const EVERYONE: u16 = 0x4000;
/// `ACE_IDENTIFIER_GROUP`: a named group.
const IDENTIFIER_GROUP: u16 = 0x40;
/// `ACE_TYPE_FLAGS`: subject of the entry.
const TYPE_FLAGS: u16 = OWNER | OWNING_GROUP | EVERYONE;
/// `ACE_ACCESS_DENIED_ACE_TYPE`; 0 allows.
const DENIED: u16 = 1;
/// Entry types with object types, `ACE_*_OBJECT_ACE_TYPE`.
const OBJECT_TYPES: std::ops::RangeInclusive<u16> = 5..=8;
/// Inline entry bytes in an old znode, `ZFS_ACE_SPACE`.
pub const INLINE_BYTES: usize = 72;
/// ACL in an old znode, `sizeof (zfs_acl_phys_t)`: object, size or count, version, count, entries.
pub(super) const ACL_BYTES: usize = 8 + 4 + 2 + 2 + INLINE_BYTES;
const OLD_ACE_BYTES: usize = 12;
const ACE_HEAD_BYTES: usize = 8;

/// Packing of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclForm {
    /// `ZFS_ACL_VERSION_INITIAL`, 12 bytes per entry; also in `OLDACL` objects.
    Initial,
    /// `ZFS_ACL_VERSION_FUID`, 8, 16 or 48 bytes per entry; also in `ACL` objects and system attributes.
    Fuid,
}

/// Subject of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AceWho {
    /// `owner@`.
    Owner,
    /// `group@`.
    OwningGroup,
    /// `everyone@`.
    Everyone,
    /// User.
    User(Fuid),
    /// Group.
    Group(Fuid),
}

/// ACL entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ace {
    /// 0 allow, 1 deny, 2 audit, 3 alarm; others `ACE_*_ACE_TYPE`.
    pub ace_type: u16,
    /// `ACE_*` inheritance and audit bits, without the subject bits.
    pub flags: u16,
    /// Rights (`ACE_READ_DATA` ...) allowed, denied or audited.
    pub mask: u32,
    /// Subject.
    pub who: AceWho,
    /// Object and inheriting object types, if the entry type has them.
    pub object_types: Option<([u8; 16], [u8; 16])>,
}

impl Ace {
    /// Whether the subject is in another domain: its FUID exceeds 32 bits.
    pub fn names_domain(&self) -> bool {
        self.fuid().is_some_and(|fuid| fuid.0 > u64::from(u32::MAX))
    }

    fn stored_flags(&self) -> u16 {
        self.flags
            | match self.who {
                AceWho::Owner => OWNER,
                AceWho::OwningGroup => OWNING_GROUP,
                AceWho::Everyone => EVERYONE,
                AceWho::User(_) => 0,
                AceWho::Group(_) => IDENTIFIER_GROUP,
            }
    }

    fn fuid(&self) -> Option<Fuid> {
        match self.who {
            AceWho::User(fuid) | AceWho::Group(fuid) => Some(fuid),
            _ => None,
        }
    }
}

fn who(stored_flags: u16, fuid: Fuid) -> AceWho {
    match stored_flags & TYPE_FLAGS {
        OWNER => AceWho::Owner,
        OWNING_GROUP => AceWho::OwningGroup,
        EVERYONE => AceWho::Everyone,
        flags if flags & IDENTIFIER_GROUP != 0 => AceWho::Group(fuid),
        _ => AceWho::User(fuid),
    }
}

/// Whether the entry has no FUID; only allow and deny entries omit it.
fn is_bare(ace_type: u16, stored_flags: u16) -> bool {
    ace_type <= DENIED && matches!(stored_flags & TYPE_FLAGS, OWNER | OWNING_GROUP | EVERYONE)
}

/// Decodes `count` entries.
///
/// # Errors
/// Truncated entries.
pub fn decode_aces(form: AclForm, data: &[u8], count: usize, endian: Endian) -> Result<Vec<Ace>> {
    let least = if form == AclForm::Initial { OLD_ACE_BYTES } else { ACE_HEAD_BYTES };
    at_most("ACL entries", count as u64, (data.len() / least) as u64)?;
    let mut r = Reader::new("ACL", data, endian);
    (0..count).map(|_| if form == AclForm::Initial { old_ace(&mut r) } else { fuid_ace(&mut r) }).collect()
}

fn old_ace(r: &mut Reader<'_>) -> Result<Ace> {
    let (id, mask, stored_flags, ace_type) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
    let who = who(stored_flags, Fuid(id.into()));
    Ok(Ace { ace_type, flags: stored_flags & !TYPE_FLAGS, mask, who, object_types: None })
}

fn fuid_ace(r: &mut Reader<'_>) -> Result<Ace> {
    let (ace_type, stored_flags, mask) = (r.u16()?, r.u16()?, r.u32()?);
    let fuid = if is_bare(ace_type, stored_flags) { Fuid(0) } else { Fuid(r.u64()?) };
    let object_types = if OBJECT_TYPES.contains(&ace_type) { Some((r.array()?, r.array()?)) } else { None };
    Ok(Ace { ace_type, flags: stored_flags & !TYPE_FLAGS, mask, who: who(stored_flags, fuid), object_types })
}

/// Encodes version 1 entries.
pub fn encode_aces(aces: &[Ace], endian: Endian) -> Vec<u8> {
    let mut w = Writer::new(endian);
    for ace in aces {
        let stored_flags = ace.stored_flags();
        w.u16(ace.ace_type).u16(stored_flags).u32(ace.mask);
        if !is_bare(ace.ace_type, stored_flags) {
            w.u64(ace.fuid().map_or(u64::MAX, |fuid| fuid.0));
        }
        if OBJECT_TYPES.contains(&ace.ace_type) {
            let (object, inherited) = ace.object_types.unwrap_or_default();
            w.bytes(&object).bytes(&inherited);
        }
    }
    w.finish()
}

/// Encodes entries for system calls and intent logs, `ace_t`: subject (4), mask (4), flags (2), type (2).
pub fn encode_log_aces(aces: &[Ace], endian: Endian) -> Vec<u8> {
    let mut w = Writer::new(endian);
    for ace in aces {
        w.u32(ace.fuid().map_or(u32::MAX, |fuid| fuid.0 as u32)).u32(ace.mask);
        w.u16(ace.stored_flags()).u16(ace.ace_type);
    }
    w.finish()
}

/// ACL in an old znode, `zfs_acl_phys_t` or `zfs_acl_phys_v0_t`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclPhys {
    /// Object with the entries; `None` if inline.
    pub external: Option<ObjectId>,
    /// Packing.
    pub form: AclForm,
    /// Entries.
    pub count: u32,
    /// Bytes of all entries.
    pub size_bytes: u64,
    inline: [u8; INLINE_BYTES],
    endian: Endian,
}

impl AclPhys {
    /// Wraps `count` packed entries, inline unless `external`.
    ///
    /// # Errors
    /// More bytes than fit inline.
    pub fn new(form: AclForm, count: usize, packed: &[u8], external: Option<ObjectId>) -> Result<AclPhys> {
        let mut inline = [0; INLINE_BYTES];
        if external.is_none() {
            at_most("ACL bytes", packed.len() as u64, INLINE_BYTES as u64)?;
            inline[..packed.len()].copy_from_slice(packed);
        }
        let (count, size_bytes) = (count as u32, packed.len() as u64);
        Ok(AclPhys { external, form, count, size_bytes, inline, endian: Endian::NATIVE })
    }

    /// Decodes 88 bytes.
    ///
    /// # Errors
    /// Truncated bytes; a version above 1.
    pub fn read(r: &mut Reader<'_>) -> Result<AclPhys> {
        let external = r.u64()?;
        let (size_or_count, version, count) = (r.u32()?, r.u16()?, r.u16()?);
        let (form, count, size_bytes) = match version {
            0 => (AclForm::Initial, size_or_count, u64::from(size_or_count) * OLD_ACE_BYTES as u64),
            1 => (AclForm::Fuid, count.into(), size_or_count.into()),
            _ => {
                return Err(FormatError::OutOfRange { what: "ACL version", value: version.into(), bound: 1 });
            }
        };
        Ok(AclPhys {
            external: (external != 0).then_some(ObjectId(external)),
            form,
            count,
            size_bytes,
            inline: r.array()?,
            endian: r.endian(),
        })
    }

    /// Encodes 88 bytes. Inline entries keep their stored byte order.
    pub(super) fn write(&self, w: &mut Writer) {
        w.u64(self.external.map_or(0, |object| object.0));
        match self.form {
            AclForm::Initial => w.u32(self.count).u16(0).u16(0),
            AclForm::Fuid => w.u32(self.size_bytes as u32).u16(1).u16(self.count as u16),
        };
        w.bytes(&self.inline);
    }

    /// Decodes inline entries.
    ///
    /// # Errors
    /// More entries than fit inline.
    pub fn inline_aces(&self) -> Result<Vec<Ace>> {
        if self.external.is_some() {
            return Ok(Vec::new());
        }
        decode_aces(self.form, &self.inline, self.count as usize, self.endian)
    }
}

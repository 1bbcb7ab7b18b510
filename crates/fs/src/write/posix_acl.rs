//! POSIX ACLs: extended attributes with side effects.
//!
//! Idea: `system.posix_acl_access` and the mode both describe the rights of owner, mask (or group) and
//! others, so each is updated with the other; an ACL that adds nothing to the mode is not stored. A
//! directory's `system.posix_acl_default` is inherited by new files.
//!
//! Layout: version 2 (4), then entries: tag (2), permissions (2), user or group (4); all little-endian.
//!
//! Source: Linux `posix_acl_xattr.h`, `posix_acl.c`; OpenZFS `zpl_xattr.c` (`zpl_init_acl`, `zpl_set_acl`,
//! `zpl_chmod_acl`).

use cenote_format::units::ObjectId;
use cenote_format::znode::FileKind;
use cenote_object::Edit;

use super::make::{NewFile, NewKind};
use super::znode::Znode;
use super::{Change, FsWriter};
use crate::error::{Refusal, Result};

pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
/// `POSIX_ACL_XATTR_VERSION`.
const VERSION: u32 = 2;
/// `ACL_*`: the subject of an entry.
const USER_OBJ: u16 = 0x1;
const GROUP_OBJ: u16 = 0x4;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const TAGS: [u16; 6] = [USER_OBJ, 0x2, GROUP_OBJ, 0x8, MASK, OTHER];

/// An entry: tag, permissions, user or group.
type Entry = (u16, u16, u32);

#[derive(Debug, Clone, PartialEq, Eq)]
struct PosixAcl(Vec<Entry>);

/// ACLs inherited from a directory's default ACL.
pub(super) struct Inherited {
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
}

impl FsWriter {
    /// Permissions and ACLs of a new file under its directory's default ACL; without one the umask applies.
    pub(super) async fn under_default_acl<'a>(
        &self,
        edit: &Edit,
        parent: &Znode,
        new: &NewFile<'a>,
    ) -> Result<(NewFile<'a>, Option<Inherited>)> {
        let plain = NewFile { mode: new.mode & !(new.umask & 0o777), ..*new };
        if !self.options().posix_acl || matches!(new.kind, NewKind::Symlink(_)) {
            return Ok((plain, None));
        }
        let Some(default) = self.get_xattr(edit, parent, DEFAULT).await? else { return Ok((plain, None)) };
        let Some(mut acl) = PosixAcl::decode(&default) else { return Err(Refusal::Invalid.of(parent.id)) };
        let mode = acl.restrict(new.mode);
        let inherited = Inherited {
            access: acl.says_more_than_mode().then(|| acl.encode()),
            default: (new.kind == NewKind::Directory).then(|| default.to_vec()),
        };
        Ok((NewFile { mode, umask: 0, ..*new }, Some(inherited)))
    }

    pub(super) async fn inherit_posix_acl(
        &self,
        change: Change<'_>,
        object: ObjectId,
        inherited: &Inherited,
    ) -> Result<()> {
        let mut node = self.load(change.edit, object).await?;
        for (name, value) in [(DEFAULT, &inherited.default), (ACCESS, &inherited.access)] {
            if value.is_some() {
                self.put_xattr(change, &mut node, name, value.as_deref()).await?;
            }
        }
        self.save(change.edit, &mut node).await
    }

    /// The side effects of setting an attribute, if one of the two; returns the part to be stored.
    pub(super) async fn set_posix_acl<'v>(
        &self,
        change: Change<'_>,
        node: &mut Znode,
        name: &[u8],
        value: Option<&'v [u8]>,
    ) -> Result<Option<Option<&'v [u8]>>> {
        if name != ACCESS && name != DEFAULT {
            return Ok(Some(value));
        }
        if !self.options().posix_acl || node.kind()? == FileKind::Symlink {
            return Err(Refusal::NotSupported.of(node.id));
        }
        let Some(value) = value else { return Ok(Some(None)) };
        let acl = PosixAcl::decode(value).ok_or_else(|| Refusal::Invalid.of(node.id))?;
        if name == DEFAULT {
            return if node.is_dir()? {
                Ok(Some(Some(value)))
            } else {
                Err(Refusal::NotPermitted.of(node.id))
            };
        }
        let mode = node.mode()?;
        let spelled = acl.permissions() | mode & 0o7000;
        let rules = self.acl_rules().for_mode(mode & !0o7777 | spelled, node.flags()?, &node.acl()?);
        node.set_acl(&rules, mode & !0o7777 | spelled)?;
        node.state_changed(change)?;
        Ok(acl.says_more_than_mode().then_some(Some(value)))
    }

    /// Updates an existing ACL after the mode was set. A replay instead finds a record of that.
    pub(super) async fn mode_to_posix_acl(
        &self,
        change: Change<'_>,
        node: &mut Znode,
        mode: u32,
    ) -> Result<()> {
        if self.is_replay() || !self.options().posix_acl || node.kind()? == FileKind::Symlink {
            return Ok(());
        }
        let Some(old) = self.get_xattr(change.edit, node, ACCESS).await? else { return Ok(()) };
        let Some(mut acl) = PosixAcl::decode(&old) else { return Ok(()) };
        acl.set_permissions(mode);
        self.put_xattr(change, node, ACCESS, Some(&acl.encode())).await
    }
}

impl PosixAcl {
    /// `None` if it is no ACL, or lacks a mandatory entry.
    fn decode(value: &[u8]) -> Option<PosixAcl> {
        let (version, entries) = value.split_first_chunk::<4>()?;
        let (entries, []) = entries.as_chunks::<8>() else { return None };
        let entry = |[a, b, c, d, id @ ..]: [u8; 8]| {
            let (tag, permissions) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
            (TAGS.contains(&tag) && permissions <= 7).then(|| (tag, permissions, u32::from_le_bytes(id)))
        };
        let acl = PosixAcl(entries.iter().map(|raw| entry(*raw)).collect::<Option<_>>()?);
        let has_one = |tag| acl.0.iter().filter(|(t, ..)| *t == tag).count() == 1;
        let is_whole = has_one(USER_OBJ) && has_one(GROUP_OBJ) && has_one(OTHER);
        let is_masked = !acl.says_more_than_mode() || has_one(MASK);
        (u32::from_le_bytes(*version) == VERSION && is_whole && is_masked).then_some(acl)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in &self.0 {
            out.extend(tag.to_le_bytes());
            out.extend(permissions.to_le_bytes());
            out.extend(id.to_le_bytes());
        }
        out
    }

    /// Whether it has entries for other users or groups.
    fn says_more_than_mode(&self) -> bool {
        self.0.iter().any(|(tag, ..)| ![USER_OBJ, GROUP_OBJ, OTHER].contains(tag))
    }

    /// The entries that correspond to the mode's classes, and the bit shift of each class.
    fn classes(&mut self) -> impl Iterator<Item = (&mut u16, u32)> {
        let group = if self.0.iter().any(|(tag, ..)| *tag == MASK) { MASK } else { GROUP_OBJ };
        self.0.iter_mut().filter_map(move |(tag, permissions, _)| match *tag {
            USER_OBJ => Some((permissions, 6)),
            OTHER => Some((permissions, 0)),
            tag if tag == group => Some((permissions, 3)),
            _ => None,
        })
    }

    fn permissions(&self) -> u32 {
        self.clone().classes().fold(0, |mode, (permissions, shift)| mode | u32::from(*permissions) << shift)
    }

    fn set_permissions(&mut self, mode: u32) {
        for (permissions, shift) in self.classes() {
            *permissions = (mode >> shift & 7) as u16;
        }
    }

    /// Removes rights that the mode does not grant; returns the mode without rights that the ACL does not
    /// grant.
    fn restrict(&mut self, mode: u32) -> u32 {
        let mut restricted = mode & !0o777;
        for (permissions, shift) in self.classes() {
            *permissions &= (mode >> shift & 7) as u16;
            restricted |= u32::from(*permissions) << shift;
        }
        restricted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl() -> PosixAcl {
        PosixAcl(vec![
            (USER_OBJ, 7, u32::MAX),
            (0x2, 6, 1000),
            (GROUP_OBJ, 7, u32::MAX),
            (MASK, 6, u32::MAX),
            (OTHER, 4, u32::MAX),
        ])
    }

    #[test]
    fn mode_and_acl_follow_each_other() {
        assert_eq!(PosixAcl::decode(&acl().encode()), Some(acl()));
        assert_eq!(acl().permissions(), 0o764);
        let mut other = acl();
        assert_eq!(other.restrict(0o2740), 0o2740);
        assert_eq!(other.permissions(), 0o740);
        assert_eq!(other.restrict(0o7777), 0o7740);
        other.set_permissions(0o4621);
        assert_eq!((other.permissions(), other.0[2]), (0o621, (GROUP_OBJ, 7, u32::MAX)));
    }

    #[test]
    fn what_is_no_acl_is_refused() {
        let whole = acl().encode();
        assert_eq!(PosixAcl::decode(&whole[..whole.len() - 1]), None);
        assert_eq!(PosixAcl::decode(&whole[..4]), None);
        let without_mask = PosixAcl(acl().0.into_iter().filter(|(tag, ..)| *tag != MASK).collect());
        assert_eq!(PosixAcl::decode(&without_mask.encode()), None);
    }
}

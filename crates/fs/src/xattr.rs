//! Extended attributes, under their Linux names.
//!
//! Idea: two places count: a packed nvlist in the attribute DXATTR (`xattr=sa`), and a hidden directory in
//! which each attribute is a file (`xattr=dir`, and values too large for the list). If a name is in both, the
//! list wins. POSIX ACLs are ordinary attributes here: OpenZFS on Linux stores `system.posix_acl_access` and
//! `_default` in the very format that `getxattr` returns.
//!
//! Names with a known prefix (`user.`, `trusted.`, `security.`, `system.posix_acl_*`) are shown as stored.
//! Others come from systems without such prefixes and are shown as `user.NAME`, except FreeBSD's system
//! namespace, which is hidden.
//!
//! The layouts of system attributes tell whether any object ever had either place. Most file systems have no
//! such layout, so the kernel's frequent questions cost no look at attributes.
//!
//! Source: OpenZFS `zpl_xattr.c`, `zfs_sa.c` (`zfs_sa_get_xattr`).

use std::collections::BTreeMap;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::dnode::ObjectType;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::sa::ZplAttr;
use cenote_format::units::ObjectId;
use cenote_object::Object;

use crate::attr::Attr;
use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;

/// The largest value read; Linux allows 64 KiB. Larger ones indicate damage and are truncated.
const MAX_VALUE_BYTES: u64 = 16 << 20;
/// The attributes of an object that lead to its extended ones.
const PLACES: [ZplAttr; 2] = [ZplAttr::Xattr, ZplAttr::Dxattr];
/// FreeBSD's system namespace on disk.
const FREEBSD_PREFIX: &[u8] = b"freebsd:";

/// Where a value is stored.
#[derive(Debug, Clone)]
enum XattrContent {
    Inline(Bytes),
    File(ObjectId),
}

/// An extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xattr {
    /// The Linux name.
    pub name: Bytes,
    /// The value.
    pub value: Bytes,
}

impl Filesystem {
    /// All extended attributes of an object, sorted by name.
    ///
    /// # Errors
    /// The object does not exist; its list, its hidden directory or a value can't be read.
    #[boxed]
    pub async fn xattrs(&self, id: ObjectId) -> Result<Vec<Xattr>> {
        let mut all = Vec::new();
        for (name, place) in self.xattr_places(id).await? {
            all.push(Xattr { name, value: self.xattr_value(place).await? });
        }
        Ok(all)
    }

    /// The value of one extended attribute.
    ///
    /// # Errors
    /// Those of [`Filesystem::xattrs`].
    #[boxed]
    pub async fn xattr(&self, id: ObjectId, name: &[u8]) -> Result<Option<Bytes>> {
        match self.xattr_places(id).await?.remove(name) {
            Some(place) => Ok(Some(self.xattr_value(place).await?)),
            None => Ok(None),
        }
    }

    /// Whether an object can have extended attributes at all; if not, listing them costs nothing.
    pub fn may_have_xattrs(attr: &Attr) -> bool {
        // Inline lists can only be found by parsing the bonus, which is in memory by then.
        attr.is_sa || attr.xattr_dir.is_some()
    }

    /// Whether no object has extended attributes. `false` if only a look at all of them could tell.
    pub fn lacks_xattrs(&self) -> bool {
        let master = self.master();
        // One made with system attributes has no older znodes, whose extended attributes no layout shows. It
        // made their table first, then the delete queue; an upgrade makes the table later.
        let next = |id: ObjectId| ObjectId(id.0.wrapping_add(1));
        let is_made_with_sa = master.sa_attrs.is_some() && master.sa_attrs.map(next) == master.delete_queue;
        is_made_with_sa && self.has_no_layout_for_xattrs()
    }

    fn has_no_layout_for_xattrs(&self) -> bool {
        self.overlay.is_empty() && !self.sa_registry().may_have(&PLACES)
    }

    async fn xattr_places(&self, id: ObjectId) -> Result<BTreeMap<Bytes, XattrContent>> {
        if self.has_no_layout_for_xattrs()
            && self.objset().head(id).await.is_ok_and(|head| head.bonus_type == ObjectType::SA)
        {
            return Ok(BTreeMap::new());
        }
        let node = self.node(id);
        let mut stored: BTreeMap<Bytes, XattrContent> = BTreeMap::new();
        let mut dir = node.and_then(|node| node.attr).and_then(|attr| attr.xattr_dir);
        if node.is_none_or(|node| !node.fresh) {
            let object = self.object(id).await?;
            dir = dir.or(self.xattr_dir_of(&object).await?);
            for (name, value) in self.inline_xattrs(&object).await? {
                stored.insert(name, XattrContent::Inline(value));
            }
        }
        for (name, value) in node.iter().flat_map(|node| &node.xattrs) {
            match value {
                Some(value) => stored.insert(name.clone(), XattrContent::Inline(value.clone())),
                None => stored.remove(name),
            };
        }
        if let Some(dir) = dir {
            for entry in self.list(dir).await? {
                stored.entry(entry.name).or_insert(XattrContent::File(entry.object));
            }
        }
        Ok(stored.into_iter().filter_map(|(name, place)| Some((linux_name(name)?, place))).collect())
    }

    /// The hidden directory, from whichever place records it.
    async fn xattr_dir_of(&self, object: &Object) -> Result<Option<ObjectId>> {
        let attr = self.attr_of(object).await?;
        if !attr.is_sa || attr.xattr_dir.is_some() || !attr.has_spill {
            return Ok(attr.xattr_dir);
        }
        let raw = self.sa_bytes(object, ZplAttr::Xattr).await?;
        let number = raw.and_then(|raw| Some(object.dnode().endian().u64(*raw.first_chunk()?)));
        Ok(number.filter(|&id| id != 0).map(ObjectId))
    }

    /// The names and values in the packed list, as stored.
    async fn inline_xattrs(&self, object: &Object) -> Result<Vec<(Bytes, Bytes)>> {
        if object.dnode().bonus_type != ObjectType::SA {
            return Ok(Vec::new());
        }
        let Some(packed) = self.sa_bytes(object, ZplAttr::Dxattr).await? else { return Ok(Vec::new()) };
        if packed.is_empty() {
            return Ok(Vec::new());
        }
        let list =
            Nvlist::decode(&packed).map_err(|source| FsError::Format { object: object.id(), source })?;
        let value = |value: &NvValue| match value {
            NvValue::ByteArray(bytes) => Some(Bytes::copy_from_slice(bytes)),
            _ => None,
        };
        Ok(list
            .iter()
            .filter_map(|(name, v)| Some((Bytes::copy_from_slice(name.as_bytes()), value(v)?)))
            .collect())
    }

    async fn xattr_value(&self, place: XattrContent) -> Result<Bytes> {
        match place {
            XattrContent::Inline(value) => Ok(value),
            XattrContent::File(id) => {
                let file = self.open_file(id).await?;
                if file.attr().size > MAX_VALUE_BYTES {
                    return Err(FsError::Attributes { why: "give a value an impossible length" }.of(id));
                }
                file.read(0, file.attr().size).await
            }
        }
    }
}

/// The Linux name for a stored one; `None` if Linux shows none.
fn linux_name(stored: Bytes) -> Option<Bytes> {
    let known = [&b"user."[..], b"trusted.", b"security."].iter().any(|p| stored.starts_with(p));
    if known || stored == b"system.posix_acl_access"[..] || stored == b"system.posix_acl_default"[..] {
        return Some(stored);
    }
    if stored.starts_with(FREEBSD_PREFIX) {
        return None;
    }
    Some([b"user.", &stored[..]].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_known_prefix_become_user_names() {
        let name = |n: &'static [u8]| linux_name(n.into()).map(|name| name.to_vec());
        assert_eq!(name(b"user.a"), Some(b"user.a".to_vec()));
        assert_eq!(name(b"com.apple.quarantine"), Some(b"user.com.apple.quarantine".to_vec()));
        assert_eq!(name(b"system.posix_acl_default"), Some(b"system.posix_acl_default".to_vec()));
        assert_eq!(name(b"freebsd:system:x"), None);
    }
}

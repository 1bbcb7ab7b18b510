//! Setting extended attributes, in both places that they are kept in; see [`crate::xattr`] for how they are read.
//!
//! Idea: with `xattr=sa` a value goes into the packed list among the file's other attributes, if it and the list are not too
//! large; otherwise, and with `xattr=dir`, into a file of the hidden directory. It is taken out of the other place. The two
//! names of POSIX ACLs have effects of their own ([`super::posix_acl`]).
//!
//! Source: OpenZFS `zpl_xattr.c` (`zpl_xattr_set`).

use bytes::Bytes;
use cenote_dataset::live::Edit;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::sa::ZplAttr;
use cenote_format::units::ObjectId;

use super::znode::Znode;
use super::{Change, FsWriter, XattrStore};
use crate::attr::pflags;
use crate::error::{FsError, Refusal, Result};

/// `DXATTR_MAX_ENTRY_SIZE`.
const MAX_INLINE_VALUE_BYTES: usize = 32768;
/// `SA_ATTR_MAX_LEN`: of the packed list.
const MAX_LIST_BYTES: usize = u16::MAX as usize;
/// `XATTR_SIZE_MAX` of Linux.
const MAX_VALUE_BYTES: usize = 65536;
/// `XATTR_NAME_MAX` of Linux.
const MAX_NAME_BYTES: usize = 255;

/// What must be so for an extended attribute to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// Nothing.
    Any,
    /// It must be new.
    Create,
    /// It must be there.
    Replace,
}

impl FsWriter {
    /// Sets an extended attribute, named as Linux does; `None` removes it.
    ///
    /// # Errors
    /// It is there, or is not, against what `how` says (or it is to be removed and is not there); name or value are too long;
    /// the file is immutable; damage.
    pub async fn set_xattr(
        &self,
        change: Change<'_>,
        object: ObjectId,
        name: &[u8],
        value: Option<&[u8]>,
        how: SetXattr,
    ) -> Result<()> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(&0) {
            return Err(Refusal::Invalid.of(object));
        }
        if value.is_some_and(|value| value.len() > MAX_VALUE_BYTES) {
            return Err(Refusal::TooLarge.of(object));
        }
        if self.options().xattr == XattrStore::Off {
            return Err(Refusal::NotSupported.of(object));
        }
        let _held = self.0.locks.exclusive(&[object]).await;
        let mut node = self.load(change.edit, object).await?;
        if node.has_flag(pflags::IMMUTABLE | pflags::APPENDONLY)? {
            return Err(Refusal::NotPermitted.of(object));
        }
        let exists = self.get_xattr(change.edit, &node, name).await?.is_some();
        match (how, value, exists) {
            (SetXattr::Create, _, true) => return Err(Refusal::Exists.of(object)),
            (SetXattr::Replace, _, false) | (_, None, false) => return Err(Refusal::NoData.of(object)),
            _ => {}
        }
        match self.set_posix_acl(change, &mut node, name, value).await? {
            Some(value) => self.put_xattr(change, &mut node, name, value).await?,
            None if exists => self.put_xattr(change, &mut node, name, None).await?,
            None => {}
        }
        node.state_changed(change)?;
        self.save(change.edit, &mut node).await
    }

    /// An attribute of a file that the caller holds.
    pub(super) async fn get_xattr(&self, edit: &Edit, node: &Znode, name: &[u8]) -> Result<Option<Bytes>> {
        if let Some(value) = inline_list(node)?.and_then(|list| list_value(&list, name)) {
            return Ok(Some(value));
        }
        let Some((.., file)) = self.xattr_file(edit, node, name).await? else { return Ok(None) };
        let file = self.view().open_file(file.id).await?;
        Ok(Some(file.read(0, file.attr().size.min(MAX_VALUE_BYTES as u64)).await?))
    }

    /// Puts an attribute, or takes it away, in a file that the caller holds and saves.
    pub(super) async fn put_xattr(
        &self,
        change: Change<'_>,
        node: &mut Znode,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let fits = value.is_some_and(|value| value.len() <= MAX_INLINE_VALUE_BYTES);
        let text = std::str::from_utf8(name).ok().filter(|_| fits && self.options().xattr == XattrStore::Sa);
        let old = inline_list(node)?;
        let mut list = Nvlist::new();
        for (other, value) in old.iter().flat_map(Nvlist::iter).filter(|(other, _)| other.as_bytes() != name)
        {
            list.insert(other, value.clone());
        }
        let was_inline = old.as_ref().is_some_and(|old| old.len() != list.len());
        if let (Some(text), Some(value)) = (text, value) {
            let mut longer = list.clone();
            longer.insert(text, NvValue::ByteArray(value.to_vec()));
            let packed = longer.encode();
            if packed.len() <= MAX_LIST_BYTES {
                node.set(ZplAttr::Dxattr, &packed);
                self.note_xattr(change, node, name, Some(value));
                return self.drop_xattr_file(change, node, name).await;
            }
        }
        if was_inline {
            node.set(ZplAttr::Dxattr, &list.encode());
            self.note_xattr(change, node, name, None);
        }
        match value {
            Some(value) => {
                if was_inline {
                    // That it is not in the list any more must not come after what is logged of the file.
                    self.live().log().inspect(|log| log.release(node.id));
                }
                self.put_xattr_file(change, node, name, value).await
            }
            None => self.drop_xattr_file(change, node, name).await,
        }
    }
}

/// Puts an attribute into the packed list, or takes it out, whatever may be in the hidden directory.
pub(super) fn put_listed(node: &mut Znode, name: &str, value: &[u8]) -> Result<()> {
    let mut list = Nvlist::new();
    for (other, value) in inline_list(node)?.iter().flat_map(Nvlist::iter).filter(|(other, _)| *other != name)
    {
        list.insert(other, value.clone());
    }
    if !value.is_empty() {
        list.insert(name, NvValue::ByteArray(value.to_vec()));
    }
    node.set(ZplAttr::Dxattr, &list.encode());
    Ok(())
}

/// The packed list of a file, if it has one.
fn inline_list(node: &Znode) -> Result<Option<Nvlist>> {
    let packed = node.get(ZplAttr::Dxattr).filter(|packed| !packed.is_empty());
    packed.map(Nvlist::decode).transpose().map_err(|source| FsError::Format { object: node.id, source })
}

fn list_value(list: &Nvlist, name: &[u8]) -> Option<Bytes> {
    match list.get(std::str::from_utf8(name).ok()?)? {
        NvValue::ByteArray(bytes) => Some(Bytes::copy_from_slice(bytes)),
        _ => None,
    }
}

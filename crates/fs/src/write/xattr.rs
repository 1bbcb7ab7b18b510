//! Sets extended attributes, in both places that store them; [`crate::xattr`] reads them.
//!
//! Idea: with `xattr=sa` a value goes into the packed list among the file's other attributes, unless it or
//! the list would become too large. Otherwise, and with `xattr=dir`, it becomes a file in the hidden
//! directory. It is removed from the other place. The two names of POSIX ACLs have side effects
//! ([`super::posix_acl`]).
//!
//! Source: OpenZFS `zpl_xattr.c` (`zpl_xattr_set`).

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::sa::ZplAttr;
use cenote_format::units::ObjectId;
use cenote_object::Edit;

use super::posix_acl::ACCESS;
use super::znode::Znode;
use super::{Change, FsWriter, SetAttr, XattrStore};
use crate::error::{FsError, Refusal, Result};

/// `DXATTR_MAX_ENTRY_SIZE`.
const MAX_INLINE_VALUE_BYTES: usize = 32768;
/// `SA_ATTR_MAX_LEN`: the maximum size of the packed list.
const MAX_LIST_BYTES: usize = u16::MAX as usize;
/// `XATTR_SIZE_MAX` of Linux.
const MAX_VALUE_BYTES: usize = 65536;
/// `XATTR_NAME_MAX` of Linux.
const MAX_NAME_BYTES: usize = 255;

/// The precondition for setting an extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// Nothing.
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

impl FsWriter {
    /// Sets an extended attribute under its Linux name; `None` removes it.
    ///
    /// # Errors
    /// The precondition in `how` does not hold (or the attribute to remove does not exist); name or value is
    /// too long; the file is immutable; damage.
    #[boxed]
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
        self.may_set_xattr(&node)?;
        let exists = match inline_list(&node)?.is_some_and(|list| list_value(&list, name).is_some()) {
            true => true,
            false => self.xattr_file(change.edit, &node, name).await?.is_some(),
        };
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
        if name == ACCESS && value.is_some() {
            // The attribute's record lacks the new mode.
            let set = SetAttr { mode: Some(node.mode()? & 0o7777), ..SetAttr::default() };
            self.notes(change).attributes(&node, &set);
        }
        node.state_changed(change)?;
        self.save(change.edit, &mut node).await
    }

    /// An attribute of a file whose lock the caller holds.
    pub(super) async fn get_xattr(&self, edit: &Edit, node: &Znode, name: &[u8]) -> Result<Option<Bytes>> {
        if let Some(value) = inline_list(node)?.and_then(|list| list_value(&list, name)) {
            return Ok(Some(value));
        }
        let Some((.., file)) = self.xattr_file(edit, node, name).await? else { return Ok(None) };
        let file = self.view().open_file(file.id).await?;
        Ok(Some(file.read(0, file.attr().size.min(MAX_VALUE_BYTES as u64)).await?))
    }

    /// Sets or removes an attribute of a file whose lock the caller holds and which it saves.
    pub(super) async fn put_xattr(
        &self,
        change: Change<'_>,
        node: &mut Znode,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let fits = value.is_some_and(|value| value.len() <= MAX_INLINE_VALUE_BYTES);
        let text = std::str::from_utf8(name).ok();
        let mut list = inline_list(node)?.unwrap_or_default();
        let was_inline = text.is_some_and(|text| list.remove(text).is_some());
        let text = text.filter(|_| fits && self.options().xattr == XattrStore::Sa);
        // A full list stays full for most of many attributes: discovering that must not build another list
        // each time.
        let packed_bytes = node.get(ZplAttr::Dxattr).map_or(0, <[u8]>::len);
        let is_full = |value: &[u8]| !was_inline && packed_bytes + name.len() + value.len() > MAX_LIST_BYTES;
        if let (Some(text), Some(value)) = (text, value.filter(|value| !is_full(value))) {
            let mut longer = list.clone();
            longer.insert(text, NvValue::ByteArray(value.to_vec()));
            let packed = longer.encode();
            if packed.len() <= MAX_LIST_BYTES {
                node.set(ZplAttr::Dxattr, &packed);
                self.notes(change).xattr(node, name, Some(value));
                return self.drop_xattr_file(change, node, name).await;
            }
        }
        // The list has the old value until the new one is stored, in the log, too: a log that ends in between
        // has one of them.
        match value {
            Some(value) => self.put_xattr_file(change, node, name, value).await?,
            None => self.drop_xattr_file(change, node, name).await?,
        }
        if was_inline {
            node.set(ZplAttr::Dxattr, &list.encode());
            self.notes(change).xattr(node, name, None);
            // Its removal from the list must not come after later log records of the file.
            self.log().inspect(|log| log.release(node.id));
        }
        Ok(())
    }
}

/// Sets or removes an attribute in the packed list, ignoring the hidden directory.
pub(super) fn put_listed(node: &mut Znode, name: &str, value: &[u8]) -> Result<()> {
    let mut list = inline_list(node)?.unwrap_or_default();
    list.remove(name);
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

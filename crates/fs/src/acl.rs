//! ZFS (NFSv4) access control lists. Every file has one; on Linux it is usually the trivial one that
//! expresses its mode.
//!
//! Linux itself does not show these lists; POSIX ACLs are extended attributes there (see `xattr`). They
//! matter for pools written by other systems. `cenote_format::znode` decodes the packed entries; this module
//! finds them: in the attribute DACL_ACES, in the znode, or in an object that the znode names.
//!
//! Source: OpenZFS `zfs_acl.c` (`zfs_acl_node_read`).

pub(crate) mod rules;

use cenote_boxed::boxed;
use cenote_format::sa::ZplAttr;
use cenote_format::units::ObjectId;

pub use cenote_format::znode::{Ace, AceWho};
use cenote_format::znode::{AclForm, ZnodePhys, decode_aces};
use cenote_object::Object;

use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;
use crate::overlay::Node;

pub use rules::{AclInherit, AclMode};

/// The longest list read: more than any system allows.
const MAX_ACL_BYTES: u64 = 1 << 20;

impl Filesystem {
    /// The ZFS ACL of an object.
    ///
    /// # Errors
    /// The object does not exist or its ACL can't be read.
    #[boxed]
    pub async fn acl(&self, id: ObjectId) -> Result<Vec<Ace>> {
        match self.node(id) {
            Some(Node { acl: Some(acl), .. }) => return Ok(acl.clone()),
            // The log created it without an ACL: its mode stands for one.
            Some(node) if node.fresh => return Ok(Vec::new()),
            _ => {}
        }
        let object = self.object(id).await?;
        if !self.attr_of(&object).await?.is_sa {
            return self.znode_acl(&object).await;
        }
        let endian = object.dnode().endian();
        let count = self.sa_bytes(&object, ZplAttr::DaclCount).await?;
        let count = count.and_then(|raw| Some(endian.u64(*raw.first_chunk()?))).unwrap_or(0);
        let entries = self.sa_bytes(&object, ZplAttr::DaclAces).await?.unwrap_or_default();
        decode_aces(AclForm::Fuid, &entries, usize::try_from(count).unwrap_or(usize::MAX), endian)
            .map_err(|source| FsError::Format { object: id, source })
    }

    async fn znode_acl(&self, object: &Object) -> Result<Vec<Ace>> {
        let (id, endian) = (object.id(), object.dnode().endian());
        let damaged = |source| FsError::Format { object: id, source };
        let acl = ZnodePhys::decode(object.dnode().bonus(), endian).map_err(damaged)?.acl;
        let Some(external) = acl.external else { return acl.inline_aces().map_err(damaged) };
        if acl.size_bytes > MAX_ACL_BYTES {
            return Err(FsError::Attributes { why: "have an ACL of impossible length" }.of(id));
        }
        let entries = self.object(external).await?.read(0, acl.size_bytes as usize).await?;
        decode_aces(acl.form, &entries, acl.count as usize, endian).map_err(damaged)
    }
}

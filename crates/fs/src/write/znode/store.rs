//! Storage of attributes: in the bonus buffer and the spill block of a dnode, after a layout of the tables.
//!
//! Idea: an operation loads an object's [`Znode`], changes it, and saves it. Only this value knows its form:
//! system attributes, or the znode of a file system before version 5.
//!
//! Locking: callers hold the object's lock from loading to saving. Readers clone the registry's `Arc`. A task
//! that holds `unregistered` may extend the registry: it looks again under that lock, writes the tables, and
//! then replaces the `Arc`.
//!
//! Source: OpenZFS `sa.c` (`sa_build_layouts`, `sa_modify_attrs`).

use std::sync::Arc;

use bytes::Bytes;
use cenote_format::FormatError;
use cenote_format::blkptr::BLKPTR_BYTES;
use cenote_format::bytes::Endian;
use cenote_format::dnode::{DnodeHead, ObjectType};
use cenote_format::sa::{SaReader, SaRegistry, SaValues, ZplAttr, encode_sa};
use cenote_format::units::{ObjectId, SPA_MINBLOCKSIZE, SPA_OLD_MAXBLOCKSIZE};
use cenote_object::{Edit, Zap};
use parking_lot::RwLock;

use super::Znode;
use crate::error::{FsError, Refusal, Result};
use crate::filesystem::{Filesystem, MasterNode};

const MAX_SPILL_BYTES: usize = SPA_OLD_MAXBLOCKSIZE as usize;

/// The attributes of a file system's objects, as they are stored.
pub(in crate::write) struct Znodes {
    pub(super) master: MasterNode,
    pub(super) registry: RwLock<Arc<SaRegistry>>,
    /// Attributes numbered in `registry` but not on disk yet. Its holder may add layouts.
    pub(super) unregistered: tokio::sync::Mutex<Vec<ZplAttr>>,
}

/// Attributes as a new object stores them.
pub(in crate::write) struct Packed {
    pub(in crate::write) bonus_type: ObjectType,
    pub(in crate::write) bonus: Bytes,
    pub(in crate::write) spill: Option<Bytes>,
}

impl Znodes {
    /// Opens the tables. Attributes that they lack are numbered now, and written with the first new layout.
    ///
    /// # Errors
    /// A table is damaged.
    pub(in crate::write) async fn open(fs: &Filesystem) -> Result<Znodes> {
        let (master, mut registry) = (fs.master().clone(), fs.sa_registry().clone());
        let table = match master.sa_attrs {
            Some(id) => Zap::open_id(fs.objset(), id).await?.get_u64("REGISTRY").await?,
            None => None,
        };
        let is_missing = |attr: &ZplAttr| table.is_none() || registry.number_of(*attr).is_none();
        let missing: Vec<ZplAttr> = ZplAttr::all().filter(is_missing).collect();
        for attr in &missing {
            registry.register(*attr);
        }
        let registry = RwLock::new(Arc::new(registry));
        Ok(Znodes { master, registry, unregistered: tokio::sync::Mutex::new(missing) })
    }

    /// The attributes known now.
    pub(in crate::write) fn registry(&self) -> Arc<SaRegistry> {
        self.registry.read().clone()
    }

    /// Loads an object's attributes; the caller holds its lock. Those of an old znode get a project if the
    /// pool `has_projects`.
    pub(in crate::write) async fn load(
        &self,
        edit: &Edit,
        id: ObjectId,
        has_projects: bool,
    ) -> Result<Znode> {
        let view = edit.view();
        let head = view.head(id).await.map_err(|error| match error {
            cenote_object::DatasetError::NoObject { .. } => FsError::NoObject { object: id },
            other => other.into(),
        })?;
        let registry = self.registry();
        let (values, spill, old_acl) = match head.bonus_type {
            ObjectType::SA => {
                let spill = if head.has_spill() { view.object(id).await?.read_spill().await? } else { None };
                let spill = spill.map(|(_, bytes)| bytes);
                let values = read(&registry, &head.bonus, spill.as_ref());
                (values.map_err(|source| FsError::Format { object: id, source })?, spill, None)
            }
            ObjectType::ZNODE => {
                let (values, old_acl) = self.upgraded(edit, id, has_projects).await?;
                (values, None, old_acl)
            }
            _ => return Err(Refusal::NotFound.of(id)),
        };
        let room_bytes = DnodeHead::bonus_room(head.slots, head.blkptr_count);
        let (block_bytes, slots, max_block) = (head.data_block_bytes, head.slots, head.max_block_id);
        Ok(Znode { id, block_bytes, slots, max_block, registry, values, room_bytes, spill, old_acl })
    }

    /// Packs the attributes of an object about to be created below `parent`.
    pub(in crate::write) async fn pack_first(
        &self,
        edit: &Edit,
        parent: ObjectId,
        values: &SaValues,
        slots: u8,
    ) -> Result<Packed> {
        if self.are_old() {
            let (bonus, _) = self.pack_old(edit, parent, values, None).await?;
            return Ok(Packed { bonus_type: ObjectType::ZNODE, bonus, spill: None });
        }
        let room = DnodeHead::bonus_room(slots, 1);
        let (bonus, spill) = self.pack(edit, parent, values, room, &None).await?;
        Ok(Packed { bonus_type: ObjectType::SA, bonus, spill })
    }

    pub(in crate::write) async fn save(&self, edit: &Edit, node: &mut Znode) -> Result<()> {
        if self.are_old() {
            let (bonus, acl) = self.pack_old(edit, node.id, &node.values, node.old_acl).await?;
            node.old_acl = acl;
            return Ok(edit.set_bonus(node.id, ObjectType::ZNODE, bonus).await?);
        }
        let (bonus, spill) = self.pack(edit, node.id, &node.values, node.room_bytes, &node.spill).await?;
        if spill.is_none() && node.spill.is_some() {
            edit.set_spill(node.id, None).await?;
        }
        edit.set_bonus(node.id, ObjectType::SA, bonus).await?;
        if spill.is_some() && spill != node.spill {
            edit.set_spill(node.id, spill.clone()).await?;
        }
        node.spill = spill;
        // The ACL is now stored in the attributes.
        match node.old_acl.take() {
            Some(old) => Ok(edit.destroy(old).await?),
            None => Ok(()),
        }
    }

    /// Packs attributes into bonus and spill block; the spill block never shrinks.
    async fn pack(
        &self,
        edit: &Edit,
        id: ObjectId,
        values: &SaValues,
        room_bytes: usize,
        old_spill: &Option<Bytes>,
    ) -> Result<(Bytes, Option<Bytes>)> {
        let numbers = values.numbers();
        let count = values.bonus_count(&self.registry(), room_bytes);
        let of = |source| FsError::Format { object: id, source };
        let part = async |range: std::ops::Range<usize>| -> Result<Vec<u8>> {
            let layout = self.layout(edit, &numbers[range.clone()]).await?;
            encode_sa(&self.registry(), layout, &values.values(range), Endian::NATIVE).map_err(of)
        };
        let of_many = || FsError::Attributes { why: "do not fit in their dnode" }.of(id);
        let beside_spill = room_bytes.checked_sub(BLKPTR_BYTES).filter(|_| count > 0).ok_or_else(of_many)?;
        let mut bonus = part(0..count).await?;
        if count == numbers.len() {
            return Ok((bonus.into(), None));
        }
        bonus.resize(beside_spill, 0);
        let mut spill = part(count..numbers.len()).await?;
        if spill.len() > MAX_SPILL_BYTES {
            return Err(Refusal::TooLarge.of(id));
        }
        let old_bytes = old_spill.as_ref().map_or(0, Bytes::len);
        spill.resize(spill.len().next_multiple_of(SPA_MINBLOCKSIZE as usize).max(old_bytes), 0);
        Ok((bonus.into(), Some(spill.into())))
    }
}

fn read(registry: &SaRegistry, bonus: &[u8], spill: Option<&Bytes>) -> Result<SaValues, FormatError> {
    let mut values = SaValues::new();
    for part in std::iter::once(bonus).chain(spill.map(|spill| &spill[..])) {
        values.extend(registry, &SaReader::new(registry, part)?)?;
    }
    Ok(values)
}

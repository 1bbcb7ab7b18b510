//! A file's attributes while an operation changes them: loaded, changed, saved.

pub(super) mod old;

use bytes::Bytes;
use cenote_format::FormatError;
use cenote_format::blkptr::BLKPTR_BYTES;
use cenote_format::bytes::Endian;
use cenote_format::dnode::{DnodeHead, ObjectType};
use cenote_format::sa::{SaReader, SaRegistry, SaValues, ZplAttr, encode_sa};
use cenote_format::units::{BlockId, ObjectId, SPA_MINBLOCKSIZE};
use cenote_format::znode::{Ace, AclForm, FileKind, decode_aces, encode_aces};
use cenote_object::Edit;

use super::{Change, FsWriter};
use crate::acl::rules::{Acl, mode_of};
use crate::attr::{Timestamp, pflags};
use crate::error::{FsError, Refusal, Result};

/// `SPA_OLD_MAXBLOCKSIZE`: the largest spill block.
const MAX_SPILL_BYTES: usize = 128 << 10;

/// An object with its attributes in memory.
pub(super) struct Znode {
    pub id: ObjectId,
    /// The block size.
    pub block_bytes: u32,
    /// The slots occupied by its dnode.
    pub slots: u8,
    /// The last block that ever existed.
    pub max_block: BlockId,
    registry: std::sync::Arc<SaRegistry>,
    values: SaValues,
    room_bytes: usize,
    /// The current spill block.
    spill: Option<Bytes>,
    /// The object that holds the ACL of an old znode.
    old_acl: Option<ObjectId>,
}

impl FsWriter {
    /// Loads an object's attributes; the caller holds its lock.
    pub(super) async fn load(&self, edit: &Edit, id: ObjectId) -> Result<Znode> {
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
                let (values, old_acl) = self.upgraded(&view.object(id).await?, &registry).await?;
                (values, None, old_acl)
            }
            _ => return Err(Refusal::NotFound.of(id)),
        };
        let room_bytes = DnodeHead::bonus_room(head.slots, head.blkptr_count);
        let (block_bytes, slots, max_block) = (head.data_block_bytes, head.slots, head.max_block_id);
        Ok(Znode { id, block_bytes, slots, max_block, registry, values, room_bytes, spill, old_acl })
    }

    /// Writes changed attributes back.
    pub(super) async fn save(&self, edit: &Edit, node: &mut Znode) -> Result<()> {
        if self.has_znodes() {
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
    pub(super) async fn pack(
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

impl Znode {
    pub(super) fn get(&self, attr: ZplAttr) -> Option<&[u8]> {
        self.values.get(self.registry.number_of(attr)?)
    }

    pub(super) fn find_u64(&self, attr: ZplAttr) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.get(attr)?.first_chunk()?))
    }

    /// A mandatory 64-bit attribute.
    pub(super) fn u64(&self, attr: ZplAttr) -> Result<u64> {
        let missing = FsError::Attributes { why: "lack a mandatory one" };
        self.find_u64(attr).ok_or_else(|| missing.of(self.id))
    }

    pub(super) fn set(&mut self, attr: ZplAttr, value: &[u8]) {
        put(&self.registry, &mut self.values, attr, value);
    }

    pub(super) fn set_u64(&mut self, attr: ZplAttr, value: u64) {
        self.set(attr, &value.to_ne_bytes());
    }

    pub(super) fn set_time(&mut self, attr: ZplAttr, time: Timestamp) {
        self.set(attr, &time_bytes(time));
    }

    /// Inserts the project where `mknod` would have: space accounting expects it there.
    pub(super) fn set_project(&mut self, project: u64) {
        let numbers = (self.registry.number_of(ZplAttr::Links), self.registry.number_of(ZplAttr::Projid));
        if let (Some(links), Some(number)) = numbers {
            self.values.insert_after(links, number, &project.to_ne_bytes());
        }
    }

    pub(super) fn mode(&self) -> Result<u32> {
        Ok(self.u64(ZplAttr::Mode)? as u32)
    }

    pub(super) fn kind(&self) -> Result<FileKind> {
        Ok(FileKind::from_mode(self.u64(ZplAttr::Mode)?))
    }

    pub(super) fn is_dir(&self) -> Result<bool> {
        Ok(self.kind()? == FileKind::Directory)
    }

    pub(super) fn flags(&self) -> Result<u64> {
        self.u64(ZplAttr::Flags)
    }

    pub(super) fn has_flag(&self, flag: u64) -> Result<bool> {
        Ok(self.flags()? & flag != 0)
    }

    pub(super) fn project(&self) -> u64 {
        self.find_u64(ZplAttr::Projid).unwrap_or(0)
    }

    /// Marks a change of content (`CONTENT_MODIFIED`).
    pub(super) fn content_changed(&mut self, change: Change<'_>) -> Result<()> {
        self.set_time(ZplAttr::Mtime, change.now);
        self.set_u64(ZplAttr::Flags, self.flags()? | pflags::AV_MODIFIED);
        self.state_changed(change)
    }

    /// Marks a change of attributes (`STATE_CHANGED`).
    pub(super) fn state_changed(&mut self, change: Change<'_>) -> Result<()> {
        self.set_time(ZplAttr::Ctime, change.now);
        self.set_u64(ZplAttr::Flags, self.flags()? | pflags::ARCHIVE);
        Ok(())
    }

    /// The entries of its ACL.
    pub(super) fn acl(&self) -> Result<Vec<Ace>> {
        let count = self.find_u64(ZplAttr::DaclCount).unwrap_or(0);
        let entries = self.get(ZplAttr::DaclAces).unwrap_or_default();
        decode_aces(AclForm::Fuid, entries, usize::try_from(count).unwrap_or(usize::MAX), Endian::NATIVE)
            .map_err(|source| FsError::Format { object: self.id, source })
    }

    /// Sets the ACL, and the mode and flags that follow from it.
    pub(super) fn set_acl(&mut self, acl: &Acl, mode: u32) -> Result<()> {
        const OF_ACL: u64 = pflags::ACL_AUTO_INHERIT
            | pflags::ACL_DEFAULTED
            | pflags::ACL_PROTECTED
            | pflags::ACL_TRIVIAL
            | pflags::INHERIT_ACE
            | pflags::ACL_OBJ_ACE;
        self.set_u64(ZplAttr::Flags, self.flags()? & !OF_ACL | acl.flags);
        self.set(ZplAttr::DaclAces, &encode_aces(&acl.entries, Endian::NATIVE));
        self.set_u64(ZplAttr::DaclCount, acl.entries.len() as u64);
        self.apply_acl(&acl.entries, mode)
    }

    /// Sets the mode that an ACL expresses for the file's owners.
    pub(super) fn apply_acl(&mut self, entries: &[Ace], mode: u32) -> Result<()> {
        let (mode, all_execute) = mode_of(entries, mode, self.u64(ZplAttr::Uid)?, self.u64(ZplAttr::Gid)?);
        let execute = if all_execute { pflags::NO_EXECS_DENIED } else { 0 };
        self.set_u64(ZplAttr::Flags, self.flags()? & !pflags::NO_EXECS_DENIED | execute);
        self.set_u64(ZplAttr::Mode, mode.into());
        Ok(())
    }
}

/// Parses attributes from bonus and spill block.
fn read(registry: &SaRegistry, bonus: &[u8], spill: Option<&Bytes>) -> Result<SaValues, FormatError> {
    let mut values = SaValues::new();
    for part in std::iter::once(bonus).chain(spill.map(|spill| &spill[..])) {
        values.extend(registry, &SaReader::new(registry, part)?)?;
    }
    Ok(values)
}

/// Sets a ZPL attribute; all of them are registered.
pub(super) fn put(registry: &SaRegistry, values: &mut SaValues, attr: ZplAttr, value: &[u8]) {
    if let Some(number) = registry.number_of(attr) {
        values.set(number, value);
    }
}

pub(super) fn time_bytes(time: Timestamp) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&time.seconds.to_ne_bytes());
    bytes[8..].copy_from_slice(&u64::from(time.nanoseconds).to_ne_bytes());
    bytes
}

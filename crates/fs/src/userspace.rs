//! Who uses how much: space and files by user, group and project, with their limits; and the domains of foreign owners.
//!
//! Layout: used space is kept in three special objects of the object set, limits in ZAPs that the master node names. Both
//! have the owner's number in hexadecimal as name (a FUID; a project's number); counts of files are under `obj-` and that number.
//! Source: OpenZFS `zfs_quota.c` (`zfs_userspace_many`), `zfs_fuid.c`.

use std::collections::BTreeMap;

use cenote_dataset::objset::{GROUPUSED_OBJECT, PROJECTUSED_OBJECT, USERUSED_OBJECT};
use cenote_dataset::{DatasetError, Zap};
use cenote_format::bytes::Reader;
use cenote_format::units::ObjectId;
use cenote_format::znode::FuidTable;

use crate::error::{FsError, Result};
use crate::filesystem::{Filesystem, MASTER_NODE};

/// The largest table of domains read.
const MAX_FUID_TABLE_BYTES: u64 = 16 << 20;

/// By what space is accounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceBy {
    /// `userspace`
    User,
    /// `groupspace`
    Group,
    /// `projectspace`
    Project,
}

/// One owner's use and limits; 0 is no limit.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct OwnerSpace {
    /// Bytes used.
    pub used_bytes: u64,
    /// Limit of bytes.
    pub quota_bytes: u64,
    /// Objects used.
    pub used_objects: u64,
    /// Limit of objects.
    pub quota_objects: u64,
}

impl Filesystem {
    /// Use and limits by owner: FUIDs, or numbers of projects.
    ///
    /// # Errors
    /// A table can't be read.
    pub async fn space_by(&self, by: SpaceBy) -> Result<BTreeMap<u64, OwnerSpace>> {
        let (used, quota, object_quota) = match by {
            SpaceBy::User => (USERUSED_OBJECT, "userquota@", "userobjquota@"),
            SpaceBy::Group => (GROUPUSED_OBJECT, "groupquota@", "groupobjquota@"),
            SpaceBy::Project => (PROJECTUSED_OBJECT, "projectquota@", "projectobjquota@"),
        };
        let mut owners: BTreeMap<u64, OwnerSpace> = BTreeMap::new();
        for (name, number) in self.numbers_of(Some(used)).await? {
            match name.strip_prefix("obj-") {
                Some(owner) => entry(&mut owners, owner, |space| space.used_objects = number),
                None => entry(&mut owners, &name, |space| space.used_bytes = number),
            }
        }
        let master = Zap::open_id(self.objset(), MASTER_NODE).await?;
        for (owner, number) in self.numbers_of(master.get_u64(quota).await?.map(ObjectId)).await? {
            entry(&mut owners, &owner, |space| space.quota_bytes = number);
        }
        for (owner, number) in self.numbers_of(master.get_u64(object_quota).await?.map(ObjectId)).await? {
            entry(&mut owners, &owner, |space| space.quota_objects = number);
        }
        Ok(owners)
    }

    /// The domains of owners that are not POSIX's.
    ///
    /// # Errors
    /// The table can't be read.
    pub async fn fuid_table(&self) -> Result<FuidTable> {
        let Some(id) = self.master().fuids else { return Ok(FuidTable::default()) };
        let damaged = |source| FsError::Format { object: id, source };
        let object = self.object(id).await?;
        let mut bonus = Reader::new("FUID table", object.dnode().bonus(), object.dnode().endian());
        let len = bonus.u64().map_err(damaged)?.min(MAX_FUID_TABLE_BYTES);
        if len == 0 {
            return Ok(FuidTable::default());
        }
        FuidTable::decode(&object.read(0, len as usize).await?).map_err(damaged)
    }

    /// Names and numbers of a table; none if there is no such object.
    async fn numbers_of(&self, id: Option<ObjectId>) -> Result<Vec<(String, u64)>> {
        let Some(id) = id else { return Ok(Vec::new()) };
        let zap = match Zap::open_id(self.objset(), id).await {
            Ok(zap) => zap,
            Err(DatasetError::NoObject { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let entries = zap.to_vec().await?;
        Ok(entries.iter().filter_map(|e| Some((e.name_text(), e.value.as_u64()?))).collect())
    }
}

fn entry(owners: &mut BTreeMap<u64, OwnerSpace>, name: &str, set: impl FnOnce(&mut OwnerSpace)) {
    if let Ok(owner) = u64::from_str_radix(name, 16) {
        set(owners.entry(owner).or_default());
    }
}

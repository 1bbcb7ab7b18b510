//! Who uses how much: space and files by user, group and project, with their limits; and the domains of foreign owners.
//!
//! Layout: used space is kept in three special objects of the object set, limits in ZAPs that the master node names. Both
//! have the owner's number in hexadecimal as name (a FUID; a project's number); counts of files are under `obj-` and that number.
//! Source: OpenZFS `zfs_quota.c` (`zfs_userspace_many`), `zfs_fuid.c`.

use std::collections::BTreeMap;

use cenote_dataset::live::Edit;
use cenote_dataset::objset::{GROUPUSED_OBJECT, PROJECTUSED_OBJECT, USERUSED_OBJECT};
use cenote_dataset::{DatasetError, NewZap, Zap, ZapEdit};
use cenote_format::bytes::Reader;
use cenote_format::dnode::ObjectType;
use cenote_format::units::ObjectId;
use cenote_format::znode::FuidTable;

use crate::error::{FsError, Result};
use crate::filesystem::{Filesystem, MASTER_NODE};

/// `DMU_OBJACCT_PREFIX`: before the names of accounts of objects.
const OBJECTS_PREFIX: &str = "obj-";
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

impl SpaceBy {
    /// All of them.
    pub const ALL: [SpaceBy; 3] = [SpaceBy::User, SpaceBy::Group, SpaceBy::Project];

    /// The object of what is used.
    fn used(self) -> ObjectId {
        match self {
            SpaceBy::User => USERUSED_OBJECT,
            SpaceBy::Group => GROUPUSED_OBJECT,
            SpaceBy::Project => PROJECTUSED_OBJECT,
        }
    }
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

/// What a limit limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// `userquota@`
    Bytes,
    /// `userobjquota@`
    Objects,
}

/// The table of limits, as the master node calls it (`zfs_userquota_prop_prefixes`).
pub(crate) fn limits(by: SpaceBy, counted: Counted) -> &'static str {
    match (by, counted) {
        (SpaceBy::User, Counted::Bytes) => "userquota@",
        (SpaceBy::User, Counted::Objects) => "userobjquota@",
        (SpaceBy::Group, Counted::Bytes) => "groupquota@",
        (SpaceBy::Group, Counted::Objects) => "groupobjquota@",
        (SpaceBy::Project, Counted::Bytes) => "projectquota@",
        (SpaceBy::Project, Counted::Objects) => "projectobjquota@",
    }
}

/// Enters a limit, or takes it away: 0.
pub(crate) async fn set_quota(
    edit: &Edit,
    by: SpaceBy,
    counted: Counted,
    owner: u64,
    limit: u64,
) -> Result<()> {
    let master = ZapEdit::new(edit, MASTER_NODE);
    let name = limits(by, counted);
    let table = match master.get(name).await?.and_then(|value| value.as_u64()) {
        Some(table) => ObjectId(table),
        None => {
            let table = NewZap::of(ObjectType::USERGROUP_QUOTA).create(edit).await?;
            master.add(name, table.0).await?;
            table
        }
    };
    let (table, key) = (ZapEdit::new(edit, table), format!("{owner:x}"));
    match limit {
        0 => match table.remove(key.as_str()).await {
            Err(DatasetError::NoEntry { .. }) => Ok(()),
            removed => Ok(removed?),
        },
        limit => Ok(table.update(key.as_str(), limit).await?),
    }
}

impl Filesystem {
    /// Use and limits of one owner: a FUID, or the number of a project.
    ///
    /// # Errors
    /// A table can't be read.
    pub async fn space_of(&self, by: SpaceBy, owner: u64) -> Result<OwnerSpace> {
        let master = Zap::open_id(self.objset(), MASTER_NODE).await?;
        let quota = master.get_u64(limits(by, Counted::Bytes)).await?.map(ObjectId);
        let object_quota = master.get_u64(limits(by, Counted::Objects)).await?.map(ObjectId);
        let name = format!("{owner:x}");
        Ok(OwnerSpace {
            used_bytes: self.used_by(by, Counted::Bytes, owner).await?,
            quota_bytes: self.number_in(quota, &name).await?,
            used_objects: self.used_by(by, Counted::Objects, owner).await?,
            quota_objects: self.number_in(object_quota, &name).await?,
        })
    }

    /// All owners that have anything, or a limit, by number. Memory: some 50 bytes for each.
    ///
    /// # Errors
    /// A table can't be read.
    pub async fn owners(&self, by: SpaceBy) -> Result<BTreeMap<u64, OwnerSpace>> {
        let mut owners: BTreeMap<u64, OwnerSpace> = BTreeMap::new();
        for (name, number) in self.numbers_in(Some(by.used())).await? {
            match name.strip_prefix(OBJECTS_PREFIX) {
                Some(owner) => entry(&mut owners, owner, |space| space.used_objects = number),
                None => entry(&mut owners, &name, |space| space.used_bytes = number),
            }
        }
        let master = Zap::open_id(self.objset(), MASTER_NODE).await?;
        for counted in [Counted::Bytes, Counted::Objects] {
            let table = master.get_u64(limits(by, counted)).await?.map(ObjectId);
            for (owner, number) in self.numbers_in(table).await? {
                entry(&mut owners, &owner, |space| match counted {
                    Counted::Bytes => space.quota_bytes = number,
                    Counted::Objects => space.quota_objects = number,
                });
            }
        }
        Ok(owners)
    }

    /// Whether an owner has used up what a table of limits says, as of the last group on disk.
    pub(crate) async fn is_over(
        &self,
        table: ObjectId,
        by: SpaceBy,
        counted: Counted,
        owner: u64,
    ) -> Result<bool> {
        let limit = self.number_in(Some(table), &format!("{owner:x}")).await?;
        Ok(limit != 0 && self.used_by(by, counted, owner).await? >= limit)
    }

    async fn used_by(&self, by: SpaceBy, counted: Counted, owner: u64) -> Result<u64> {
        let name = match counted {
            Counted::Bytes => format!("{owner:x}"),
            Counted::Objects => format!("{OBJECTS_PREFIX}{owner:x}"),
        };
        self.number_in(Some(by.used()), &name).await
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

    /// The number under a name of a table; 0 if there is none, or no such table.
    async fn number_in(&self, table: Option<ObjectId>, name: &str) -> Result<u64> {
        match self.table(table).await? {
            Some(zap) => Ok(zap.get_u64(name).await?.unwrap_or(0)),
            None => Ok(0),
        }
    }

    /// All names of a table, and their numbers.
    async fn numbers_in(&self, table: Option<ObjectId>) -> Result<Vec<(String, u64)>> {
        let Some(zap) = self.table(table).await? else { return Ok(Vec::new()) };
        let entries = zap.to_vec().await?;
        Ok(entries.iter().filter_map(|entry| Some((entry.name_text(), entry.value.as_u64()?))).collect())
    }

    async fn table(&self, table: Option<ObjectId>) -> Result<Option<Zap>> {
        let Some(id) = table else { return Ok(None) };
        match Zap::open_id(self.objset(), id).await {
            Ok(zap) => Ok(Some(zap)),
            Err(DatasetError::NoObject { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Changes what is known of the owner whose number a table has in hexadecimal.
fn entry(owners: &mut BTreeMap<u64, OwnerSpace>, owner: &str, change: impl FnOnce(&mut OwnerSpace)) {
    if let Ok(owner) = u64::from_str_radix(owner, 16) {
        change(owners.entry(owner).or_default());
    }
}

//! Space and file usage by user, group and project, with quotas; and the domains of foreign owners.
//!
//! Layout: usage is stored in three special objects of the object set, quotas in ZAPs that the master node
//! names. Entries of both are named by the owner's number in hexadecimal (a FUID, or a project number); file
//! counts are under `obj-` plus that number. Default quotas are in the master node, under the names of their
//! properties (`defaultuserquota`). Source: OpenZFS `zfs_quota.c` (`zfs_userspace_many`), `zfs_fuid.c`.

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_format::bytes::Reader;
use cenote_format::dnode::ObjectType;
use cenote_format::units::ObjectId;
use cenote_format::znode::FuidTable;
use cenote_object::objset::{GROUPUSED_OBJECT, PROJECTUSED_OBJECT, USERUSED_OBJECT};
use cenote_object::{DatasetError, Edit, NewZap, Zap, ZapEdit};

use crate::error::{FsError, Result};
use crate::filesystem::{Filesystem, MASTER_NODE};

/// `DMU_OBJACCT_PREFIX`: the prefix of entries that count objects.
const OBJECTS_PREFIX: &str = "obj-";
/// The largest domain table read.
const MAX_FUID_TABLE_BYTES: u64 = 16 << 20;

/// The kind of owner by which space is accounted.
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
    /// All kinds.
    pub const ALL: [SpaceBy; 3] = [SpaceBy::User, SpaceBy::Group, SpaceBy::Project];

    /// The object with the usage.
    fn used(self) -> ObjectId {
        match self {
            SpaceBy::User => USERUSED_OBJECT,
            SpaceBy::Group => GROUPUSED_OBJECT,
            SpaceBy::Project => PROJECTUSED_OBJECT,
        }
    }
}

/// One owner's usage and quotas, its own or the default; 0 means no quota.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct OwnerSpace {
    /// Bytes used.
    pub used_bytes: u64,
    /// Space quota in bytes.
    pub quota_bytes: u64,
    /// Objects used.
    pub used_objects: u64,
    /// Object quota.
    pub quota_objects: u64,
}

/// The resource that a quota limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// `userquota@`
    Bytes,
    /// `userobjquota@`
    Objects,
}

/// The quota table's name in the master node (`zfs_userquota_prop_prefixes`).
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

/// The name of a default quota: of the property, and in the master node.
pub fn default_limit(by: SpaceBy, counted: Counted) -> &'static str {
    match (by, counted) {
        (SpaceBy::User, Counted::Bytes) => "defaultuserquota",
        (SpaceBy::User, Counted::Objects) => "defaultuserobjquota",
        (SpaceBy::Group, Counted::Bytes) => "defaultgroupquota",
        (SpaceBy::Group, Counted::Objects) => "defaultgroupobjquota",
        (SpaceBy::Project, Counted::Bytes) => "defaultprojectquota",
        (SpaceBy::Project, Counted::Objects) => "defaultprojectobjquota",
    }
}

/// Sets a quota; 0 removes it.
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

/// Sets a default quota; 0 removes it.
pub(crate) async fn set_default_quota(edit: &Edit, by: SpaceBy, counted: Counted, limit: u64) -> Result<()> {
    let (master, name) = (ZapEdit::new(edit, MASTER_NODE), default_limit(by, counted));
    match limit {
        0 => match master.remove(name).await {
            Err(DatasetError::NoEntry { .. }) => Ok(()),
            removed => Ok(removed?),
        },
        limit => Ok(master.update(name, limit).await?),
    }
}

impl Filesystem {
    /// Usage and quotas of one owner: a FUID, or a project number.
    ///
    /// # Errors
    /// A table can't be read.
    #[boxed]
    pub async fn space_of(&self, by: SpaceBy, owner: u64) -> Result<OwnerSpace> {
        let quota = async |counted| match self.own_quota(by, counted, owner).await? {
            0 => self.default_quota(by, counted).await,
            own => Ok(own),
        };
        Ok(OwnerSpace {
            used_bytes: self.used_by(by, Counted::Bytes, owner).await?,
            quota_bytes: quota(Counted::Bytes).await?,
            used_objects: self.used_by(by, Counted::Objects, owner).await?,
            quota_objects: quota(Counted::Objects).await?,
        })
    }

    /// An owner's own quota; 0: none.
    ///
    /// # Errors
    /// A table can't be read.
    #[boxed]
    pub async fn own_quota(&self, by: SpaceBy, counted: Counted, owner: u64) -> Result<u64> {
        let master = Zap::open_id(self.objset(), MASTER_NODE).await?;
        let table = master.get_u64(limits(by, counted)).await?.map(ObjectId);
        self.number_in(table, &format!("{owner:x}")).await
    }

    /// The default quota; 0: none.
    ///
    /// # Errors
    /// The master node can't be read.
    #[boxed]
    pub async fn default_quota(&self, by: SpaceBy, counted: Counted) -> Result<u64> {
        let master = Zap::open_id(self.objset(), MASTER_NODE).await?;
        Ok(master.get_u64(default_limit(by, counted)).await?.unwrap_or(0))
    }

    /// All owners with usage or a quota, by number. Memory: some 50 bytes for each.
    ///
    /// # Errors
    /// A table can't be read.
    #[boxed]
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
            let default = self.default_quota(by, counted).await?;
            for space in owners.values_mut() {
                let quota = match counted {
                    Counted::Bytes => &mut space.quota_bytes,
                    Counted::Objects => &mut space.quota_objects,
                };
                *quota = if *quota == 0 { default } else { *quota };
            }
        }
        Ok(owners)
    }

    /// Whether an owner has exhausted its quota in a table, or else the default, as of the last synced txg.
    pub(crate) async fn is_over(
        &self,
        limits: (Option<ObjectId>, u64),
        (by, counted): (SpaceBy, Counted),
        owner: u64,
    ) -> Result<bool> {
        let (table, default) = limits;
        let limit = match self.number_in(table, &format!("{owner:x}")).await? {
            0 => default,
            own => own,
        };
        Ok(limit != 0 && self.used_by(by, counted, owner).await? >= limit)
    }

    async fn used_by(&self, by: SpaceBy, counted: Counted, owner: u64) -> Result<u64> {
        let name = match counted {
            Counted::Bytes => format!("{owner:x}"),
            Counted::Objects => format!("{OBJECTS_PREFIX}{owner:x}"),
        };
        self.number_in(Some(by.used()), &name).await
    }

    /// The domains of non-POSIX owners.
    ///
    /// # Errors
    /// The table can't be read.
    #[boxed]
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

    /// The number stored under a name in a table; 0 if the name or the table does not exist.
    async fn number_in(&self, table: Option<ObjectId>, name: &str) -> Result<u64> {
        match self.table(table).await? {
            Some(zap) => Ok(zap.get_u64(name).await?.unwrap_or(0)),
            None => Ok(0),
        }
    }

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

/// Changes the entry of an owner, given in hexadecimal.
fn entry(owners: &mut BTreeMap<u64, OwnerSpace>, owner: &str, change: impl FnOnce(&mut OwnerSpace)) {
    if let Ok(owner) = u64::from_str_radix(owner, 16) {
        change(owners.entry(owner).or_default());
    }
}

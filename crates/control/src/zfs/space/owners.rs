//! Owners of files, with their usage and quotas.
//!
//! Owners are shown by number or SID: only the pool's home machine knows their names.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_userspace`).

use cenote_format::znode::Fuid;
use cenote_fs::{Filesystem, OwnerSpace, SpaceBy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::session::{Session, dataset, pool_of};

/// The kind of an owner, in OpenZFS's sort order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Group.
    PosixGroup,
    /// User.
    PosixUser,
    /// A group of a Windows domain.
    SmbGroup,
    /// A user of a Windows domain.
    SmbUser,
    /// Project.
    Project,
}

/// An owner, by number or SID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// A number from the pool's home machine.
    Id(u64),
    /// A SID of a Windows domain.
    Sid(String),
}

/// An owner's space and quotas, its own or the default; a quota of 0 is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Space {
    /// Kind.
    pub kind: Kind,
    /// Owner.
    pub owner: Owner,
    /// Bytes used.
    pub used_bytes: u64,
    /// Limit of bytes.
    pub quota_bytes: u64,
    /// Objects used.
    pub used_objects: u64,
    /// Limit of objects.
    pub quota_objects: u64,
}

pub(super) async fn owners(
    session: &Session,
    name: &str,
    kinds: &[SpaceBy],
) -> Result<Vec<Space>, ControlError> {
    let found = dataset(&session.open_pool(pool_of(name)).await?, name).await?;
    let fs = Filesystem::open(found.objset().await?).await?;
    let domains = fs.fuid_table().await?;
    let mut all = Vec::new();
    for &by in kinds {
        all.extend(fs.owners(by).await?.into_iter().map(|(owner, space)| {
            let sid = domains.sid(Fuid(owner)).filter(|_| by != SpaceBy::Project && owner >> 32 != 0);
            let kind = match (by, &sid) {
                (SpaceBy::User, None) => Kind::PosixUser,
                (SpaceBy::User, Some(_)) => Kind::SmbUser,
                (SpaceBy::Group, None) => Kind::PosixGroup,
                (SpaceBy::Group, Some(_)) => Kind::SmbGroup,
                (SpaceBy::Project, _) => Kind::Project,
            };
            let OwnerSpace { used_bytes, quota_bytes, used_objects, quota_objects } = space;
            let owner = sid.map_or(Owner::Id(owner), Owner::Sid);
            Space { kind, owner, used_bytes, quota_bytes, used_objects, quota_objects }
        }));
    }
    Ok(all)
}

/// The permissions to see them.
pub(super) async fn permissions(
    session: &Session,
    name: &str,
    kinds: &[SpaceBy],
) -> Result<Permissions, ControlError> {
    let mut permissions = Permissions::to(format!("get used/quota for {name}"));
    let dataset = dataset(&session.pool_to_ask(name).await?, name).await?;
    for kind in kinds {
        let needed: [&str; 4] = match kind {
            SpaceBy::User => ["userused", "userquota", "userobjused", "userobjquota"],
            SpaceBy::Group => ["groupused", "groupquota", "groupobjused", "groupobjquota"],
            SpaceBy::Project => ["projectused", "projectquota", "projectobjused", "projectobjquota"],
        };
        permissions.need(&dataset, &needed);
    }
    Ok(permissions)
}

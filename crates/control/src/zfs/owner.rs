//! Usage and quotas of single owners: `userused@1000`, `groupobjquota@5`, `projectused@77` and similar.
//!
//! Owners are typed by number, or by a name of this machine, and shown by number: only the pool's home
//! machine knows their names.
//!
//! Source: OpenZFS `zfs_userquota_prop_prefixes`, `zfs_userspace_one`.

use cenote_dataset::Dataset;
use cenote_format::objset::ObjsetType;
use cenote_fs::{Counted, Filesystem, SpaceBy};

use crate::error::ControlError;
use crate::users;

/// A property of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerProp {
    /// As typed.
    pub name: String,
    by: SpaceBy,
    owner: u64,
    figure: Figure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    Used,
    Quota,
    ObjectsUsed,
    ObjectsQuota,
}

const KINDS: [(&str, SpaceBy); 3] =
    [("user", SpaceBy::User), ("group", SpaceBy::Group), ("project", SpaceBy::Project)];

const FIGURES: [(&str, Figure); 4] = [
    ("used", Figure::Used),
    ("quota", Figure::Quota),
    ("objused", Figure::ObjectsUsed),
    ("objquota", Figure::ObjectsQuota),
];

impl OwnerProp {
    /// Parses such a name; `None` for any other property.
    pub fn parse(name: &str) -> Result<Option<OwnerProp>, ControlError> {
        let Some((prefix, owner)) = name.split_once('@') else { return Ok(None) };
        for (kind, by) in KINDS {
            let figure =
                prefix.strip_prefix(kind).and_then(|rest| FIGURES.iter().find(|(word, _)| *word == rest));
            let Some(&(_, figure)) = figure else { continue };
            let named = || match by {
                SpaceBy::User => users::uid(owner),
                SpaceBy::Group => users::gid(owner),
                SpaceBy::Project => None,
            };
            let owner = owner.parse().ok().or_else(named).ok_or_else(|| {
                ControlError::Usage(format!(
                    "{name}: no {kind} of this machine has that name; give its number ({prefix}@1000)"
                ))
            })?;
            return Ok(Some(OwnerProp { name: name.into(), by, owner, figure }));
        }
        Ok(None)
    }

    /// The kind of owner, the counted unit, and the owner of a quota. `None` for usage.
    pub fn limit(&self) -> Option<(SpaceBy, Counted, u64)> {
        let counted = match self.figure {
            Figure::Quota => Counted::Bytes,
            Figure::ObjectsQuota => Counted::Objects,
            Figure::Used | Figure::ObjectsUsed => return None,
        };
        Some((self.by, counted, self.owner))
    }

    /// Its value in a file system or snapshot; `None` if usage is not tracked.
    pub async fn of(&self, dataset: &Dataset) -> Result<Option<u64>, ControlError> {
        let objset = dataset.objset().await?;
        let phys = objset.phys();
        let is_counted = match self.by {
            SpaceBy::User => phys.userused_dnode.is_some(),
            SpaceBy::Group => phys.groupused_dnode.is_some(),
            SpaceBy::Project => phys.projectused_dnode.is_some(),
        };
        if phys.objset_type != ObjsetType::Zfs || !is_counted {
            return Ok(None);
        }
        let fs = Filesystem::open(objset).await?;
        // Excludes the default quota, which has its own properties.
        if let Some((by, counted, owner)) = self.limit() {
            return Ok(Some(fs.own_quota(by, counted, owner).await?));
        }
        let space = fs.space_of(self.by, self.owner).await?;
        Ok(Some(if self.figure == Figure::Used { space.used_bytes } else { space.used_objects }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_go_by_number() {
        let parsed = OwnerProp::parse("groupobjquota@7").unwrap().unwrap();
        assert_eq!((parsed.by, parsed.owner), (SpaceBy::Group, 7));
        assert_eq!(parsed.limit(), Some((SpaceBy::Group, Counted::Objects, 7)));
        assert_eq!(OwnerProp::parse("written@x").unwrap(), None);
        assert!(OwnerProp::parse("userused@alice").unwrap_err().to_string().contains("number"));
    }
}

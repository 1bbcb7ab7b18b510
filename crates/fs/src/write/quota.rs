//! Enforces quotas of users, groups and projects.
//!
//! Idea: usage is counted when a txg is synced, so owners are compared with their quotas as of the last txg
//! and may exceed them by the contents of one txg. Operations that free space are never refused. Quotas are
//! rules (see `rules`): they don't bind a replay.
//!
//! Source: OpenZFS `zfs_quota.c` (`zfs_id_overblockquota`, `zfs_id_overobjquota`), `zfs_acl.c`
//! (`zfs_acl_ids_overquota`).

use cenote_boxed::boxed;
use cenote_format::sa::ZplAttr;
use cenote_format::units::ObjectId;
use cenote_object::{Edit, Zap};

use super::znode::Znode;
use super::{FsWriter, SetAttr};
use crate::error::{Refusal, Result};
use crate::filesystem::{Filesystem, MASTER_NODE};
use crate::userspace::{self, Counted, SpaceBy};

/// The quota tables, each created with its first quota, and the default quotas (0: none).
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct QuotaTables([[(Option<ObjectId>, u64); 2]; 3]);

impl QuotaTables {
    /// The tables that the master node names.
    pub(super) async fn read(fs: &Filesystem) -> Result<QuotaTables> {
        let master = Zap::open_id(fs.objset(), MASTER_NODE).await?;
        let mut tables = QuotaTables::default();
        for by in SpaceBy::ALL {
            for counted in [Counted::Bytes, Counted::Objects] {
                let table = master.get_u64(userspace::limits(by, counted)).await?;
                let default = master.get_u64(userspace::default_limit(by, counted)).await?;
                tables.0[by as usize][counted as usize] = (table.map(ObjectId), default.unwrap_or(0));
            }
        }
        Ok(tables)
    }

    /// The table and default of a kind, if any.
    fn of(&self, by: SpaceBy, counted: Counted) -> Option<(Option<ObjectId>, u64)> {
        Some(self.0[by as usize][counted as usize]).filter(|limits| *limits != (None, 0))
    }
}

impl FsWriter {
    /// Sets the quota of an owner (a FUID, or a project number); 0 means none (`zfs_set_userquota`).
    ///
    /// # Errors
    /// A table is damaged.
    #[boxed]
    pub async fn set_quota(
        &self,
        edit: &Edit,
        by: SpaceBy,
        counted: Counted,
        owner: u64,
        limit: u64,
    ) -> Result<()> {
        // One at a time: the first quota of a kind makes its table.
        let _held = self.0.locks.exclusive(&[MASTER_NODE]).await;
        userspace::set_quota(edit, by, counted, owner, limit).await?;
        *self.0.quotas.write() = QuotaTables::read(&self.view()).await?;
        Ok(())
    }

    /// Sets the default quota of users, groups or projects; 0 means none (`zfs_set_default_quota`).
    ///
    /// # Errors
    /// The master node is damaged.
    #[boxed]
    pub async fn set_default_quota(
        &self,
        edit: &Edit,
        by: SpaceBy,
        counted: Counted,
        limit: u64,
    ) -> Result<()> {
        let _held = self.0.locks.exclusive(&[MASTER_NODE]).await;
        userspace::set_default_quota(edit, by, counted, limit).await?;
        *self.0.quotas.write() = QuotaTables::read(&self.view()).await?;
        Ok(())
    }

    /// Refuses to grow a file whose owners have exhausted a space quota.
    pub(super) async fn check_bytes(&self, node: &Znode) -> Result<()> {
        let owners = [
            (SpaceBy::User, node.u64(ZplAttr::Uid)?),
            (SpaceBy::Group, node.u64(ZplAttr::Gid)?),
            (SpaceBy::Project, node.project()),
        ];
        self.check(&owners, &[Counted::Bytes], node.id).await
    }

    /// Refuses a new object if its owners have exhausted any quota; `at` is its directory.
    pub(super) async fn check_new(
        &self,
        (user, group, project): (u64, u64, u64),
        at: ObjectId,
    ) -> Result<()> {
        let owners = [(SpaceBy::User, user), (SpaceBy::Group, group), (SpaceBy::Project, project)];
        self.check(&owners, &[Counted::Bytes, Counted::Objects], at).await
    }

    pub(super) async fn check_new_owners(&self, node: &Znode, set: &SetAttr) -> Result<()> {
        let before = [node.find_u64(ZplAttr::Uid), node.find_u64(ZplAttr::Gid), Some(node.project())];
        let after = [set.uid, set.gid, set.project.map(u64::from)];
        let changes = SpaceBy::ALL.into_iter().zip(before.into_iter().zip(after));
        let new =
            changes.filter_map(|(by, (before, after))| after.filter(|_| before != after).map(|id| (by, id)));
        self.check(&new.collect::<Vec<_>>(), &[Counted::Bytes, Counted::Objects], node.id).await
    }

    async fn check(&self, owners: &[(SpaceBy, u64)], counted: &[Counted], object: ObjectId) -> Result<()> {
        let tables = *self.0.quotas.read();
        // Objects without a project belong to project 0.
        let limited = owners.iter().filter(|owner| **owner != (SpaceBy::Project, 0));
        for &(by, owner) in limited {
            for &counted in counted {
                if let Some(limits) = tables.of(by, counted)
                    && !self.is_replay()
                    && self.view().is_over(limits, (by, counted), owner).await?
                {
                    return Err(Refusal::Quota.of(object));
                }
            }
        }
        Ok(())
    }
}

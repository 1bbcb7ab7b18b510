//! Accounting of space and objects by user, group and project.
//!
//! Idea: an object's attributes give its owners. Writing it subtracts its old size from its old owners and
//! adds its new size to its new ones. Flags in a dnode say that it is counted, so that a set older than these
//! accounts can be counted object by object.
//!
//! Source: OpenZFS `dmu_objset.c` (`do_userquota_update`, `do_userobjquota_update`), `zfs_quota.c`
//! (`zpl_get_file_info`).

use std::collections::BTreeMap;

use cenote_format::dnode::{
    DNODE_FLAG_USEROBJUSED_ACCOUNTED, DNODE_FLAG_USERUSED_ACCOUNTED, DNODE_MIN_BYTES, Dnode, ObjectType,
};
use cenote_format::objset::{
    OBJSET_FLAG_PROJECTQUOTA_COMPLETE, OBJSET_FLAG_USERACCOUNTING_COMPLETE,
    OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE, ObjsetPhys, ObjsetType,
};
use cenote_format::units::{ObjectId, Txg};
use cenote_format::znode::{ZFS_PROJID, ZnodeFields};

use crate::error::{DatasetError, Result};
use crate::live::layer::Changed;
use crate::live::{Edit, LiveObjset};
use crate::objset::{GROUPUSED_OBJECT, Objset, PROJECTUSED_OBJECT, USERUSED_OBJECT};
use crate::zap::{NewZap, ZapEdit};

/// `DMU_OBJACCT_PREFIX`: prefix of accounts of objects.
const OBJECTS_PREFIX: &str = "obj-";
/// Offsets of attributes behind their header: `SA_UID_OFFSET` and the like.
const SA_UID_OFFSET: usize = 24;
const SA_GID_OFFSET: usize = 32;
const SA_FLAGS_OFFSET: usize = 48;
const SA_PROJID_OFFSET: usize = 128;

/// Changes of accounts, by object and name.
#[derive(Debug, Default)]
pub(super) struct Owners(BTreeMap<(ObjectId, String), i64>);

pub(super) type Unread = BTreeMap<ObjectId, DatasetError>;

/// Flags of counted dnodes.
pub(super) fn dnode_flags(phys: &ObjsetPhys) -> u8 {
    let is_on = |flag: u64, dnode_flag: u8| if phys.flags & flag != 0 { dnode_flag } else { 0 };
    match phys.objset_type {
        ObjsetType::Zfs => {
            is_on(OBJSET_FLAG_USERACCOUNTING_COMPLETE, DNODE_FLAG_USERUSED_ACCOUNTED)
                | is_on(OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE, DNODE_FLAG_USEROBJUSED_ACCOUNTED)
        }
        _ => 0,
    }
}

impl Owners {
    pub(super) fn replace(&mut self, phys: &ObjsetPhys, old: Option<&Dnode>, new: Option<&Dnode>) {
        for (dnode, sign) in [(old, -1), (new, 1)] {
            if let Some(dnode) = dnode {
                self.count(phys, dnode, sign);
            }
        }
    }

    fn count(&mut self, phys: &ObjsetPhys, dnode: &Dnode, sign: i64) {
        let Some([user, group, project]) = owners(dnode) else { return };
        let projects = phys.flags & OBJSET_FLAG_PROJECTQUOTA_COMPLETE != 0;
        let accounts = [(USERUSED_OBJECT, user), (GROUPUSED_OBJECT, group), (PROJECTUSED_OBJECT, project)];
        let accounts = &accounts[..if projects { 3 } else { 2 }];
        for &(table, id) in accounts {
            if dnode.flags & DNODE_FLAG_USERUSED_ACCOUNTED != 0 {
                let bytes = (dnode.used_bytes + DNODE_MIN_BYTES as u64) as i64;
                *self.0.entry((table, format!("{id:x}"))).or_default() += sign * bytes;
            }
            if dnode.flags & DNODE_FLAG_USEROBJUSED_ACCOUNTED != 0 {
                *self.0.entry((table, format!("{OBJECTS_PREFIX}{id:x}"))).or_default() += sign;
            }
        }
    }

    /// Returns changed objects, and unreadable tables, which stay as they are.
    pub(super) async fn settle(
        self,
        set: &Objset,
        txg: Txg,
    ) -> Result<(BTreeMap<ObjectId, Changed>, Unread)> {
        let live = LiveObjset::new(set.clone(), txg);
        let edit = live.edit();
        let mut unread = Unread::new();
        for ((table, name), delta) in self.0.into_iter().filter(|(_, delta)| *delta != 0) {
            if unread.contains_key(&table) {
                continue;
            }
            match account(&edit, table, &name, delta).await {
                Err(error) if error.is_damage() => _ = unread.insert(table, error),
                other => other?,
            }
        }
        let mut changed = live.freeze(txg).freeze();
        changed.retain(|table, _| !unread.contains_key(table));
        Ok((changed, unread))
    }
}

async fn account(edit: &Edit, table: ObjectId, name: &str, delta: i64) -> Result<()> {
    if let Err(DatasetError::NoObject { .. }) = edit.view().dnode(table).await {
        NewZap::of(ObjectType::USERGROUP_USED).create_at(edit, table).await?;
    }
    ZapEdit::new(edit, table).increment(name, delta).await.map(drop)
}

/// User, group and project of a file.
fn owners(dnode: &Dnode) -> Option<[u64; 3]> {
    let bonus = dnode.bonus();
    if dnode.bonus_type == ObjectType::ZNODE {
        let znode = ZnodeFields::decode(bonus, dnode.endian()).ok()?;
        return Some([znode.uid.0, znode.gid.0, 0]);
    }
    if dnode.bonus_type != ObjectType::SA {
        return None;
    }
    let info = dnode.endian().u16(*bonus.get(4..)?.first_chunk()?);
    let word = |offset: usize| {
        let at = usize::from(info >> 10) * 8 + offset;
        Some(dnode.endian().u64(*bonus.get(at..)?.first_chunk()?))
    };
    let has_project = word(SA_FLAGS_OFFSET)? & ZFS_PROJID != 0;
    let project = if has_project { word(SA_PROJID_OFFSET)? } else { 0 };
    Some([word(SA_UID_OFFSET)?, word(SA_GID_OFFSET)?, project])
}
